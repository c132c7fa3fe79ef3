# ruff: noqa: T201 - a command
"""Write the tables of old releases of pylance: ``python tests/golden/make.py [release ...]``.

What only an old release can make is kept here, ``pylance-RELEASE/CASE`` each, some KB in all.  A
case is a program that the release runs in the folder of the release, where ``lance`` and ``pa`` are
imported.  Environments are made by uv.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

_NUMBERS = """
def numbers(start, end):
    values = range(start, end)
    words = pa.array(map(str, values), pa.string())
    return pa.table({"x": pa.array(values, pa.int64()), "s": words})
"""
_VECTORS = """
def vectors(count):
    values = pa.array([float(value % 97) for value in range(count * 8)], pa.float32())
    return pa.table({"id": range(count), "v": pa.FixedSizeListArray.from_arrays(values, 8)})
"""
_STABLE = """
def rows(start, end):
    ids = range(start, end)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [number % 7 for number in ids]})
def create(name, size):
    option = {"enable_move_stable_row_ids": True}
    return lance.write_dataset(rows(0, 300), name, max_rows_per_file=size, **option)
def upsert(table, start, end):
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(start, end))
"""

CASES: dict[str, dict[str, str]] = {
    # Rows of fragments and numbers of deleted rows are not recorded.
    "0.5.9": {
        "three_fragments": """
for number in range(3):
    lance.write_dataset(pa.table({"id": [number]}), "three_fragments", mode="append")
""",
        "without_rows": """
lance.write_dataset(pa.schema({"id": pa.int64()}).empty_table(), "without_rows")
""",
        "with_deletions": """
lance.write_dataset(pa.table({"x": range(100)}), "with_deletions").delete("x < 30")
""",
    },
    "0.6.5": {
        "deleted_twice": """
table = lance.write_dataset(pa.table({"x": range(10)}), "deleted_twice")
table.delete("x < 3")
table.delete("x = 7")
"""
    },
    "0.7.5": {
        "with_deletions": """
lance.write_dataset(pa.table({"x": range(100)}), "with_deletions").delete("x >= 10 and x < 20")
""",
        "mostly_deleted": """
lance.write_dataset(pa.table({"x": range(100)}), "mostly_deleted").delete("x >= 10")
""",
    },
    # Counts of live rows were recorded as rows.
    "0.8.0": {
        name: f"""
import shutil
shutil.copytree("../pylance-0.7.5/{source}", "{name}")
lance.write_dataset(pa.table({{"x": range(2)}}), "{name}", mode="append")
"""
        for name, source in (
            ("migrated", "with_deletions"),
            ("mostly_deleted_migrated", "mostly_deleted"),
        )
    },
    # An index knows fragments that it does not hold.
    "0.8.14": {
        "vector_index": _VECTORS
        + """
table = lance.write_dataset(vectors(256), "vector_index")
table.create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=1)
table = lance.write_dataset(vectors(40), "vector_index", mode="append")
table.optimize.optimize_indices()
table.delete("id < 9")
table.optimize.compact_files()
"""
    },
    "0.8.19": {
        "list_columns": """
rows = 20
pairs = pa.struct([("a", pa.int32()), ("b", pa.int32())])
lance.write_dataset(
    pa.table({
        "fixed": pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 4 * rows, pa.float32()), 4),
        "list": pa.array([[1, 2, 3]] * rows, pa.list_(pa.int32())),
        "large": pa.array([[1, 2]] * rows, pa.large_list(pa.int32())),
        "pairs": pa.array([[{"a": 1, "b": 2}]] * rows, pa.list_(pairs)),
        "large_pairs": pa.array([[{"a": 1, "b": 2}]] * rows, pa.large_list(pairs)),
    }),
    "list_columns",
)
"""
    },
    # Field ids are given twice.
    "0.10.5": {
        "field_ids_twice": """
table = lance.write_dataset(pa.table({"x": range(2)}), "field_ids_twice")
table.add_columns({"y": "x * 2", "z": "x * 3"})
table.add_columns({"a": "-x"})
table.drop_columns(["a", "z"])
table.add_columns({"b": "x * 4", "c": "x * 5"})
"""
    },
    # The version of the files is not recorded, or only by a flag.
    "0.15.0": {
        f"{version}_{content}": _NUMBERS
        + f"""
rows = numbers(0, {count})
lance.write_dataset(rows, "{version}_{content}", use_legacy_format={version == "legacy"})
"""
        for version in ("legacy", "stable")
        for content, count in (("without_files", 0), ("with_files", 5))
    },
    # It is recorded wrongly.
    "0.16.0": {
        "newer_files_than_recorded": _NUMBERS
        + """
