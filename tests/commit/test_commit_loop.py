"""The commit loop on real stores, and on stores that lose responses, fail, or run other writers."""

from __future__ import annotations

import copy
import logging
import random
import threading
from dataclasses import replace

import numpy as np
import pytest
from commit_tables import (
    SCHEMA,
    BeforePut,
    FakeTime,
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

from pyspark_lance.commit.application_versions import CONFIG_PREFIX, ApplicationVersion
from pyspark_lance.commit.apply_operation import CreateOptions
from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    RetryableCommitError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import (
    Append,
    CreateIndex,
    Merge,
    Overwrite,
    Project,
    Restore,
    UnknownOperation,
    Update,
    UpdateConfig,
    UpdateMap,
)
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.metafile.manifest_file import (
    MAX_INLINE_TRANSACTION,
    encode_manifest,
    latest_version,
    list_versions,
    load_transaction,
)
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.proto import table_pb2
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.object_store import as_byte_view


@pytest.fixture
def store():
    return MemoryStore()


def row_ids(manifest):
    """All row ids of the table, fragment by fragment."""
    return np.concatenate(
        [RowIdSequence.from_bytes(f.row_ids).to_array() for f in manifest.fragments]
    )


# Versions and files ------------------------------------------------------------------------


def test_create_writes_version_one_and_transaction_file(store):
    result = create_table(store, 3, 2)
    file = latest(store)
    assert result.version == file.manifest.version == 1
    name = file.manifest.transaction_file
    assert names(store, "_transactions") == [name]
    assert bytes(store.get(f"_transactions/{name}")) == file.transaction_bytes
    assert row_ids(file.manifest).tolist() == [0, 1, 2, 3, 4]
    assert file.manifest.writer_version.library == "pyspark-lance"


def test_commit_result_equals_stored_manifest(store):
    create_table(store, 3)
    result = append(store, 1, 2)
    file = latest(store)
    assert file.location == result.location
    sections = {"index_section": None, "transaction_section": None}
    assert replace(file.manifest, **sections) == replace(result.manifest, **sections)
    assert file.transaction() == result.transaction


def test_version_hint_is_written_only_for_unordered_stores(store, tmp_path):
    unordered = MemoryStore()
    unordered.lists_in_order = False
    for one in (store, LocalStore(str(tmp_path)), unordered):
        create_table(one, 1)
        append(one, 1, 1)
        assert len(names(one, "_versions")) == (3 if one is unordered else 2)
    assert bytes(unordered.get("_versions/latest_version_hint.json")) == b'{"version":2}'


def test_outdated_version_cache_costs_no_retry(store):
    store.cache_key = "bucket", "user"
    create_table(store, 1)
    assert latest_version(store).version == 1
    elsewhere = copy.copy(store)
    elsewhere.cache_key = None
    append(elsewhere, 1, 1)
    assert append(store, 1, 1, retries=0).version == 3
    assert len(names(store, "_transactions")) == 3


def test_commits_during_catch_up_are_read_too(store):
    create_table(store, 1)
    for number in range(1, 4):
        append(store, number, 1)
    slow = FaultyStore(store)
    # While versions of other writers are read: once two more, then one more.
    slow.before("get_tail", lambda path: [append(store, 4, 1), append(store, 5, 1)])
    slow.before("list", lambda path: None)
    slow.before("list", lambda path: append(store, 6, 1))
    assert append(slow, 1, 1, retries=0).version == 8


def test_backoff_excludes_catch_up_time(store):
    """A backoff that includes the catch-up time is too long, so the writer falls behind again."""
    create_table(store, 1)
    for number in range(1, 4):
        append(store, number, 1)
    time, slow, waits = FakeTime(step_s=0), FaultyStore(store), []
    slow.before("get_tail", lambda path: time.sleep(100))
    slow.before("put_if_absent", lambda path: [time.sleep(0.5), append(store, 4, 1)])
    rng = random.Random()
    rng.uniform = lambda least, most: waits.append(most) or 0.0
    surroundings = environment(time, rng=rng)
    assert append(slow, 1, 1, environment=surroundings, timeout_s=1000).version == 6
    assert waits == [pytest.approx(4 * 1.1 * 0.5)]


def test_second_create_is_refused_without_leftovers(store):
    create_table(store, 1)
    before = names(store, "")
    with pytest.raises(TableAlreadyExistsError):
        create_table(store, 1)
    assert names(store, "") == before


def test_commit_without_table_is_refused(store):
    with pytest.raises(TableNotFoundError):
        append(store, 0, 1)
    assert names(store, "") == []


def test_commit_keeps_naming_scheme(store):
    create_table(store, 1)
    path = manifest_path(1, NamingScheme.V2)
    store.put(manifest_path(1, NamingScheme.V1), store.get(path))
    store.delete(path)
    assert append(store, 1, 1).location.path == "_versions/2.manifest"


def test_stale_append_commits_and_keeps_read_version(store):
    create_table(store, 2)
    for expected in (2, 3, 4):
        result = append(store, 1, 3)
        assert result.version == expected
        assert result.transaction.read_version == 1
    assert row_ids(latest(store).manifest).tolist() == list(range(11))


def test_commits_keep_branch_and_base_paths(store):
    create_table(store, 1)
    file = latest(store)
    bases = (BasePath(0, None, True, "/elsewhere"),)
    changed = replace(file.manifest, branch="dev", base_paths=bases, reader_flags=18)
    changed = replace(changed, writer_flags=18)
    store.put(file.location.path, encode_manifest(changed, (), file.transaction()))
    manifest = append(store, 1, 1).manifest
    assert (manifest.branch, manifest.base_paths) == ("dev", bases)
    assert manifest.reader_flags == 18


def test_timestamps_never_decrease(store):
    create_table(store, 1)
    now = latest(store).manifest.timestamp_ns
    slow = environment(now_ns=lambda: now - 10**12)
    assert append(store, 1, 1, environment=slow).manifest.timestamp_ns == now + 1


# Conflicts ---------------------------------------------------------------------------------


def test_conflict_leaves_no_files(store):
    create_table(store, 2)
    append(store, 1, 1)
    before = names(store, "")
    file = version(store, 1)
    merge = Merge(file.manifest.fragments, file.manifest.schema)
    with pytest.raises(RetryableCommitError, match="version 2"):
        commit(store, transaction(merge, 1))
    assert names(store, "") == before


def test_final_conflict_is_not_retryable(store):
    create_table(store, 2)
    file = latest(store)
    commit(store, transaction(Overwrite((new_fragment(1),), file.manifest.schema), 1))
    with pytest.raises(CommitConflictError) as failure:
        append(store, 1, 1)
    assert not isinstance(failure.value, RetryableCommitError)


def test_conflict_check_covers_intermediate_versions(store):
    create_table(store, 2)
    commit(store, transaction(Overwrite((new_fragment(1),), SCHEMA), 1))
    append(store, 2, 1)
    with pytest.raises(CommitConflictError, match="version 2"):
        append(store, 1, 1)


def test_unknown_intermediate_operation_error_names_field(store):
    create_table(store, 1)
    append(store, 1, 1)
    path = latest(store).location.path
    # Field 116 in place of field 100, the Append.
    content = bytes(store.get(path))
    name = latest(store).manifest.transaction_file
    data = bytes(store.get(f"_transactions/{name}"))
    unknown = data.replace(b"\xa2\x06", b"\xa2\x07", 1)
    store.put(path, content.replace(data, unknown))
    with pytest.raises(CommitConflictError, match="transaction field 116"):
        append(store, 1, 1)
    assert append(store, 2, 1).version == 3


def test_commit_from_future_version_is_refused(store):
    create_table(store, 1)
    with pytest.raises(CommitConflictError, match="the newest is 1"):
        append(store, 7, 1)


def test_missing_intermediate_transaction_is_retryable(store):
    create_table(store, 1)
    append(store, 1, 1)
    append(store, 2, 1)
    file = version(store, 2)
    store.put(file.location.path, encode_manifest(file.manifest, (), None))
    assert append(store, 1, 1).version == 4  # its own file says what version 2 did
    store.delete(f"_transactions/{file.manifest.transaction_file}")
    with pytest.raises(RetryableCommitError, match="the transaction of version 2"):
        append(store, 1, 1)
    assert append(store, 2, 1).version == 5


def test_missing_intermediate_version_is_retryable(store):
    create_table(store, 1)
    append(store, 1, 1)
    append(store, 2, 1)
    store.delete(manifest_path(2, NamingScheme.V2))
    with pytest.raises(RetryableCommitError, match="version 2 cannot be read"):
        append(store, 1, 1)


@pytest.mark.parametrize("flag", [64, 512, 4096, 1 << 20])
def test_table_with_unsupported_writer_flag_is_refused(store, flag):
    create_table(store, 1)
    file = latest(store)
    reader, writer = file.manifest.reader_flags, file.manifest.writer_flags | flag
    manifest = replace(file.manifest, reader_flags=reader, writer_flags=writer)
    store.put(file.location.path, encode_manifest(manifest, (), file.transaction()))
    before = names(store, "")
    with pytest.raises(UnsupportedFeatureError, match=str(flag)):
        append(store, 1, 1)
    assert names(store, "") == before


def test_append_conflicts_with_reused_field_id(store):
    create_table(store, 2)
    only_id = LanceSchema(SCHEMA.fields[:1])
    commit(store, transaction(Project(only_id, True), 1))
    assert append(store, 1, 1).version == 3  # the dropped column is just not seen
    other = LanceSchema((*only_id.fields, Field(1, "other", "string")))
    fragments = latest(store).manifest.fragments
    commit(store, transaction(Merge(fragments, other, True), 3))
    with pytest.raises(RetryableCommitError, match="field id 1"):
        append(store, 1, 1)
    assert append(store, 4, 1).version == 5


def test_rebased_delete_keeps_dropped_column_file_removed(store):
    create_table(store, 4)
    split = tuple(
        replace(
            fragment,
            files=(new_fragment(4, fields=(0,)).files[0], *new_fragment(4, fields=(1,)).files),
        )
        for fragment in latest(store).manifest.fragments
    )
    commit(store, transaction(Merge(split, SCHEMA), 1))
    operation, affected = delete_rows(store, latest(store), {0: [1]})
    commit(store, transaction(Project(LanceSchema(SCHEMA.fields[:1])), 2))
    manifest = commit(store, transaction(operation, 2), affected_rows=affected).manifest
    assert manifest.version == 4
    assert manifest.fragments[0].files == split[0].files[:1]
    assert manifest.fragments[0].num_deleted_rows == 1


# Rows of one fragment ----------------------------------------------------------------------


def deleted_offsets(store, fragment_id):
    fragment = latest(store).manifest.fragment(fragment_id)
    file = fragment.deletion_file
    vector = read_deletion_file(store, fragment_id, file, fragment.physical_rows)
    assert len(vector) == file.num_deleted_rows
    return vector.to_array().tolist()


def test_deletes_of_different_rows_both_commit(store):
    create_table(store, 10, 10)
    planned = latest(store)
    first, rows_of_first = delete_rows(store, planned, {0: [1, 2], 1: [0]})
    second, rows_of_second = delete_rows(store, planned, {0: [5]})
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    result = commit(store, transaction(second, 1), affected_rows=rows_of_second)
    assert result.version == 3
    assert deleted_offsets(store, 0) == [1, 2, 5]
    assert deleted_offsets(store, 1) == [0]
    # The transaction states what is in the manifest, and the version it was moved onto.
    assert result.transaction.read_version == 2
    assert result.transaction.operation.updated_fragments == (result.manifest.fragment(0),)
    assert result.manifest.fragment(0).deletion_file.read_version == 2


def test_deletes_of_same_row_conflict(store):
    create_table(store, 10)
    planned = latest(store)
    first, rows_of_first = delete_rows(store, planned, {0: [1, 2]})
    second, rows_of_second = delete_rows(store, planned, {0: [2, 3]})
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    before = names(store, "")
    with pytest.raises(RetryableCommitError, match="same rows of fragment 0"):
        commit(store, transaction(second, 1), affected_rows=rows_of_second)
    assert names(store, "") == before


def test_deletes_without_affected_rows_conflict_on_common_fragment(store):
    create_table(store, 10)
    planned = latest(store)
    first, _ = delete_rows(store, planned, {0: [1]})
    second, _ = delete_rows(store, planned, {0: [3]})
    commit(store, transaction(first, 1))
    with pytest.raises(RetryableCommitError):
        commit(store, transaction(second, 1))


def test_combined_deletes_remove_empty_fragment(store):
    create_table(store, 3, 3)
    planned = latest(store)
    first, rows_of_first = delete_rows(store, planned, {0: [0, 1]})
    second, rows_of_second = delete_rows(store, planned, {0: [2]})
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    result = commit(store, transaction(second, 1), affected_rows=rows_of_second)
    assert [fragment.id for fragment in result.manifest.fragments] == [1]
    assert result.manifest.reader_flags == 2
    assert result.transaction.operation.deleted_fragment_ids == (0,)


def test_rebased_delete_always_checks_from_read_version(store):
    """An overwrite that slips in during the race is not overlooked."""
    faulty = FaultyStore(store)
    create_table(store, 10)
    planned = latest(store)
    first, rows_of_first = delete_rows(store, planned, {0: [1]})
    second, rows_of_second = delete_rows(store, planned, {0: [5]})
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    third, rows_of_third = delete_rows(store, planned, {0: [7]})
    faulty.before(
        "put_if_absent",
        lambda path: commit(store, transaction(third, 1), affected_rows=rows_of_third),
    )
    result = commit(
        faulty, transaction(second, 1), affected_rows=rows_of_second, environment=environment()
    )
    assert result.version == 4
    assert deleted_offsets(store, 0) == [1, 5, 7]
    # What the lost attempt wrote is gone: each fragment state has one file, each version one txn.
    referenced = {version(store, number).manifest.transaction_file for number in range(1, 5)}
    assert set(names(store, "_transactions")) == referenced
    written_by_callers = 3
    rebased = {version(store, number).manifest.fragment(0).deletion_file.id for number in (3, 4)}
    assert len(names(store, "_deletions")) == written_by_callers + len(rebased)


def test_update_rebases_onto_delete(store):
    create_table(store, 4)
    planned = latest(store)
    first, rows_of_first = delete_rows(store, planned, {0: [0]})
    second, rows_of_second = delete_rows(store, planned, {0: [2]})
    update = Update(
        updated_fragments=second.updated_fragments, new_fragments=(new_fragment(1, row_ids=[2]),)
    )
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    result = commit(store, transaction(update, 1), affected_rows=rows_of_second)
    assert deleted_offsets(store, 0) == [0, 2]
    assert row_ids(result.manifest).tolist() == [0, 1, 2, 3, 2]
    assert result.manifest.next_row_id == 4


def test_concurrent_deletes_in_one_fragment_all_commit(store):
    create_table(store, 64)
    planned = latest(store)
    work = [delete_rows(store, planned, {0: [offset]}) for offset in range(0, 64, 4)]

    def run(operation, affected):
        commit(store, transaction(operation, 1), affected_rows=affected, retries=200)

    threads = [threading.Thread(target=run, args=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert deleted_offsets(store, 0) == list(range(0, 64, 4))


# Answers that get lost ---------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.REPEATED])
@pytest.mark.parametrize("creating", [True, False])
def test_put_with_lost_response_is_recognised(store, fault, creating):
    faulty = FaultyStore(store)
    if not creating:
        create_table(store, 2)
    faulty.plan("put_if_absent", fault)
    result = create_table(faulty, 3) if creating else append(faulty, 1, 3)
    assert faulty.pending == 0
    assert latest(store).manifest.version == result.version == (1 if creating else 2)
    assert latest(store).transaction().uuid == result.transaction.uuid
    assert result.manifest.transaction_file in names(store, "_transactions")


def test_lost_response_is_recognised_after_later_commits(store):
    """The version in doubt cannot be read at first, and is not the latest any more."""
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.plan("put_if_absent", Fault.LOST_ANSWER)
    faulty.before("get_tail", lambda path: None)  # of the latest version, before the put
    faulty.plan("get_tail", Fault.PASS, Fault.FAIL)
    faulty.before("get_tail", lambda path: append(store, 2, 5))
    result = append(faulty, 1, 3, environment=environment())
    assert result.version == 2
    assert latest(store).manifest.version == 3
    assert row_ids(latest(store).manifest).tolist() == list(range(9))


LONG = {"note": "x" * MAX_INLINE_TRANSACTION}


def test_long_transaction_is_only_in_its_file(store):
    create_table(store, 1)
    long = commit(store, transaction(Append((new_fragment(2),)), 1, **LONG))
    file = latest(store)
    assert file.transaction() is None
    assert load_transaction(store, file) == long.transaction
    assert long.location.size < MAX_INLINE_TRANSACTION
    append(store, 1, 3)  # checks it for conflicts
    assert latest(store).transaction() is not None


def test_lost_response_of_long_transaction_is_recognised(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.plan("put_if_absent", Fault.LOST_ANSWER)
    work = transaction(Append((new_fragment(2),)), 1, **LONG)
    assert commit(faulty, work, environment=environment()).version == 2
    assert faulty.pending == 0
    assert load_transaction(store, latest(store)) == work


def test_repeated_commit_returns_committed_long_transaction(store):
    create_table(store, 4)
    base = latest(store)
    first, rows_of_first = delete_rows(store, base, {0: [0]})
    second, rows_of_second = delete_rows(store, base, {0: [2]})
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    work = transaction(second, 1, **LONG)
    committed = commit(store, work, affected_rows=rows_of_second)
    assert committed.transaction.read_version == 2  # rebased
    again = commit(store, work, affected_rows=rows_of_second)
    assert again.version == committed.version
    assert again.transaction == committed.transaction


def test_failed_put_is_retried(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.plan("put_if_absent", Fault.FAIL, Fault.FAIL)
    assert append(faulty, 1, 1, environment=environment()).version == 2
    assert len(list_versions(store)) == 2


def test_persistent_put_failure_keeps_files(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.plan("put_if_absent", *[Fault.FAIL] * 4)
    with pytest.raises(StorageError, match="may exist or appear yet") as failure:
        append(faulty, 1, 1, retries=3, environment=environment())
    assert isinstance(failure.value.__cause__, StorageError)
    assert len(names(store, "_transactions")) == 2


class LateStore(FaultyStore):
    """The first put is answered with an error, and arrives when its sender looks again."""

    late: tuple[str, bytes] | None = None
    arrived = False

    def put_if_absent(self, path, data):
        if self.late is None:
            self.late = (path, bytes(as_byte_view(data)))
            raise StorageError("timeout")
        if not self.arrived:
            self.arrived = True
            assert self.inner.put_if_absent(*self.late)
        return self.inner.put_if_absent(path, data)


def test_delayed_put_commits_once(store):
    create_table(store, 10)
    planned = latest(store)
    first, rows_of_first = delete_rows(store, planned, {0: [1]})
    commit(store, transaction(first, 1), affected_rows=rows_of_first)
    second, rows_of_second = delete_rows(store, planned, {0: [5]})
    result = commit(
        LateStore(store),
        transaction(second, 1),
        affected_rows=rows_of_second,
        environment=environment(),
    )
    assert result.version == latest(store).manifest.version == 3
    assert deleted_offsets(store, 0) == [1, 5]
    assert latest(store).transaction() == result.transaction


def test_put_below_newer_versions_does_not_count(store):
    """Another writer made the same change, and cleaned up its version, before the put arrived."""
    create_table(store, 1)

    def set_owner(value, read_version, **arguments):
        updates = UpdateMap((("owner", value),))
        work = transaction(UpdateConfig(config_updates=updates), read_version)
        return commit(store, work, **arguments)

    def change_and_clean_up():
        handler.action = lambda: None
        set_owner("me", 1)
        append(store, 2, 1)
        set_owner("me", 3)
        for number in (2, 3):
            store.delete(manifest_path(number, NamingScheme.V2))

    handler = BeforePut(change_and_clean_up)
    with pytest.raises(RetryableCommitError, match="version 2 cannot be read"):
        set_owner("me", 1, environment=environment(handler=handler))
    assert [location.version for location in list_versions(store)] == [1, 4]


def test_failure_before_put_leaves_no_files(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    before = names(store, "")
    faulty.plan("put", Fault.FAIL)
    with pytest.raises(StorageError):
        append(faulty, 1, 1)
    assert names(store, "") == before
    assert append(faulty, 1, 1).version == 2


def test_failed_hint_write_does_not_fail_commit(tmp_path):
    faulty = FaultyStore(LocalStore(str(tmp_path)))
    create_table(faulty, 1)
    faulty.plan("put", Fault.PASS, Fault.FAIL)  # the transaction, the hint
    assert append(faulty, 1, 1).version == 2
    assert faulty.pending == 0


def test_interrupt_during_put_keeps_transaction_file(store):
    create_table(store, 1)

    class Interrupted(FaultyStore):
        def put_if_absent(self, path, data):
            self.inner.put_if_absent(path, data)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append(Interrupted(store), 1, 1)
    assert latest(store).manifest.transaction_file in names(store, "_transactions")


# Races -------------------------------------------------------------------------------------


def test_retries_are_bounded_and_leave_no_files(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.before("put_if_absent", lambda path: append(store, 1, 1), times=4)
    fake = FakeTime()
    with pytest.raises(RetryableCommitError, match="committed first 4 times"):
        append(faulty, 1, 1, retries=3, environment=environment(fake))
    assert len(fake.slept) == 3
    assert len(names(store, "_transactions")) == latest(store).manifest.version == 5


def test_retry_time_is_bounded(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.before("put_if_absent", lambda path: append(store, 1, 1), times=100)
    fake = FakeTime(step_s=0.4)
    with pytest.raises(RetryableCommitError):
        append(faulty, 1, 1, retries=99, timeout_s=5.0, environment=environment(fake))
    assert sum(fake.slept) <= 5.0
    assert latest(store).manifest.version < 20


def test_threaded_appends_all_commit_with_dense_row_ids(store):
    create_table(store, 1)
    committers, times = 6, 6

    def run():
        for _ in range(times):
            append(store, 1, 3, retries=500, timeout_s=60)

    threads = [threading.Thread(target=run) for _ in range(committers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    manifest = latest(store).manifest
    assert manifest.version == 1 + committers * times
    assert row_ids(manifest).tolist() == list(range(1 + 3 * committers * times))
    assert [fragment.id for fragment in manifest.fragments] == list(range(1 + committers * times))
    assert len(names(store, "_transactions")) == manifest.version


def test_concurrent_creates_make_one_table(store):
    outcomes = []

    def run():
        try:
            outcomes.append(create_table(store, 1).version)
        except TableAlreadyExistsError:
            outcomes.append(None)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == [1] + [None] * 7
    assert len(names(store, "_transactions")) == 1


# At most once ------------------------------------------------------------------------------


def batch(number, application="stream"):
    return ApplicationVersion(application, number).properties()


def test_batch_commits_once(store):
    create_table(store, 1)
    first = append_batch(store, 1, 7)
    assert (first.version, first.already_committed) == (2, False)
    again = append_batch(store, 2, 7)
    assert (again.version, again.already_committed) == (2, True)
    earlier = append_batch(store, 2, 6)
    assert earlier.already_committed
    assert append_batch(store, 2, 8).version == 3
    assert append_batch(store, 3, 1, application="other").version == 4
    config = latest(store).manifest.config
    assert config == {CONFIG_PREFIX + "stream": "8", CONFIG_PREFIX + "other": "1"}
    assert latest(store).manifest.writer_flags & 8


def append_batch(store, read_version, number, application="stream", **arguments):
    operation = Append((new_fragment(2),))
    work = transaction(operation, read_version, **batch(number, application))
    return commit(store, work, **arguments)


def test_batch_committed_by_concurrent_process_is_recognised(store):
    faulty = FaultyStore(store)
    create_table(store, 1)
    faulty.before("put_if_absent", lambda path: append_batch(store, 1, 7))
    result = append_batch(faulty, 1, 7, environment=environment())
    assert result.already_committed
    assert latest(store).manifest.version == 2
    assert len(names(store, "_transactions")) == 2


def test_batch_is_recognised_without_configuration_entry(store):
    """Lance's restore brings the old configuration back; transactions still name the batch."""
    create_table(store, 1)
    append_batch(store, 1, 7)
    updates = UpdateMap(((CONFIG_PREFIX + "stream", None),))
    commit(store, transaction(UpdateConfig(config_updates=updates), 2))
    assert latest(store).manifest.config == {}
    assert append_batch(store, 1, 7).already_committed


def test_restore_keeps_committed_batches(store):
    create_table(store, 1)
    append_batch(store, 1, 7)
    append_batch(store, 2, 8)
    for number in (2, 1):
        result = commit(store, transaction(Restore(number), latest(store).manifest.version))
        assert result.manifest.fragments == version(store, number).manifest.fragments
        assert append_batch(store, result.version, 8).already_committed


@pytest.mark.parametrize(
    "properties",
    [
        {"pyspark_lance.txn_app_id": "a"},
        {"pyspark_lance.txn_version": "1"},
        {"pyspark_lance.txn_app_id": "a", "pyspark_lance.txn_version": "one"},
        {"pyspark_lance.txn_app_id": "a", "pyspark_lance.txn_version": "-1"},
    ],
)
def test_incomplete_application_version_is_refused(store, properties):
    create_table(store, 1)
    with pytest.raises(InvalidInputError):
        commit(store, transaction(Append((new_fragment(1),)), 1, **properties))


def test_repeated_commit_of_same_transaction_is_recognised(store):
    """A caller that lost our answer may simply call again."""
    create_table(store, 1)
    work = transaction(Append((new_fragment(1),)), 1)
    first = commit(store, work)
    append(store, 2, 1)
    assert commit(store, work).version == first.version == 2
    assert latest(store).manifest.version == 3


def test_unknown_operation_is_not_committed(store):
    create_table(store, 1)
    with pytest.raises(UnsupportedFeatureError):
        commit(store, transaction(UnknownOperation(116), 1))


def test_only_overwrite_creates_table(store):
    with pytest.raises(InvalidInputError, match="cannot create"):
        commit(store, transaction(Append((new_fragment(1),)), 0), create=CreateOptions())
    assert names(store, "") == []


def test_commit_logs_operation_counts_and_attempts(store, caplog):
    create_table(store, 10)
    with caplog.at_level(logging.INFO, "pyspark_lance"):
        append(store, 1, 3, 4)
    (line,) = caplog.messages
    assert line.startswith("committed version 2 of ")
    assert "Append, num_added_fragments: 2, num_added_rows: 7; rows: 17, fragments: 3, " in line
    assert "fragments: 3, attempts: 1, seconds: " in line


def test_commit_logs_names_of_indices(store, caplog):
    message = table_pb2.IndexMetadata(uuid=table_pb2.Uuid(uuid=bytes(16)), name="by_id", fields=[0])
    entry = IndexMetadata.from_bytes(message.SerializeToString())
    with caplog.at_level(logging.INFO, "pyspark_lance"):
        create_table(store)
        commit(store, transaction(CreateIndex((entry,), ()), 1))
        commit(store, transaction(CreateIndex((), (entry,)), 2))
    assert [line.partition(": ")[2].partition(";")[0] for line in caplog.messages] == [
        "Overwrite",
        "CreateIndex, added indices: by_id",
        "CreateIndex, removed indices: by_id",
    ]
