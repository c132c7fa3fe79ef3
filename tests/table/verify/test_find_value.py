"""Files that hold a value are found, wherever it is; none is named once it is erased."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows, update_rows
from row_changes import upsert
from table_access import write_table

from pyspark_lance.errors import InvalidInputError, TableNotFoundError
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.verify.find_value import find_value
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def people(first=0, rows=100):
    numbers = list(range(first, first + rows))
    names = [f"person-{number}@example.org" for number in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "email": names})


def found(path, column, *values, kind=None):
    """Kind, how often, and versions of what is found."""
    result = find_value(Table(path), column, values)
    return sorted(
        (one.kind, one.numValues, one.versions)
        for one in result.files
        if kind is None or one.kind == kind
    )


def erase(path):
    compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
    return cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=1))


def test_deleted_row_is_found_until_it_is_erased(path):
    write_table(path, people())
    write_table(path, people(100))
    assert found(path, "id", 42) == [("data", 1, (1, 2))]
    delete_rows(path, "id = 42")
    assert found(path, "id", 42, kind="data") == [("data", 1, (1, 2, 3))]
    erase(path)
    assert found(path, "id", 42) == []
    assert found(path, "email", "person-42@example.org") == []
    assert found(path, "id", 43) == [("data", 1, (4,))]


def test_condition_of_delete_is_found_in_its_transaction(path):
    lance.write_dataset(people(), path)
    lance.dataset(path).delete("id = 42 OR email = 'person-7@example.org'")
    kinds = {kind for kind, *_ in found(path, "id", 42)}
    assert "transaction" in kinds or "manifest" in kinds
    kinds = {kind for kind, *_ in found(path, "email", "person-7@example.org")}
    assert "transaction" in kinds or "manifest" in kinds
    assert {kind for kind, *_ in found(path, "id", 4)} == {"data"}  # no word of the condition


def test_hashes_of_merged_keys_are_no_values(path):
    write_table(path, people())
    upsert(path, people(200, 1))
    for number in (1, 200):
        assert {kind for kind, _, _ in found(path, "id", number)} == {"data"}


def test_file_without_a_version_is_searched(path):
    write_table(path, people())
    (file,) = Path(path, "data").iterdir()
    shutil.copy(file, file.with_name("left.lance"))
    assert found(path, "id", 42) == [("data", 1, ()), ("data", 1, (1,))]


def test_values_of_dropped_and_renamed_columns_are_found(path):
    write_table(path, people())
    dataset = lance.dataset(path)
    dataset.alter_columns({"path": "email", "name": "mail"})
    both = [found(path, name, "person-42@example.org") for name in ("email", "mail")]
    assert both == [[("data", 1, (1, 2))]] * 2
    lance.dataset(path).drop_columns(["mail"])
    assert found(path, "email", "person-42@example.org") == [("data", 1, (1, 2, 3))]


def test_rewritten_column_is_found_in_its_old_file(path):
    write_table(path, people())
    dataset = lance.dataset(path)
    dataset.drop_columns(["email"])
    dataset.add_columns({"email": "'none'"})
    assert found(path, "email", "person-42@example.org") == [("data", 1, (1, 2, 3))]
    assert found(path, "email", "none") == [("data", 100, (3,))]


def test_updated_value_is_found_in_old_versions_only(path):
    write_table(path, people())
    update_rows(path, "id = 42", ["email"], lambda rows: {"email": ["x@example.org"]})
    assert found(path, "email", "person-42@example.org") == [("data", 1, (1, 2))]
    erase(path)
    assert found(path, "email", "person-42@example.org") == []
    assert found(path, "email", "x@example.org") == [("data", 1, (3,))]


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_only_indices_on_column_are_searched(path, kind):
    write_table(path, people(rows=43))
    lance.dataset(path).create_scalar_index("id", kind)
    lance.dataset(path).create_scalar_index("email", "BTREE")
    delete_rows(path, "id = 42")
    erase(path)
    counts = found(path, "id", 42)
    # A compaction leaves deleted rows out of segments that it remaps, which hold addresses.
    assert {one[0] for one in counts} == (set() if kind == "BTREE" else {"index"})
    assert all(one[2] for one in counts)
    assert found(path, "email", "person-42@example.org") == []
    lance.dataset(path).drop_index("id_idx")
    lance.dataset(path).drop_index("email_idx")
    cleanup_old_versions(Table(path), CleanupPolicy(retain_versions=1))
    assert found(path, "id", 42) == []


def test_indices_of_hashes_are_reported_as_unsearched(path):
    write_table(path, people())
    dataset = lance.dataset(path)
    dataset.create_scalar_index("email", "NGRAM")
    dataset.create_scalar_index("email", "INVERTED", name="words")
    dataset.create_scalar_index("id", "BLOOMFILTER")
    result = find_value(Table(path), "email", ["nobody@example.org"])
    assert not result.isFound
    reasons = " ".join(result.notSearched.values())
    assert "hashes or parts of values" in reasons
    assert "words of texts" in reasons
    assert not any("bloom" in name for name in result.notSearched)  # of another column


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_every_version_of_data_files_is_searched(path, version):
    lance.write_dataset(people(), path, data_storage_version=version)
    lance.dataset(path).delete("id = 42")
    assert found(path, "id", 42, kind="data") == [("data", 1, (1, 2))]
    assert found(path, "email", "person-42@example.org", kind="data") == [("data", 1, (1, 2))]
    (file,) = Path(path, "data").iterdir()
    shutil.copy(file, file.with_name("left.lance"))
    assert found(path, "id", 42, kind="data") == [("data", 1, ()), ("data", 1, (1, 2))]


def test_nested_values_are_found(path):
    rows = pa.table(
        {
            "place": [{"town": "Oslo", "zip": 150}, None, {"town": "Rome", "zip": 184}],
            "tags": [["a", "b"], None, ["b", "b"]],
            "pairs": pa.array([[("k", 1)], [], [("l", 2)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    lance.write_dataset(rows, path, data_storage_version="2.2")
    assert found(path, "place.town", "Rome") == [("data", 1, (1,))]
    assert found(path, "place", "Rome", 150) == [("data", 2, (1,))]
    assert found(path, "tags", "b") == [("data", 3, (1,))]
    assert found(path, "pairs", 2) == found(path, "pairs", "k") == [("data", 1, (1,))]
    with pytest.raises(InvalidInputError, match="tags"):
        find_value(Table(path), "tags.item", ["b"])


def test_text_is_cast_to_column_type(path):
    write_table(path, people())
    assert found(path, "id", "42") == [("data", 1, (1,))]


def test_branches_and_their_files_are_searched(path):
    write_table(path, people())
    branch = lance.dataset(path).create_branch("trial")
    lance.write_dataset(people(200), branch.uri, mode="append")
    result = find_value(Table(path), "id", [210])
    assert [(one.versions, one.branches) for one in result.files] == [((), ("trial",))]
    assert result.files[0].path.startswith("tree/trial/data/")
    (shared,) = find_value(Table(path, branch="trial"), "id", [42]).files
    assert (shared.versions, shared.branches) == ((1,), ("trial",))


def test_bytes_of_other_files_are_searched_across_parts(path):
    write_table(path, people())
    part = Path(path, "data", ".tmp_x.lance_12.part")
    part.write_bytes(bytes((8 << 20) - 3) + b"person-142@example.org")
    result = find_value(Table(path), "email", ["person-142@example.org"])
    assert [(one.path, one.kind, one.numValues) for one in result.files] == [
        ("data/.tmp_x.lance_12.part", "data", None)
    ]


def test_unreadable_file_is_reported(path):
    write_table(path, people())
    Path(path, "data", "cut.lance").write_bytes(b"person-142@example.org")
    result = find_value(Table(path), "email", ["person-142@example.org"])
    assert list(result.notSearched) == ["data/cut.lance"]
    assert [one.path for one in result.files] == ["data/cut.lance"]  # by its bytes


def test_missing_files_of_versions_are_reported(path):
    write_table(path, people())
    lance.dataset(path).create_scalar_index("id", "BTREE")
    lance.dataset(path).create_branch("trial")
    write_table(f"{path}/tree/trial", people(100))
    assert not find_value(Table(path), "id", [42]).notSearched
    gone = [*Path(path, "data").iterdir(), *Path(path, "tree/trial/data").iterdir()]
    for file in gone:
        file.unlink()
    (index,) = Path(path, "_indices").iterdir()
    shutil.rmtree(index)
    result = find_value(Table(path), "id", [42])
    wanted = {str(one.relative_to(path)) for one in [*gone, index]}
    assert (result.isFound, set(result.notSearched)) == (False, wanted)
    assert all("missing" in why for why in result.notSearched.values())
    # Of an index on another column there is nothing to search.
    assert str(index.relative_to(path)) not in find_value(Table(path), "email", ["x"]).notSearched


def test_files_outside_of_the_folder_are_reported(path, tmp_path):
    write_table(path, people())
    lance.dataset(path).shallow_clone(str(tmp_path / "clone"), 1)
    result = find_value(Table(str(tmp_path / "clone")), "id", [42])
    assert (result.isFound, len(result.notSearched)) == (False, 1)


def test_blobs_are_searched(path):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([[1, 2], [b"first picture", b"second"]], pa.schema([("id", pa.int64()), blob]))
    lance.write_dataset(rows, path)
    assert found(path, "b", b"first picture") == [("data", 1, (1,))]
    assert found(path, "b", b"first") == []


@pytest.mark.parametrize("size", [100, 100_000, 5 << 20])
def test_blobs_of_second_kind_are_searched(path, size):
    value = b"first" + bytes(size)
    rows = pa.table({"id": [1, 2], "b": lance.blob_array([value, b"second"])})
    lance.write_dataset(rows, path, data_storage_version="2.2")
    assert found(path, "b", value, kind="data") == [("data", 1, (1,))]
    assert all(versions == (1,) for *_, versions in found(path, "b", value))
    assert found(path, "b", b"third") == []


def test_invalid_requests_are_refused(path, tmp_path):
    write_table(path, people())
    for column, values in (("e-mail", ["x"]), ("id", ["forty"]), ("id", [None]), ("id", [])):
        with pytest.raises(InvalidInputError):
            find_value(Table(path), column, values)
    with pytest.raises(TableNotFoundError):
        find_value(Table(str(tmp_path / "none")), "id", [1])
