"""Tables made by pylance, with a history that uses every kind of metadata there is."""

import lance
import pyarrow as pa
from lance.fragment import write_fragments


def rows(ids, text="x"):
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [text] * len(ids)})


def make_all(folder) -> list[str]:
    """Roots of the tables, below ``folder``."""
    makers = (plain, stable, spilled, references, old_names, deferred_remap, bases, detached)
    return [root for maker in makers for root in maker(f"{folder}/{maker.__name__}.lance")]


def plain(root):
    lance.write_dataset(rows(range(10)), root, max_rows_per_file=5)
    lance.write_dataset(rows([20]), root, mode="append")
    lance.dataset(root).create_scalar_index("id", "BTREE")
    lance.dataset(root).delete("id = 2 or id = 20")
    lance.dataset(root).update_config({"k": "v", "lance.x": "y"})
    lance.dataset(root).update_metadata({"tm": "1"})
    lance.dataset(root).update_schema_metadata({"sm": "1"})
    lance.dataset(root).update_field_metadata({"id": {"fm": "1"}})
    lance.dataset(root).delete_config_keys(["k"])
    lance.dataset(root, version=1).restore()
    lance.write_dataset(rows([1]), root, mode="overwrite")
    return [root]


def stable(root):
    lance.write_dataset(rows(range(12)), root, max_rows_per_file=4, enable_stable_row_ids=True)
    lance.dataset(root).create_scalar_index("v", "BITMAP")
    lance.dataset(root).update({"v": "'u'"}, where="id % 3 = 0")
    merge = lance.dataset(root).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(rows([1, 100]))
    lance.dataset(root).add_columns({"w": "id + 1"})
    lance.dataset(root).add_columns(pa.schema([("n", pa.struct([("a", pa.list_(pa.int8()))]))]))
    lance.dataset(root).alter_columns({"path": "w", "data_type": pa.int32()})
    lance.dataset(root).alter_columns({"path": "w", "name": "renamed"})
    lance.dataset(root).drop_columns(["renamed"])
    lance.dataset(root).delete("id = 5")
    lance.dataset(root).optimize.compact_files(materialize_deletions_threshold=0.0)
    return [root]


def spilled(root):
    lance.write_dataset(rows(range(20)), root, enable_stable_row_ids=True, max_rows_per_file=10)
    lance.dataset(root).update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    )
    lance.dataset(root).update({"v": "'u'"}, where="id % 3 = 0")
    lance.dataset(root).optimize.compact_files(materialize_deletions_threshold=0.0)
    return [root]


def references(root):
    dataset = lance.write_dataset(rows([1, 2]), root)
    dataset.insert(rows([3]))
    dataset = lance.dataset(root)
    dataset.delete("id = 1")
    dataset = lance.dataset(root)
    dataset.tags.create("v1.0", 1)
    dataset.tags.create("current", 3)
    dataset.tags.update("v1.0", 2)
    branch = dataset.create_branch("feat/x", 2)
    branch.insert(rows([100]))
    dataset.tags.create("on-branch", ("feat/x", 3))
    clone = f"{root}.clone"
    dataset.shallow_clone(clone, 3)
    lance.dataset(clone).delete("id = 2")
    return [root, f"{root}/tree/feat/x", clone]


def old_names(root):
    lance.write_dataset(rows([1]), root, enable_v2_manifest_paths=False)
    for number in range(2, 12):
        lance.dataset(root).insert(rows([number]))
    return [root]


def deferred_remap(root):
    lance.write_dataset(rows(range(12)), root, max_rows_per_file=4)
    lance.dataset(root).create_scalar_index("id", "BTREE")
    lance.dataset(root).delete("id in (1, 5)")
    lance.dataset(root).optimize.compact_files(
        materialize_deletions_threshold=0.0, defer_index_remap=True
    )
    return [root]


def bases(root):
    base = lance.DatasetBasePath(f"{root}.archive", "archive")
    lance.write_dataset(rows([1, 2]), root, initial_bases=[base], target_bases=["archive"])
    return [root]


def detached(root):
    lance.write_dataset(rows([1]), root)
    operation = lance.LanceOperation.Append(write_fragments(rows([9]), root))
    lance.LanceDataset.commit(root, operation, read_version=1, detached=True)
    return [root]
