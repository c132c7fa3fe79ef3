"""What crosses between driver and executors arrives as what it is."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import pickle
import pkgutil
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_boundary import PACKAGE, sent
from pyspark import cloudpickle
from table_access import write_table

import pyspark_lance
from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ID
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, OffsetSet
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import (
    SPILLED,
    DataFile,
    ExternalFile,
    Fragment,
    new_data_file_name,
)
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import EncodedU64Array
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.predicate.tree import Literal
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.source.batch_reader import LanceBatchReader
from pyspark_lance.spark.source.read_plan import PushedDown
from pyspark_lance.spark.source.scan_rows import ScanRows
from pyspark_lance.table.rows.scan_split import ScanSplit, Slices
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.scan.top_rows import TopRows
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import TableFiles

NUMBERS = st.integers(0, 2**62)
IDS = st.integers(0, 2**32 - 1)
BASES = st.none() | st.integers(0, 9)
SEQUENCES = (
    st.none()
    | st.just(SPILLED)
    | st.binary(max_size=9)
    | st.builds(ExternalFile, st.text(), NUMBERS, NUMBERS)
)
# Names as writers give them are not sent as they are.
NAMES = st.binary(min_size=16, max_size=16).map(new_data_file_name) | st.sampled_from(
    ["plain.lance", "ü/ü.lance", "01" * 12 + "AB" * 13 + ".lance", "1" * 24 + "0" * 27 + ".lance"]
)
FILES = st.builds(
    lambda path, columns, *rest: DataFile(
        path, tuple(one for one, _ in columns), tuple(two for _, two in columns), *rest
    ),
    NAMES,
    st.lists(st.tuples(st.integers(-5, 9), st.integers(-1, 9)), max_size=4),
    st.integers(0, 9),
    st.integers(0, 9),
    NUMBERS,
    BASES,
)
FRAGMENTS = st.builds(
    Fragment,
    IDS,
    st.lists(FILES, max_size=3).map(tuple),
    IDS,
    st.none()
    | st.builds(DeletionFile, st.sampled_from(DeletionFileType), NUMBERS, NUMBERS, NUMBERS, BASES),
    SEQUENCES,
    SEQUENCES,
    SEQUENCES,
)
SLICES = st.builds(
    ScanSplit,
    FRAGMENTS,
    NUMBERS,
    NUMBERS,
    st.none() | st.lists(IDS).map(lambda one: OffsetSet.of(np.unique(np.array(one, np.uint32)))),
)
LINEAGE = st.sets(st.sampled_from([CREATED_AT, LAST_UPDATED_AT, ROW_ID]))
FIELDS = st.lists(st.builds(Field, st.integers(0, 99), st.text(), st.just("int32"))).map(tuple)
TASKS = st.builds(
    ScanTask,
    st.builds(
        TableFiles,
        st.builds(Table, st.text(), st.dictionaries(st.text(), st.text())),
        st.lists(st.builds(BasePath, NUMBERS, st.text(), st.none(), st.booleans())).map(tuple),
    ),
    FIELDS,
    FIELDS,
    st.just(("_rowid",)),
    st.none(),
    st.booleans(),
    NUMBERS,
    NUMBERS,
    st.lists(SLICES, max_size=3).map(tuple),
)
PACKED_SLICES = st.builds(
    lambda slices, lineage: Slices.of(slices).select_lineage(lineage), st.lists(SLICES), LINEAGE
)
OFFSETS = st.sampled_from(["<u2", "<u4"]).flatmap(
    lambda width: st.lists(st.integers(0, 2**16 - 1)).map(lambda one: np.array(one, width))
)
CONSTANTS = st.one_of(
    st.builds(pa.scalar, st.none() | st.booleans(), st.just(pa.bool_())),
    st.builds(pa.scalar, st.none() | st.integers(-(2**31), 2**31 - 1), st.just(pa.int32())),
    st.builds(pa.scalar, st.floats(allow_nan=False), st.just(pa.float64())),
    st.builds(pa.scalar, st.text(), st.just(pa.string())),
    st.builds(pa.scalar, st.binary(), st.just(pa.binary())),
    st.builds(pa.scalar, st.dates(), st.just(pa.date32())),
    st.builds(pa.scalar, st.datetimes(), st.just(pa.timestamp("us", "UTC"))),
    st.builds(pa.scalar, st.decimals(-999, 999, places=2), st.just(pa.decimal128(5, 2))),
    # Python has no years beyond 1 to 9999, and no nanoseconds.
    st.builds(
        lambda number, kind: pa.array([number], pa.int64()).view(kind)[0],
        st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1]),
        st.sampled_from(
            [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("us")]
        ),
    ),
    st.builds(
        lambda days: pa.array([days], pa.int32()).view(pa.date32())[0],
        st.integers(-(2**31), 2**31 - 1),
    ),
    st.builds(
        lambda nanos: pa.array([nanos], pa.int64()).view(pa.time64("ns"))[0],
        st.integers(0, 86_400 * 10**9 - 1),
    ),
    st.builds(pa.scalar, st.lists(st.datetimes()), st.just(pa.list_(pa.timestamp("us")))),
    st.builds(pa.scalar, st.none(), st.sampled_from([pa.null(), pa.list_(pa.int8())])),
    # A text that is no UTF-8 is a bound of an index like others.
    st.builds(lambda text: pa.array([text]).view(pa.string())[0], st.binary()),
)
# What decides itself how it is pickled.
PACKED = {
    ScanTask: TASKS,
    Slices: PACKED_SLICES,
    Table: st.builds(
        Table,
        st.text(),
        st.dictionaries(st.text(), st.text()),
        st.sampled_from([None, "main", "branch", "of/a/branch"]),
    ),
    EncodedU64Array: st.builds(EncodedU64Array, NUMBERS, OFFSETS),
    Literal: st.builds(Literal, CONSTANTS),
}


def classes_of_the_package():
    for module in pkgutil.walk_packages(pyspark_lance.__path__, f"{PACKAGE}."):
        for one in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(one) and one.__module__ == module.name:
                yield one


def test_all_classes_with_custom_pickling_are_tested():
    own = {
        one
        for one in classes_of_the_package()
        if {"__reduce__", "__reduce_ex__"} & vars(one).keys() and not issubclass(one, LanceError)
    }
    assert own == PACKED.keys() | {LanceBatchReader}


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("top", [None, TopRows("id", 3, True, False, False)])
def test_planning_reader_pickles_only_task_settings(tmp_path, limit, top):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(9)}))
    source = LanceDataSource({"path": path})
    text = None if top is None else json.dumps(dataclasses.asdict(top))
    reader = source._reader(source.schema(), PushedDown(limit=limit, top=text))
    arrived = pickle.loads(cloudpickle.dumps(reader))
    assert type(arrived) is ScanRows
    assert vars(arrived) == {"_schema": reader._schema, "_limit": limit, "_top": top}


@pytest.mark.parametrize("kind", PACKED, ids=lambda one: one.__name__)
def test_custom_pickling_round_trips(kind):
    @given(PACKED[kind])
    def check(thing):
        sent(thing)

    check()


def lineage_of(number, rng):
    """Sequences of a fragment as an append writes them, now and then others."""
    start, rows = int(rng.integers(0, 2**40)) * number, int(rng.integers(1, 99))
    version = RowDatasetVersionSequence.constant(rows, int(rng.integers(1, 2**33))).to_bytes()
    ids = RowIdSequence.consecutive(start, rows)
    return ids, version, rows


@pytest.mark.parametrize("odd", [None, b"", SPILLED, "two ranges", "no shortest form"])
@pytest.mark.parametrize("seed", range(3))
def test_lineage_of_many_fragments_round_trips(seed, odd):
    rng = np.random.default_rng(seed)
    fragments = []
    for number in range(20):
        ids, version, rows = lineage_of(number, rng)
        fragments.append(Fragment(number, (), rows, None, ids.to_bytes(), version, version))
    one, other = fragments[3], fragments[4]
    if odd == "two ranges":
        odd = one.row_ids + other.row_ids
    elif odd == "no shortest form":  # the same message with a zero that is written out
        odd = bytes([10, 6, 10, 4, 8, 0, 16, 5])
    slices = Slices.of([ScanSplit(one, 0, one.physical_rows) for one in fragments])
    sent(slices)
    for changed in ({"row_ids": odd}, {"created_at": odd}, {"last_updated_at": odd}):
        fragments[4] = dataclasses.replace(other, **changed)
        sent(Slices.of([ScanSplit(one, 0, one.physical_rows) for one in fragments]))


def test_consecutive_fragments_pickle_in_two_bytes_of_lineage():
    fragments = [
        Fragment(
            number,
            (),
            100,
            None,
            RowIdSequence.consecutive(100 * number, 100).to_bytes(),
            RowDatasetVersionSequence.constant(100, number + 1).to_bytes(),
            RowDatasetVersionSequence.constant(100, number + 1).to_bytes(),
        )
        for number in range(1000)
    ]
    slices = Slices.whole(Fragments.of(fragments))
    with_lineage, without = (
        len(pickle.dumps(one)) for one in (slices, slices.select_lineage(frozenset()))
    )
    assert with_lineage - without < 2 * len(fragments)


@dataclasses.dataclass(frozen=True)
class Careless:
    """Says what it holds by a number."""

    kind: DeletionFileType

    def __reduce__(self):
        return Careless, (int(self.kind),)


def test_equal_copy_of_different_type_is_detected():
    assert DeletionFileType.BITMAP == 1
    with pytest.raises(AssertionError, match="kind was"):
        sent([Careless(DeletionFileType.BITMAP)])


def test_run_helper_uses_pickled_tasks(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(3)}))
    (task,) = plan_scan(Snapshot.open(Table(path)), ScanRequest())
    careless = dataclasses.replace(task, batch_rows=Careless(DeletionFileType.BITMAP))
    with pytest.raises(AssertionError, match="batch_rows"):
        next(careless.run())


def enum_fields():
    """Fields of dataclasses whose values equal plain numbers or texts, with all of their class."""
    for one in classes_of_the_package():
        if dataclasses.is_dataclass(one):
            known = vars(importlib.import_module(one.__module__))
            kinds = {
                field.name: kind
                for field in dataclasses.fields(one)
                for word in re.findall(r"\w+", str(field.type))
                if inspect.isclass(kind := known.get(word))
                and issubclass(kind, enum.IntEnum | enum.StrEnum)
            }
            for name in kinds:
                yield one, name, kinds


@pytest.mark.parametrize(("one", "name", "kinds"), enum_fields())
def test_enum_fields_refuse_plain_values(one, name, kinds):
    others = {field.name: None for field in dataclasses.fields(one)}
    others |= {other: next(iter(kind)) for other, kind in kinds.items()}
    for member in kinds[name]:
        assert member == member.value
        with pytest.raises(InvalidInputError, match=f"is not a {kinds[name].__name__}"):
            one(**others | {name: member.value})


def test_unknown_sequence_type_is_not_written():
    with pytest.raises(InvalidInputError, match="is not a Spilled"):
        Fragment(0, (), 1, row_ids=bytearray(b"ids")).to_proto()
