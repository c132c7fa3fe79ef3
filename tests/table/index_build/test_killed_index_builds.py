"""Index builds that are killed, or have other writers beside them, leave indices that answer right.

What is killed is a process, by a signal that nothing can catch, before and after calls of the
store: what it reads, the files of each segment, the transaction, the version.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import lance
import pytest
from directed_store import Director, directed, in_charge, pause
from local_changes import delete_rows
from zone_map_tables import LISTS, change, change_ours, check_rows, some_rows, with_lists

from pyspark_lance.errors import CommitConflictError, InvalidInputError, RetryableCommitError
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    drop_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import INDEX_KINDS, IndexRequest
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from killed_calls import kill_at_calls
from pyspark_lance.table.index_build.column_indices import (
    create_index, drop_index, optimize_indices, refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest

_, _, root, work, calls = sys.argv
died = kill_at_calls(root, lambda table: eval(work), every_call=calls == "every call")
print(json.dumps(died))
"""
WORK = {
    "btree": 'create_index(table, IndexRequest(("i", "s"), "btree", rows_per_segment=30))',
    "bitmap": 'create_index(table, IndexRequest(("i",), "bitmap", "i_idx", replace=True))',
    "label_list": f'create_index(table, IndexRequest(("{LISTS}",), "label_list"))',
    "bloomfilter": 'create_index(table, IndexRequest(("s",), "bloomfilter"))',
    "ngram": 'create_index(table, IndexRequest(("s",), "ngram"))',
    "inverted": 'create_index(table, IndexRequest(("s",), "inverted"))',
    "minhash_lsh": 'create_index(table, IndexRequest(("s",), "minhash_lsh"))',
    "zonemap": 'create_index(table, IndexRequest(("i", "s"), "zonemap", replace=True))',
    "refresh": "refresh_indices(table)",
    "optimize": "optimize_indices(table)",
    "drop": 'drop_index(table, "n_idx")',
}
CONDITIONS = [
    "i = 3", "i IN (1, 2, 19)", "i >= 5 AND n < 9", "n = 3 OR n > 10", "NOT (n > 3)", "n IS NULL",
    "s = 'ab'", "s >= 'b'", "s IN ('', 'zz')", f"array_contains({LISTS}, 'ab')",
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


def make(path: str, rng: random.Random, *, stable: bool) -> None:
    """Rows with indices of two kinds over n, some of which no index covers."""
    for number in range(3):
        rows = with_lists(some_rows(rng, 40), rng)
        settings = {} if number else {"enable_stable_row_ids": stable}
        lance.write_dataset(rows, path, mode="append" if number else "create", **settings)
        if not number:
            create_index(Table(path), IndexRequest(("n",), rows_per_segment=20))
            create_index(Table(path), IndexRequest(("n",), "bitmap", "values_of_n"))
        if number == 1:
            refresh_indices(Table(path))
    delete_rows(path, "n = 4")


def index_files(path: str) -> set[str]:
    return {str(one.relative_to(path)) for one in Path(path).glob("_indices/*/*")}


def named_files(path: str) -> set[str]:
    """The files that the indices of the newest version have."""
    indices = Snapshot.open(Table(path)).indices
    return {f"_indices/{one.uuid}/{name}" for one in indices for name in one.file_sizes}


def check_killed(tmp_path: Path, work: str, stable: bool, places: str, conditions: list[str]):
    before = str(tmp_path / "before")
    make(before, random.Random(work), stable=stable)
    version = Snapshot.open(Table(before)).version
    tests = str(Path(__file__).parents[2] / "support")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tests, str(tmp_path), WORK[work], places],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    landed = 0
    for name, call, folder in json.loads(done.stdout):
        path = str(tmp_path / name)
        now = Snapshot.open(Table(path)).version
        assert version <= now <= version + 1, (name, call, folder)
        landed += now > version
        assert named_files(path) <= index_files(path), (name, call, folder)
        assert verify(Table(path)).errors == (), (name, call, folder)
        check_rows(path, conditions)
        policy = CleanupPolicy(older_than_s=0, delete_unverified=True)
        cleanup_old_versions(Table(path), policy)
        assert index_files(path) == named_files(path), (name, call, folder)
        optimize_indices(Table(path))
        check_rows(path, conditions[:2])
    assert landed > 0


def test_killed_index_build_leaves_indices_before_or_after(tmp_path):
    check_killed(tmp_path, "bitmap", True, "writes", CONDITIONS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("stable", [False, True])
def test_index_build_killed_anywhere_is_atomic(tmp_path, work, stable):
    check_killed(tmp_path, work, stable, "every call", CONDITIONS)


def build_any(path: str, rng: random.Random) -> None:
    """Build an index; a concurrent change may make that impossible."""
    kind = rng.choice([*INDEX_KINDS, "refresh", "optimize", "drop"])
    table = Table(path)
    with_kind = {"zonemap": ("i", "s"), "label_list": (LISTS,), "bloomfilter": ("s", "i")}
    with_kind |= {"ngram": ("s",), "inverted": ("s",), "minhash_lsh": ("s",)}
    try:
        match kind:
            case "refresh":
                refresh_indices(table, rows_per_segment=rng.choice([30, 10_000]))
            case "optimize":
                optimize_indices(table, rows_per_segment=rng.choice([30, 10_000]))
            case "drop":
                drop_index(table, "n_idx")
            case _:
                columns = with_kind.get(kind, ("i", "n", "s"))
                create_index(table, IndexRequest(columns, kind, replace=True, rows_per_segment=30))
    except (InvalidInputError, RetryableCommitError):
        assert kind in ("drop", "refresh", "optimize")  # of a concurrently dropped index
    except CommitConflictError as error:
        assert "Restore" in str(error)


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 200))]
)
def test_index_built_beside_writers_equals_scan(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    make(path, rng, stable=rng.random() < 0.5)

    def others() -> None:
        snapshots._cache.clear()  # They are other processes, and know nothing of this one.
        for _ in range(rng.choice([1, 1, 2])):
            act = rng.choice([change, change_ours, change_ours, build_any])
            act(path, rng)

    for _ in range(3):
        director = Director({rng.randint(0, 25): pause(others) for _ in range(2)})
        with directed(), in_charge(director):
            build_any(path, rng)
        assert verify(Table(path)).errors == ()
        check_rows(path, CONDITIONS)
    lance.dataset(path).validate()
