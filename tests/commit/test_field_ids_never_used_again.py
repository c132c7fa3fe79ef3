"""Tables that never use the id of a column again (flag 32768, highest id in the manifest)."""

from __future__ import annotations

from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from commit_tables import latest
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import RetryableCommitError, UnsupportedFeatureError
from pyspark_lance.metafile.manifest_file import encode_manifest
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    copy_column,
    drop_columns,
    widen_column,
)
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import VersionSpec, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings
from pyspark_lance.table.write.write_table import commit_write, plan_write, write_rows

pytestmark = pytest.mark.interop

FLAG = 32768


def mark(path: str, highest: int) -> None:
    """What a Lance that switches the rule on writes into the newest manifest."""
    store = Table(path).store()
    file = latest(store)
    manifest = replace(
        file.manifest,
        writer_flags=file.manifest.writer_flags | FLAG,
        max_allocated_field_id=highest,
    )
    store.put(file.location.path, encode_manifest(manifest, file.indices, file.transaction()))


def manifest_of(path: str):
    return latest(Table(path).store()).manifest


def numbers(*names: str) -> pa.Table:
    return pa.table({name: pa.array([1, 2, 3], pa.int32()) for name in names})


def step(path: str, rng: np.random.Generator, number: int) -> None:
    names, new = list(manifest_of(path).schema.names), f"c{number}"
    own = lance.dataset(path, session=lance.Session())
    last = names[-1]
    match str(rng.choice(["add", "theirs", "null", "drop", "widen", "over", "merge", "compact"])):
        case "add":
            schema = pa.schema([(new, manifest_of(path).schema.field(last).to_arrow().type)])
            add_columns(Table(path), schema, copy_column(last))
        case "theirs":
            own.add_columns(pa.field(new, pa.int32()))
        case "null":
            add_null_columns(Table(path), pa.schema([(new, pa.struct([("x", pa.int32())]))]))
        case "drop" if len(names) > 1:
            drop_columns(Table(path), [last])
        case "widen" if manifest_of(path).schema.field(last).logical_type == "int32":
            widen_column(Table(path), last, pa.int64(), copy_column(last))
        case "over" if rng.random() < 0.5:
            write_table(path, numbers("a", new), overwrite=True, overwrite_schema=True)
        case "over":
            lance.write_dataset(numbers("a", new), path, mode="overwrite")
        case "merge":
            write_table(path, numbers("a", new), merge_schema=True)
        case "compact":
            compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))


def run_history(path: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    write_table(path, numbers("a", "b"))
    mark(path, 4)
    used, highest = {0, 1}, 4
    for number in range(8):
        before = {field.id for field in manifest_of(path).schema.walk()}
        step(path, rng, number)
        manifest = manifest_of(path)
        ids = {field.id for field in manifest.schema.walk()}
        assert not (ids - before) & used
        assert all(new > highest for new in ids - before)
        used |= ids
        highest = max(highest, *ids)
        assert manifest.max_allocated_field_id == highest
        assert manifest.writer_flags & FLAG
        assert not manifest.reader_flags & FLAG
        assert_same_rows(read_ours(path), read_pylance(path))
    restore(Table(path), VersionSpec(version=2))
    assert manifest_of(path).max_allocated_field_id == highest
    lance.dataset(path, session=lance.Session()).add_columns({"new": "cast(7 as int)"})
    assert manifest_of(path).schema.field("new").id == highest + 1


def test_field_ids_are_never_reused_in_mixed_histories(tmp_path):
    for seed in range(3):
        run_history(str(tmp_path / str(seed)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_field_ids_are_never_reused_in_many_histories(tmp_path, seed):
    run_history(str(tmp_path), seed)


def test_restore_of_version_without_id_rule_is_refused(tmp_path):
    path = str(tmp_path)
    write_table(path, numbers("a"))
    write_table(path, numbers("a"))
    mark(path, 0)
    with pytest.raises(UnsupportedFeatureError, match="32768"):
        restore(Table(path), VersionSpec(version=1))
    with pytest.raises(Exception, match="non-reusable"):
        lance.dataset(path, version=1, session=lance.Session()).restore()


def test_overwrite_retries_after_concurrent_add_column(tmp_path):
    path = str(tmp_path)
    write_table(path, numbers("a"))
    mark(path, 0)
    data = numbers("b")
    settings = WriteSettings(overwrite=True, overwrite_schema=True)
    plan = plan_write(Table(path), data.schema, settings, existing=open_existing(Table(path)))
    written = write_rows(plan, data.to_batches())
    lance.dataset(path, session=lance.Session()).add_columns({"c": "a"})
    with pytest.raises(RetryableCommitError, match="id 1"):
        commit_write(plan, written)
    write_table(path, data, overwrite=True, overwrite_schema=True)
    assert manifest_of(path).schema.field("b").id == 2
