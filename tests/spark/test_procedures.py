"""Procedures as Python does them: what the plugin asks, and tasks as executors run them."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import append, assert_same_rows, read_ours, read_pylance

from pyspark_lance.errors import InvalidInputError, RetryableCommitError, VersionNotFoundError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.sql.plugin_requests import ProcedureRequest
from pyspark_lance.spark.sql.procedures import PROCEDURES, LanceTaskReader, run_procedure
from pyspark_lance.table.cleanup.cleanup import find_orphan_files
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    """Two pairs of small fragments with a large one between them."""
    path = str(tmp_path / "table")
    for first, rows in ((0, 3), (10, 3), (20, 100), (120, 3), (130, 3)):
        append(path, first, rows)
    return path


def ask(path, procedure, /, *, work=None, done=(), **arguments):
    request = ProcedureRequest(
        options={"path": path, keys.APPLICATION: "app-7"},
        procedure=procedure,
        arguments={"table": path, **arguments},
        state=work,
        results=tuple(done),
    )
    return run_procedure(request)


def rows(answer):
    return json.loads(answer.rows)


def run_tasks(state):
    """What executors make of the tasks, each in bytes of its own."""
    reader = LanceTaskReader(state)
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
    return [text for part in parts for batch in reader.read(part) for text in batch[0].to_pylist()]


def compact(path, between=lambda: None, **arguments):
    """Run a compaction, with something between its plan and its commit the first time."""
    answer = ask(path, "compact", target_rows_per_fragment="50", **arguments)
    rounds = 0
    while answer.state is not None:
        done = run_tasks(answer.state)
        between()
        between = lambda: None  # noqa: E731
        answer = ask(path, "compact", work=answer.state, done=done)
        rounds += 1
    return rounds, rows(answer)[0]


def test_concurrently_changed_bins_are_replanned(path):
    rounds, done = compact(path, lambda: delete_rows(path, "id = 1"))
    assert rounds == 2
    assert (done["fragments_removed"], done["fragments_added"], done["conflicting_bins"]) == (
        4,
        2,
        0,
    )
    assert (done["version"], done["num_rows"]) == (8, 11)
    assert_same_rows(read_ours(path), read_pylance(path))
    properties = lance.dataset(path).read_transaction(8).transaction_properties
    assert properties["pyspark_lance.spark_application_id"] == "app-7"
    append(path, 200)
    rounds, done = compact(path, lambda: append(path, 300))
    assert (rounds, done["conflicting_bins"], done["version"]) == (1, 0, 11)


def test_compaction_without_work_starts_no_tasks(path):
    answer = ask(path, "compact", target_rows_per_fragment="2")
    assert rows(answer)[0]["version"] is None
    assert lance.dataset(path).version == 5


def test_persistent_conflict_reports_committed_bins(path, monkeypatch):
    settings = {"target_rows_per_fragment": "50"}
    answer = ask(path, "compact", **settings)
    done = run_tasks(answer.state)
    request = ProcedureRequest(
        options={"path": path, "commitRetries": "0"},
        procedure="compact",
        arguments={"table": path},
        state=answer.state,
        results=tuple(done),
    )
    delete_rows(path, "id = 1")
    (reported,) = rows(run_procedure(request))
    assert (reported["conflicting_bins"], reported["fragments_removed"]) == (1, 2)
    answer = ask(path, "compact", **settings)
    done = run_tasks(answer.state)
    delete_rows(path, "id IN (0, 2)")
    request = replace(request, state=answer.state, results=tuple(done))
    with pytest.raises(RetryableCommitError, match="changed all 1 groups"):
        run_procedure(request)


def test_invalid_procedure_arguments_are_refused(path):
    with pytest.raises(InvalidInputError, match="'noon' is not a time"):
        ask(path, "restore", timestamp="noon")
    with pytest.raises(InvalidInputError, match="restore takes a version"):
        ask(path, "restore")
    with pytest.raises(InvalidInputError, match="both choose a version"):
        ask(path, "create_tag", name="x", version="1", tag="y")
    with pytest.raises(VersionNotFoundError):
        ask(path, "drop_branch", name="none")
    with pytest.raises(InvalidInputError, match="soon"):
        ask(path, "cleanup", older_than="soon")


def test_procedure_rows_match_declared_columns(path):
    lance.dataset(path).tags.create("first", 1)
    lance.dataset(path).alter_columns({"path": "id", "nullable": False})
    given = {
        "create_tag": {"name": "new"}, "replace_tag": {"name": "first"},
        "drop_tag": {"name": "first"}, "create_branch": {"name": "trial"},
        "drop_branch": {"name": "trial"}, "restore": {"version": str(lance.dataset(path).version)},
        "compact": {"dry_run": "true"}, "create_index": {"columns": "id"},
        "drop_index": {"name": "id_idx"}, "set_primary_key": {"columns": "id"},
    }  # fmt: skip
    for name, procedure in PROCEDURES.items():
        if name == "create_vector_index":
            continue  # which wants vectors, and has a test of its own
        answer = ask(path, name, **given.get(name, {}))
        if answer.state is not None:
            answer = ask(path, name, work=answer.state, done=run_tasks(answer.state))
        assert json.loads(answer.schema) == procedure.result.jsonValue()
        for row in rows(answer):
            assert list(row) == procedure.result.names


def test_zone_map_procedures_build_and_refresh(path):
    answer = ask(path, "create_zonemap", columns="id", rows_per_zone="40")
    done = run_tasks(answer.state)
    append(path, 200, 3)
    (made,) = rows(ask(path, "create_zonemap", work=answer.state, done=done, columns="id"))
    assert (made["columns"], made["num_fragments"], made["num_zones"]) == (["id"], 5, 7)
    answer = ask(path, "refresh_zonemaps")
    (refreshed,) = rows(ask(path, "refresh_zonemaps", work=answer.state,
                            done=run_tasks(answer.state)))  # fmt: skip
    assert (refreshed["columns"], refreshed["num_fragments"]) == (["id"], 1)
    (nothing,) = rows(ask(path, "refresh_zonemaps"))
    assert nothing["version"] is None
    plan = lance.dataset(path).scanner(filter="id = 201").explain_plan()
    assert "@id_idx(ZoneMap)" in plan


def test_zone_maps_of_concurrently_moved_rows_are_rebuilt(path):
    answer = ask(path, "create_zonemap", columns="id")
    done = run_tasks(answer.state)
    compact(path)
    again = ask(path, "create_zonemap", work=answer.state, done=done, columns="id")
    done = run_tasks(again.state)
    (made,) = rows(ask(path, "create_zonemap", work=again.state, done=done, columns="id"))
    assert made["num_fragments"] == lance.dataset(path).stats.dataset_stats()["num_fragments"]


def test_index_procedures_build_refresh_optimize_and_drop(path):
    answer = ask(path, "create_index", columns="id", kind="BTREE", name="keys")
    done = run_tasks(answer.state)
    append(path, 200, 3)
    (made,) = rows(ask(path, "create_index", work=answer.state, done=done, columns="id"))
    assert (made["names"], made["num_segments"]) == (["keys"], 1)
    with pytest.raises(InvalidInputError, match="there is an index 'keys'"):
        ask(path, "create_index", columns="id", name="keys")
    assert ask(path, "create_index", columns="id", name="keys", replace="true").state is not None
    answer = ask(path, "refresh_indices", name="keys")
    (refreshed,) = rows(ask(path, "refresh_indices", work=answer.state,
                            done=run_tasks(answer.state)))  # fmt: skip
    assert (refreshed["names"], refreshed["num_rows"]) == (["keys"], 3)
    assert "@keys(BTree)" in lance.dataset(path).scanner(filter="id = 201").explain_plan()
    answer = ask(path, "optimize_indices")
    (joined,) = rows(ask(path, "optimize_indices", work=answer.state,
                         done=run_tasks(answer.state)))  # fmt: skip
    assert joined["num_segments"] == 1
    assert joined["num_rows"] == lance.dataset(path).count_rows()
    (nothing,) = rows(ask(path, "optimize_indices"))
    assert nothing["version"] is None
    (dropped,) = rows(ask(path, "drop_index", name="keys"))
    assert dropped["version"] == joined["version"] + 1
    assert not lance.dataset(path).list_indices()


def vectors(path, count, start=0):
    numbers = np.random.default_rng(start).normal(size=(count, 8)).astype("f4")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 8)
    rows = pa.table({"id": np.arange(start, start + count), "v": lists})
    lance.write_dataset(rows, path, mode="append", enable_stable_row_ids=True)
    return numbers


def through(path, procedure, between=lambda: None, **arguments):
    """The rows of a procedure, and how many stages of tasks it took."""
    answer, stages = ask(path, procedure, **arguments), 0
    while answer.state is not None:
        done = run_tasks(answer.state)
        stages += 1
        if stages == 2:
            between()
        answer = ask(path, procedure, work=answer.state, done=done, **arguments)
    return rows(answer), stages


def test_vector_index_procedures_run_in_stages(tmp_path):
    path = str(tmp_path / "vectors")
    numbers = vectors(path, 300)
    given = {"column": "v", "kind": "ivf_pq", "metric": "cosine", "num_partitions": "2",
             "num_sub_vectors": "4", "seed": "1", "name": "near"}  # fmt: skip
    (made,), stages = through(path, "create_vector_index", **given)
    assert (made["names"], made["num_segments"], made["num_rows"], stages) == (["near"], 1, 300, 3)
    with pytest.raises(InvalidInputError, match="there is an index 'near'"):
        ask(path, "create_vector_index", **given)
    with pytest.raises(InvalidInputError, match="not a kind of vector index"):
        ask(path, "create_vector_index", kind="btree")
    lance.dataset(path).create_scalar_index("id", "BTREE", name="keys")
    vectors(path, 40, 300)
    (fresh,), _ = through(path, "refresh_indices")
    assert (fresh["names"], fresh["num_segments"], fresh["num_rows"]) == (["keys", "near"], 2, 80)
    (nothing,), stages = through(path, "refresh_indices", name="near")
    assert (nothing["version"], stages) == (None, 0)
    vectors(path, 40, 400)
    (joined,), _ = through(path, "optimize_indices", name="near")
    assert (joined["names"], joined["num_rows"]) == (["near"], 380)
    assert lance.dataset(path).stats.index_stats("near")["num_indices"] == 1
    nearest = {"column": "v", "q": numbers[7], "k": 3}
    scanner = lance.dataset(path).scanner(columns=["id", "_distance"], nearest=nearest)
    assert "ANN" in scanner.explain_plan() and 7 in scanner.to_table()["id"].to_pylist()
    assert not [file.path for file in find_orphan_files(Table(path)) if "_indices" in file.path]


def test_vector_index_of_concurrently_moved_rows_is_rebuilt(tmp_path):
    path = str(tmp_path / "vectors")
    vectors(path, 60)
    vectors(path, 60, 60)

    def others():
        lance.dataset(path).optimize.compact_files(target_rows_per_fragment=1000)

    (made,), stages = through(path, "create_vector_index", others, kind="ivf_flat")
    assert (made["num_rows"], stages) == (120, 6)
    assert lance.dataset(path).stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    assert not [file.path for file in find_orphan_files(Table(path)) if "_indices" in file.path]


def test_indices_of_concurrently_moved_rows_are_rebuilt(path):
    answer = ask(path, "create_index", columns="id")
    done = run_tasks(answer.state)
    compact(path)
    again = ask(path, "create_index", work=answer.state, done=done, columns="id")
    done = run_tasks(again.state)
    (made,) = rows(ask(path, "create_index", work=again.state, done=done, columns="id"))
    assert made["num_rows"] == lance.dataset(path).count_rows()
    assert "@id_idx(BTree)" in lance.dataset(path).scanner(filter="id = 7").explain_plan()
