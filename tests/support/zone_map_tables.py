"""Tables with values of every type that zone maps know, and which of their rows a scan looks at."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import lance
import pyarrow as pa
from lance.indices import IndexConfig
from local_changes import delete_rows
from row_changes import set_to
from table_access import read_ours

from pyspark_lance.predicate.conditions import Predicate, evaluate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.index_build.zone_maps import refresh_zone_maps
from pyspark_lance.table.scan.fragment_pruning import prune_splits
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

PLACE = ("_rowid", "_rowaddr")

NAN = float("nan")
# Values of each type, ascending, and how a condition spells them.
DAYS = [dt.date(1969, 12, 30) + dt.timedelta(days) for days in range(12)]
INSTANTS = [dt.datetime(1969, 12, 31, 23, 59, second) for second in range(50, 60)]
COLUMNS = {
    "i": (pa.int64(), list(range(-5, 20)), str),
    "n": (pa.int32(), list(range(-5, 20)), str),
    "f": (pa.float64(), [-1.5, -0.0, 0.0, 2.5, 3.5, float("inf"), NAN, -NAN],
          lambda v: f"CAST('{v}' AS double)"),
    "h": (pa.float32(), [-1.5, -0.0, 0.0, 2.5, NAN], lambda v: f"CAST('{v}' AS double)"),
    "s": (pa.string(), ["", "a", "ab", "abc", "b", "b\U0001f600", "é", "zz"], lambda v: f"'{v}'"),
    "y": (pa.binary(), [b"", b"\x00", b"a\xff", b"b"], lambda v: f"X'{v.hex()}'"),
    "d": (pa.date32(), DAYS, lambda v: f"DATE'{v}'"),
    "t": (pa.timestamp("us", "Europe/Paris"),
          [v.replace(tzinfo=dt.UTC) for v in INSTANTS], lambda v: f"TIMESTAMP'{v}'"),
    "m": (pa.timestamp("ns"), INSTANTS, lambda v: f"TIMESTAMP_NTZ'{v}'"),
    "c": (pa.decimal128(10, 2), [Decimal(v) / 4 for v in range(-6, 9)], str),
    "u": (pa.uint64(), [0, 1, 2, 2**63, 2**64 - 1], str),
    "b": (pa.bool_(), [False, True], str),
}  # fmt: skip
STRUCT = "o"
LISTS = "l"


def some_rows(rng: random.Random, count: int) -> pa.Table:
    """Rows about sorted, so that zones differ; with nulls in places."""
    arrays = {}
    for name, (data_type, values, _) in COLUMNS.items():
        near = [min(len(values) - 1, max(0, int(at * len(values) / count) + rng.randint(-1, 1)))
                for at in range(count)]  # fmt: skip
        share = rng.choice([0.0, 0.1, 0.6])
        empty = range(first := rng.randint(0, count), first + count // 3)
        nulls = [rng.random() < (0.95 if at in empty else share) for at in range(count)]
        arrays[name] = pa.array(
            [None if null else values[at] for at, null in zip(near, nulls, strict=True)], data_type
        )
    mask = pa.array([rng.random() < 0.2 for _ in range(count)])
    arrays[STRUCT] = pa.StructArray.from_arrays([arrays["i"]], names=["x"], mask=mask)
    return pa.table(arrays)


def with_lists(rows: pa.Table, rng: random.Random) -> pa.Table:
    """The rows with a column of lists of one to three of the values of ``s``, or none, or null."""
    _, values, _ = COLUMNS["s"]
    lists = [
        rng.choice([None, [], rng.choices([None, *values], k=rng.randint(1, 3))])
        for _ in range(len(rows))
    ]
    return rows.append_column(LISTS, pa.array(lists, pa.list_(pa.string())))


def parse(snapshot: Snapshot, condition: str) -> Predicate:
    return parse_predicate(condition, predicate_schema(snapshot.schema))


def retained_rows(path: str, condition: str) -> dict[int, list[int]]:
    """Fragment -> offsets that a scan looks at."""
    snapshot = Snapshot.open(Table(path))
    return {
        part.fragment.id: list(range(part.start, part.end))
        if part.offsets is None
        else part.offsets.to_array().tolist()
        for part in prune_splits(snapshot, parse(snapshot, condition))
    }


def matching(path: str, condition: str, at: VersionSpec = LATEST) -> pa.Table:
    snapshot = Snapshot.open(Table(path), at)
    return read_ours(path, at, predicate=parse(snapshot, condition), system_columns=PLACE)


def check_rows(path: str, conditions: list[str], at: VersionSpec = LATEST) -> None:
    """A scan has the rows that a condition keeps of all rows, none of them more than once."""
    everything = read_ours(path, at, system_columns=PLACE).combine_chunks()
    snapshot = Snapshot.open(Table(path), at)
    for condition in conditions:
        expected = everything.slice(0, 0)
        if everything.num_rows:
            (batch,) = everything.to_batches()
            mask = evaluate(parse(snapshot, condition), batch)
            expected = everything.filter(mask.fill_null(False))
        found = matching(path, condition, at)
        assert found["_rowaddr"].to_pylist() == expected["_rowaddr"].to_pylist(), condition


def index_of(path: str, column: str, rows_per_zone: int) -> None:
    lance.dataset(path).create_scalar_index(
        column, IndexConfig("zonemap", {"rows_per_zone": rows_per_zone})
    )


def change_in_place(path: str, fragment_id: int) -> None:
    """Other values of i where n is 1, 2 or 3, in a file beside those of the fragment."""
    dataset = lance.dataset(path)
    new = pa.table({"n": pa.array([1, 2, 3], pa.int32()), "i": pa.array([15, 3, -5])})
    fragment, fields = dataset.get_fragment(fragment_id).update_columns(new, "n")
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)


def change(path: str, rng: random.Random) -> None:
    dataset = lance.dataset(path)
    match rng.choice(["append", "delete", "update", "compact", "optimize", "column", "restore"]):
        case "append":
            lance.write_dataset(some_rows(rng, rng.randint(1, 60)), path, mode="append")
        case "delete":
            first = rng.randint(-5, 20)
            dataset.delete(f"n >= {first} AND n < {first + rng.randint(0, 8)}")
        case "update":
            dataset.update({"i": "i + 7", "s": "'b'"}, where=f"n = {rng.randint(-5, 20)}")
        case "compact":
            dataset.optimize.compact_files(target_rows_per_fragment=rng.choice([50, 1000]))
        case "optimize":
            dataset.optimize.optimize_indices(num_indices_to_merge=rng.choice([0, 1, 10]))
        case "column":
            change_in_place(path, rng.choice(dataset.get_fragments()).fragment_id)
        case "restore":
            lance.dataset(path, version=rng.randint(1, dataset.version)).restore()


def change_ours(path: str, rng: random.Random) -> None:
    """As ``change``, by our own operations."""
    match rng.choice(["delete", "update", "all", "compact", "refresh", "index"]):
        case "delete":
            delete_rows(path, f"n = {rng.randint(-5, 20)}")
        case "update":
            set_to(path, f"n = {rng.randint(-5, 20)}", i=rng.randint(-5, 20), s="b")
        case "all":
            set_to(path, "n > -99", i=rng.randint(-5, 20), n=3)
        case "compact":
            compact(Table(path), CompactionRequest(target_rows_per_fragment=rng.choice([50, 1000])))
        case "refresh":
            refresh_zone_maps(Table(path))
        case "index":
            lance.dataset(path).create_scalar_index("n", "BTREE", name="tree", replace=True)