from lance.fragment import write_fragments
name, rows = "newer_files_than_recorded", numbers(0, 10)
files = write_fragments(rows, name, data_storage_version="stable")
lance.LanceDataset.commit(name, lance.LanceOperation.Overwrite(rows.schema, files))
""",
        "files_of_two_versions": _NUMBERS
        + """
from lance.fragment import LanceFragment
name = "files_of_two_versions"
def fragment(number, start, end, version):
    rows = numbers(start, end)
    return LanceFragment.create(name, rows, fragment_id=number, data_storage_version=version)
files = [fragment(0, 0, 10, "stable"), fragment(1, 10, 20, "stable")]
operation = lance.LanceOperation.Overwrite(numbers(0, 1).schema, files)
lance.LanceDataset.commit(name, operation)
files = [fragment(1, 30, 35, "legacy"), fragment(2, 40, 45, "legacy")]
lance.LanceDataset.commit(name, lance.LanceOperation.Append(files), read_version=1)
""",
    },
    # Indices without details, of older formats, without sizes, and of fragments that overlap.
    "0.18.2": {
        "scalar_index": _NUMBERS
        + """
table = lance.write_dataset(numbers(0, 40), "scalar_index")
table.create_scalar_index("x", "BTREE")
"""
    },
    "0.20.0": {
        "scalar_indices": _NUMBERS
        + """
table = lance.write_dataset(numbers(0, 40), "scalar_indices")
table.create_scalar_index("x", "BTREE")
table.create_scalar_index("s", "BITMAP")
table.delete("x = 3")
"""
    },
    "0.21.0": {
        "indices_of_one_fragment": _VECTORS
        + """
table = lance.write_dataset(vectors(256), "indices_of_one_fragment")
table.create_index("v", index_type="IVF_PQ", num_partitions=1, num_sub_vectors=1)
table.insert(vectors(32))
table.optimize.optimize_indices(num_indices_to_merge=0)
"""
    },
    # With stable row ids: row ids among the deleted offsets, sequences without deleted rows.
    **{
        release: {
            "offsets_that_lance_reads": _STABLE
            + """
table = create("offsets_that_lance_reads", 300)
table.delete("id % 2 = 1")
for divisor in (3, 5, 7):
    table = lance.dataset("offsets_that_lance_reads")
    table.update({"v": "v + 1"}, where=f"id % {divisor} = 0")
""",
            "offsets_that_lance_refuses": _STABLE
            + """
table = create("offsets_that_lance_refuses", 100)
table.delete("id % 3 = 1")
upsert(table, 86, 136)
""",
            "short_sequence": _STABLE
            + """
table = create("short_sequence", 100)
table.delete("id % 3 = 1")
table = lance.write_dataset(rows(300, 340), "short_sequence", mode="append")
table.optimize.compact_files(
    target_rows_per_fragment=1000, materialize_deletions_threshold=0.01
)
""",
        }
        for release in ("0.22.0", "0.29.0")
    },
    # Members of structs in another order, and fewer of them, in the second fragment.
    "1.0.1": {
        "members_in_another_order": """
def rows(start, names, **more):
    items = pa.struct([(name, pa.string()) for name in names])
    lists = [[{one: f"{one}{start + n}" for one in names}] for n in range(2)]
    ids = pa.array([start, start + 1], pa.int32())
    return pa.table({"id": ids, "data": pa.array(lists, pa.list_(items)), **more})
name = "members_in_another_order"
lance.write_dataset(rows(1, "abc", extra=["p", "q"]), name)
lance.write_dataset(rows(3, "cb"), name, mode="append")
"""
    },
}


def main(releases: list[str], environments: Path) -> None:
    """Write the cases of some releases, in the order above: later ones may go on from earlier."""
    for release, cases in CASES.items():
        if releases and release not in releases:
            continue
        folder = environments / release
        python = folder / "bin" / "python"
        if not python.exists():
            wanted = [f"pylance=={release}", "numpy<2", "pyarrow<16"]
            subprocess.run(["uv", "venv", "-q", folder], check=True)
            subprocess.run(["uv", "pip", "install", "-q", "--python", python, *wanted], check=True)
        below = HERE / f"pylance-{release}"
        shutil.rmtree(below, ignore_errors=True)
        below.mkdir()
        for name, program in cases.items():
            text = f"import lance\nimport pyarrow as pa\n{program}"
            result = subprocess.run(
                [python, "-c", text], cwd=below, capture_output=True, text=True, check=False
            )
            failed = result.stderr[-300:] if result.returncode else ""
            print(release, name, failed or "written")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1:], Path(scratch))
