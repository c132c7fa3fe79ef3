"""Strings that are not UTF-8: they are not written, and where files have them they are found.

Below the check of what is written, the writer takes strings as they come: so it makes files as
damage does, in every encoding.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import update_rows
from row_changes import set_to
from table_access import read_changes, read_ours, write_table

from pyspark_lance.codec.text_check import first_invalid_text, holds_invalid_text
from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.cdf.change_window import Bound
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BatchView, StreamOffset, StreamSettings, Updates
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.rows.write_fragments import FragmentFiles
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

BAD_ROW = 150
STRING = pa.string()


def texts(kind=STRING, count=200, words=None, length=1):
    """Strings, of which one is not UTF-8: others are not ASCII, and one is null."""
    wide = pa.types.is_large_string(kind)
    values = [f"wört-{i % words if words else i}".encode() * length for i in range(count)]
    values[BAD_ROW], values[7] = b"ab\xffcd" * length, None
    return pa.array(values, pa.large_binary() if wide else pa.binary()).view(kind)


def nested(text):
    offsets = pa.array(range(len(text) + 1), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, text)
    keys = pa.array(["k"] * len(text))
    return {
        "list": lists,
        "struct": pa.StructArray.from_arrays([text], ["a"]),
        "list in struct": pa.StructArray.from_arrays([lists], ["a"]),
        "map": pa.MapArray.from_arrays(offsets, keys, text),
        "key": pa.MapArray.from_arrays(offsets, text.fill_null("x"), keys),
    }


PACKED = pa.field(
    "c", pa.struct([("a", pa.string()), ("n", pa.int32())]), metadata={"lance-encoding:packed": "1"}
)
COLUMNS = {
    "plain": texts(),
    "large": texts(pa.large_string()),
    "few words": texts(words=5),
    "long": texts(length=400),
    "very long": texts(length=9000),
    "many": texts(count=5000),
    "dictionary": texts(words=5).dictionary_encode(),
    **nested(texts()),
}
CASES = [
    *(
        (version, name)
        for version in ("2.0", "2.1", "2.2")
        for name in COLUMNS
        if version == "2.2" or name not in ("map", "key")
    ),
    *(("0.1", name) for name in ("plain", "few words", "list", "struct")),
    ("2.1", "packed"),
    ("2.2", "packed"),
]  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def make(path, version, name):
    """A table with the column, and one where all is well before it; two fragments."""
    if name == "packed":
        numbers = pa.array(range(200), pa.int32())
        field, column = (
            PACKED,
            pa.StructArray.from_arrays([texts(), numbers], fields=list(PACKED.type)),
        )
    else:
        column = COLUMNS[name]
        field = pa.field("c", column.type)
    bad = pa.table([range(len(column)), column], schema=pa.schema([("id", pa.int64()), field]))
    if version == "0.1":  # of which our writer wants to know the smallest and the largest value
        lance.write_dataset(bad.slice(0, 100), path, data_storage_version="legacy")
        lance.write_dataset(bad.slice(100), path, mode="append")
        return
    write_table(path, bad.slice(0, 100), file_version=version)
    plan = plan_write(Table(path), bad.schema, WriteSettings(), existing=Snapshot.open(Table(path)))
    files = FragmentFiles(plan.request)
    for batch in bad.slice(100).combine_chunks().to_batches():
        files.write(pa.record_batch(batch.columns, schema=plan.request.schema.to_arrow()))
    files.close_file()
    commit_write(plan, files.fragments)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_invalid_utf8_is_not_written(path, version, name):
    column = COLUMNS[name]
    rows = pa.table({"id": range(len(column)), "c": column})
    if version == "2.0" and pa.types.is_map(column.type):
        pytest.skip("2.0 files have no maps")
    write_table(path, rows.slice(0, BAD_ROW), file_version=version)
    for start, count in ((BAD_ROW, 1), (0, len(column))):
        with pytest.raises(InvalidInputError, match="a string of column 'c' is not UTF-8"):
            write_table(path, rows.slice(start, count))
    write_table(path, rows.slice(BAD_ROW + 1))
    assert verify(Table(path), read_data=True).is_sound
    assert read_ours(path, system_columns=()).num_rows == len(column) - 1


def test_updates_refuse_invalid_utf8_and_may_replace_it(path):
    make(path, "2.1", "plain")
    bad = pa.array([b"ab\xffcd"]).view(pa.string())
    with pytest.raises(InvalidInputError, match=r"column 'c' is not UTF-8: b'ab\\xffcd'"):
        update_rows(path, "id = 3", ["c"], lambda batch: {"c": bad.take([0] * batch.num_rows)})
    with pytest.raises(InvalidInputError, match="column 'c' is not UTF-8"):
        set_to(path, f"id = {BAD_ROW}", id=7)  # the row would be rewritten
    set_to(path, f"id = {BAD_ROW}", id=7, c="good")
    assert verify(Table(path), read_data=True).is_sound
    assert read_ours(path, checks_text=True, system_columns=()).num_rows == 200
    compact(Table(path))
    assert verify(Table(path), read_data=True).is_sound


@pytest.mark.interop
@pytest.mark.parametrize(("version", "name"), CASES)
def test_verify_compaction_and_checked_scans_find_invalid_utf8(path, version, name):
    make(path, version, name)
    (found,) = verify(Table(path), read_data=True).findings
    assert found.kind == "unreadable_rows" and "fragment 1" in found.where
    assert f"'c': a text in row {BAD_ROW - 100} of fragment 1 is not UTF-8" in found.what
    assert verify(Table(path)).is_sound
    with pytest.raises(CorruptFileError, match="fragment 1 is not UTF-8") as refused:
        compact(Table(path))
    assert f"column 'c', {path}/data/" in refused.value.where
    with pytest.raises(CorruptFileError, match="fragment 1 is not UTF-8"):
        read_ours(path, checks_text=True, system_columns=())
    assert read_ours(path, system_columns=()).num_rows == len(COLUMNS.get(name, range(200)))
    with pytest.raises(CorruptFileError, match="fragment 1 is not UTF-8"):
        read_ours(path, checks_text=True, system_columns=(), keep_dictionaries=True)


def test_feeds_and_streams_check_strings_if_asked(path):
    make(path, "2.1", "plain")
    for mode in ("dropCarryovers", "none", "netChanges"):
        assert read_changes(path, 2, 2, mode).num_rows == 100
        with pytest.raises(CorruptFileError, match="row 50 of fragment 1 is not UTF-8"):
            read_changes(path, 2, 2, mode, checks_text=True)
    set_to(path, "id >= 140", c="good")
    with pytest.raises(CorruptFileError, match="is not UTF-8"):
        read_changes(path, 3, 3, "dropCarryovers", checks_text=True)
    settings = StreamSettings(starting=Bound(version=2), updates=Updates.SHOWN)
    stream = TableStream.of(Snapshot.open(Table(path)), settings)

    def rows(*, checks_text):
        def view(snapshot):
            fields = logical_schema(snapshot.schema).fields
            return BatchView(fields, fields, None, 1024, checks_text)

        tasks = stream.plan_batch(StreamOffset(1), StreamOffset(2), view)
        return sum(batch.num_rows for task in tasks for batch in task.run())

    assert rows(checks_text=False) == 100
    with pytest.raises(CorruptFileError, match="is not UTF-8"):
        rows(checks_text=True)


@pytest.mark.interop
def test_json_documents_are_checked_for_utf8(path):
    documents = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": "marker"}', None]))
    lance.write_dataset(pa.table({"j": documents}), path, data_storage_version="2.2")
    (file,) = Path(path, "data").iterdir()
    content = file.read_bytes()
    assert content.count(b"marker") == 1
    assert verify(Table(path), read_data=True).is_sound
    file.write_bytes(content.replace(b"marker", b"mar\xffer"))
    (found,) = verify(Table(path), read_data=True).findings
    assert found.kind == "unreadable_rows" and "'j'" in found.what
    with pytest.raises(CorruptFileError):
        read_ours(path, schema=logical_schema(Snapshot.open(Table(path)).schema), system_columns=())


def test_only_visible_strings_are_checked():
    bad = texts()
    assert holds_invalid_text(bad) and first_invalid_text(bad) == BAD_ROW
    assert not holds_invalid_text(bad.slice(BAD_ROW + 1)) and not holds_invalid_text(bad[:BAD_ROW])
    assert holds_invalid_text(bad.slice(BAD_ROW, 1))
    unused = pa.DictionaryArray.from_arrays(pa.array([0, None]), bad.slice(BAD_ROW - 1, 2))
    assert not holds_invalid_text(unused)
    for name, column in COLUMNS.items():
        assert first_invalid_text(column) == BAD_ROW, name
        assert not holds_invalid_text(column.slice(0, BAD_ROW)), name
    mask = pa.array([row == BAD_ROW for row in range(200)])
    below = pa.StructArray.from_arrays([bad], ["a"], mask=mask)
    assert not holds_invalid_text(below)
    assert not holds_invalid_text(pa.array([b"\xff"]))
    # Two values that are UTF-8 together, and neither is alone.
    assert holds_invalid_text(pa.array([b"a\xc3", b"\xb6b"]).view(pa.string()))
