"""Numbers that come free again, answers that get lost, tables that are replaced during a commit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from commit_tables import (
    SCHEMA,
    append,
    commit,
    create_table,
    delete_rows,
    environment,
    latest,
    names,
    new_fragment,
    transaction,
    version,
)
from faulty_store import Fault, FaultyStore

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.errors import CommitConflictError, RetryableCommitError, StorageError
from pyspark_lance.format.operation import (
    Append,
    Delete,
    Overwrite,
    ReserveFragments,
    Rewrite,
    RewriteGroup,
)
from pyspark_lance.format.wire import length_delimited
from pyspark_lance.metafile.manifest_file import encode_manifest, list_versions
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.memory_store import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def faulty(store):
    create_table(store, 4)
    return FaultyStore(store)


def rows(store):
    """Physical rows of all fragments, in order."""
    return [fragment.physical_rows for fragment in latest(store).manifest.fragments]


def versions(store):
    return [one.version for one in list_versions(store)]


def clean_up(store, *numbers):
    for number in numbers:
        store.delete(manifest_path(number, NamingScheme.V2))


def go_on(store, *cleaned, to=3):
    """Other writers append a row for each version up to ``to``, and clean some versions up."""

    def action(path):
        for number in range(latest(store).manifest.version, to):
            append(store, number, 1)
        clean_up(store, *cleaned)

    return action


def nothing(path):
    pass


# A number that is free again ----------------------------------------------------------------


@pytest.mark.parametrize(("cleaned", "to"), [((2,), 3), ((1, 2), 3), ((1, 2, 3), 4), ((2, 3), 4)])
def test_put_below_newest_version_is_rolled_back(store, faulty, cleaned, to):
    faulty.before("put_if_absent", go_on(store, *cleaned, to=to))
    with pytest.raises(RetryableCommitError):
        append(faulty, 1, 7, environment=environment())
    assert 2 not in versions(store)  # ours is gone again
    assert rows(store) == [4] + [1] * (to - 1)
    assert append(store, to, 7).version == to + 1


def test_put_below_newest_version_retries_with_readable_history(store, faulty):
    """Version 3 is cleaned up though it is not the oldest, as when 1 and 2 have tags."""
    append(store, 1, 1)
    faulty.before("put_if_absent", go_on(store, 3, to=4))
    with pytest.raises(RetryableCommitError, match="version 3"):
        append(faulty, 2, 7, environment=environment())
    assert versions(store) == [1, 2, 4]


def test_delete_below_newest_version_is_rolled_back(store, faulty):
    operation, affected = delete_rows(store, latest(store), {0: [1]})
    faulty.before("put_if_absent", go_on(store, 1, 2))
    with pytest.raises(RetryableCommitError):
        commit(faulty, transaction(operation, 1), affected_rows=affected)
    assert versions(store) == [3]
    assert latest(store).manifest.fragments[0].deletion_file is None


def follow_with(operation):
    return lambda store: commit(store, transaction(operation(store), 2))


def compaction(old):
    moved = replace(
        new_fragment(old.physical_rows, id=9),
        row_ids=old.row_ids,
        created_at=old.created_at,
        last_updated_at=old.last_updated_at,
    )
    return Rewrite((RewriteGroup((old,), (moved,)),))


FOLLOWERS = {
    "append": lambda store: append(store, 2, 1),
    "overwrite": follow_with(lambda store: Overwrite((new_fragment(1),), SCHEMA)),
    "reserve": follow_with(lambda store: ReserveFragments(2)),
    "delete all": follow_with(
        lambda store: Delete((), tuple(f.id for f in latest(store).manifest.fragments))
    ),
    "compact": follow_with(lambda store: compaction(latest(store).manifest.fragments[-1])),
}


@pytest.mark.parametrize(
    ("ours", "follower"),
    [("append", one) for one in FOLLOWERS]
    + [("delete", one) for one in FOLLOWERS if one != "compact"],
)
def test_immediately_followed_commit_succeeds(store, faulty, ours, follower):
    faulty.before("list", nothing)  # the look before
    faulty.before("list", lambda path: FOLLOWERS[follower](store))
    if ours == "append":
        result = append(faulty, 1, 7, environment=environment())
    else:
        result = commit(faulty, transaction(Delete((), (0,)), 1), environment=environment())
    assert result.version == 2
    assert versions(store) == [1, 2, 3]
    assert latest(store).manifest.version == 3


def test_commit_lists_versions_once_after_put(store, faulty):
    append(faulty, 1, 1)
    calls = [name for name, _ in faulty.calls]
    # The transaction file is written in parallel.
    assert sorted(calls[:3]) == ["get_tail", "list", "put"]
    assert calls[3:] == ["put_if_absent", "list"]


# Doubt --------------------------------------------------------------------------------------


def lose_answer(store, faulty, *actions):
    """The put succeeds without a response, and other writers commit before the writer checks."""
    faulty.plan("put_if_absent", Fault.LOST_ANSWER)
    faulty.before("get_tail", nothing)  # of the latest version, before the put

    def others(path):
        for action in actions:
            action(store)

    faulty.before("get_tail", others)


def test_cleaned_up_append_is_found_in_next_version(store, faulty):
    lose_answer(store, faulty, lambda s: append(s, 2, 1), lambda s: clean_up(s, 1, 2))
    result = append(faulty, 1, 7, environment=environment())
    assert result.version == 2
    assert versions(store) == [3]
    assert rows(store) == [4, 7, 1]
    assert result.manifest.transaction_file in names(store, "_transactions")


def test_cleaned_up_delete_is_found_in_next_version(store, faulty):
    create = latest(store)
    operation, affected = delete_rows(store, create, {0: [1]})
    lose_answer(store, faulty, lambda s: append(s, 2, 1), lambda s: clean_up(s, 1, 2))
    result = commit(
        faulty, transaction(operation, 1), affected_rows=affected, environment=environment()
    )
    assert result.version == 2
    assert latest(store).manifest.fragments[0].num_deleted_rows == 1
    assert len(names(store, "_deletions")) == 1


def test_cleaned_up_delete_is_found_in_next_transaction(store, faulty):
    lose_answer(store, faulty, lambda s: append(s, 2, 1), lambda s: clean_up(s, 1, 2))
    result = commit(faulty, transaction(Delete((), (0,)), 1), environment=environment())
    assert result.version == 2
    assert rows(store) == [1]


def test_compaction_proves_cleaned_up_append(store, faulty):
    lose_answer(store, faulty, FOLLOWERS["compact"], lambda s: clean_up(s, 1, 2))
    assert append(faulty, 1, 7, environment=environment()).version == 2
    assert rows(store) == [4, 7]


def test_cleaned_up_first_version_is_not_created_twice():
    store = MemoryStore()
    faulty = FaultyStore(store)
    faulty.plan("put_if_absent", Fault.LOST_ANSWER)
    faulty.before("get_tail", lambda path: (append(store, 1, 1), clean_up(store, 1)))
    assert create_table(faulty, 3).version == 1
    assert rows(store) == [3, 1]


def test_unprovable_outcome_keeps_files_and_raises(store, faulty):
    """Compacted, followed and cleaned up: no version identifies the writer of these rows."""
    lose_answer(
        store,
        faulty,
        FOLLOWERS["compact"],
        lambda s: append(s, 3, 1),
        lambda s: clean_up(s, 1, 2, 3),
    )
    with pytest.raises(StorageError, match="may exist"):
        append(faulty, 1, 7, retries=2, environment=environment())
    assert rows(store) == [4, 7, 1]
    assert len(names(store, "_transactions")) == 4


def test_lost_put_is_recognised_from_next_transaction(store, faulty):
    faulty.plan("put_if_absent", Fault.FAIL)
    faulty.before("get_tail", nothing)
    faulty.before("get_tail", go_on(store, 2))
    with pytest.raises(RetryableCommitError, match="version 2"):
        append(faulty, 1, 7, environment=environment())
    assert rows(store) == [4, 1, 1]
    assert len(names(store, "_transactions")) == 3


def test_errors_during_unknown_outcome_keep_files(store, faulty):
    faulty.plan("put_if_absent", Fault.LOST_ANSWER)
    faulty.plan("get_tail", Fault.PASS, Fault.FAIL, Fault.TORN, Fault.TORN)
    with pytest.raises(StorageError, match="may exist"):
        append(faulty, 1, 7, retries=1, environment=environment())
    assert rows(store) == [4, 7]
    assert latest(store).manifest.transaction_file in names(store, "_transactions")


def test_version_removed_between_list_and_read_is_committed(store, faulty):
    """Other writers follow and clean up when it was listed as the newest one."""
    faulty.plan("put_if_absent", Fault.LOST_ANSWER)
    faulty.plan("get_tail", Fault.PASS, Fault.FAIL)  # the latest before the put; then its owner
    faulty.before("get_tail", nothing)
    faulty.before("get_tail", nothing)
    faulty.before("get_tail", lambda path: (append(store, 2, 1), clean_up(store, 1, 2)))
    assert append(faulty, 1, 7, environment=environment()).version == 2
    assert rows(store) == [4, 7, 1]


def with_real_files(store):
    """All data files of the newest version are there."""
    for fragment in latest(store).manifest.fragments:
        store.put(f"data/{fragment.files[0].path}", b"rows")


def test_files_removed_by_later_versions_are_not_required(store, faulty):
    """The version before ours is cleaned up, and while we look for its files the next two come."""
    with_real_files(store)
    (old,) = latest(store).manifest.fragments

    def follow(path):
        commit(store, transaction(Delete((), (old.id,)), 2))
        append(store, 3, 1)
        clean_up(store, 2, 3)
        store.delete(path)

    faulty.before("list", nothing)
    faulty.before("list", lambda path: clean_up(store, 1))
    faulty.before("exists", follow)
    assert append(faulty, 1, 7, environment=environment()).version == 2
    assert versions(store) == [4]
    assert rows(store) == [7, 1]


def test_commit_followed_during_rollback_succeeds(store, faulty):
    """The version before ours is cleaned up, its files are gone, and another writer appends."""
    faulty.before("list", nothing)
    faulty.before("list", lambda path: clean_up(store, 1))
    faulty.before("get_tail", nothing)  # of the latest version, before the put
    faulty.before("get_tail", lambda path: append(store, 2, 1))
    assert append(faulty, 1, 7, environment=environment()).version == 2
    assert rows(store) == [4, 7, 1]


# A table in the place of another ------------------------------------------------------------


def drop(store):
    for info in list(store.list("")):
        store.delete(info.path)


def recreate(store, to=1):
    drop(store)
    create_table(store, 5)
    go_on(store, to=to)("")


@pytest.mark.parametrize("to", [1, 2, 3, 5])
def test_commit_to_replaced_table_is_refused(store, faulty, to):
    append(store, 1, 1)
    base = BaseVersion.of(latest(store).manifest)
    recreate(store, to)
    before = names(store, "")
    with pytest.raises(CommitConflictError, match="replaced"):
        commit(faulty, transaction(Append((new_fragment(7),)), 2), base=base)
    assert names(store, "") == before
    assert 7 not in rows(store)


@pytest.mark.parametrize("to", [1, 2, 3, 4])
def test_table_replaced_before_put_is_unchanged(store, faulty, to):
    append(store, 1, 1)
    base = BaseVersion.of(latest(store).manifest)
    faulty.before("put_if_absent", lambda path: recreate(store, to))
    with pytest.raises(CommitConflictError, match="replaced"):
        commit(
            faulty, transaction(Append((new_fragment(7),)), 2), base=base, environment=environment()
        )
    assert versions(store) == list(range(1, to + 1))
    assert rows(store) == [5] + [1] * (to - 1)


def test_table_dropped_before_put_is_not_recreated(store, faulty):
    file = latest(store)
    fragments = tuple(
        replace(fragment, files=(replace(fragment.files[0], path="there.lance"),))
        for fragment in file.manifest.fragments
    )
    store.put("data/there.lance", b"rows")
    commit(store, transaction(Overwrite(fragments, SCHEMA), 1))
    faulty.before("put_if_absent", lambda path: drop(store))
    with pytest.raises(CommitConflictError, match="replaced"):
        append(faulty, 2, 7, environment=environment())
    assert versions(store) == []


def test_unknown_put_is_not_repeated_into_replaced_table(store, faulty):
    append(store, 1, 1)
    faulty.plan("put_if_absent", Fault.FAIL)
    faulty.before("get_tail", nothing)
    faulty.before("get_tail", lambda path: recreate(store))
    with pytest.raises(CommitConflictError, match="replaced"):
        append(faulty, 2, 7, environment=environment())
    assert rows(store) == [5]


def test_cleaned_up_base_version_is_retryable(store, faulty):
    base = BaseVersion.of(version(store, 1).manifest)
    go_on(store, 1)("")
    with pytest.raises(RetryableCommitError, match="cleaned up"):
        commit(faulty, transaction(Append((new_fragment(7),)), 1), base=base)


# Commits by newer software ------------------------------------------------------------------


@pytest.mark.parametrize("ours", ["append", "delete"])
def test_transaction_with_unknown_fields_blocks_commit(store, faulty, ours):
    base = latest(store)
    append(store, 1, 2)
    file = latest(store)
    # The copy in the manifest comes before the file, which has more to say.
    store.put(file.location.path, encode_manifest(file.manifest, file.indices, None))
    path = f"_transactions/{file.manifest.transaction_file}"
    known = bytes(store.get(path))
    operation = Append((new_fragment(7),))
    if ours == "delete":
        operation, _ = delete_rows(store, base, {0: [1]})
    before = rows(store)
    store.put(path, known + length_delimited(900, b"what it means is for others to know"))
    with pytest.raises(RetryableCommitError, match="newer software"):
        commit(store, transaction(operation, 1))
    assert rows(store) == before
    store.put(path, known)
    commit(store, transaction(operation, 1))
