"""Build and refresh zone maps of columns: zones by task, and one commit of CreateIndex.

A task streams its rows and keeps only the bounds and counts of each zone, and the offsets of nulls.

A build is planned from one version; rows appended concurrently are not covered, and read as before.
Values changed in place, or rows moved, by concurrent commits are a conflict: the work is planned
again.

Source: docs/format/table-format.md, sections 10.6 and 10.8.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import CreateIndex
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import (
    numbers_with_default,
    plain_array,
    plain_dtype,
    plain_numbers,
    plain_scalar,
)
from pyspark_lance.predicate.types import type_name
from pyspark_lance.proto import table_pb2
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change
from pyspark_lance.table.index.segments import IndexDetails, IndexFiles, new_index_entry
from pyspark_lance.table.index.zone_map_file import (
    ZONE_MAP_DETAILS,
    ZONE_MAP_FILE,
    ZONE_MAP_VERSION,
    Nulls,
    ZoneMap,
    is_zone_map,
    read_zones_and_nulls,
    write_zone_map,
)
from pyspark_lance.table.scan.column_paths import named_path, only_fragments, path_to, values_at
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.tasks import RunTasks, run_local
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS_PER_ZONE: Final = 8192
"""Default of Lance."""
_MAX_ROWS_PER_ZONE: Final = 1 << 31
_NO_FRAGMENT: Final = -1
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)


def check_rows_per_zone(rows_per_zone: int) -> None:
    """Reject zone sizes out of range."""
    if not 0 < rows_per_zone < _MAX_ROWS_PER_ZONE:
        raise InvalidInputError(
            f"rows per zone must be positive, not {rows_per_zone}", hint="8192 is a good number"
        )


@dataclass(slots=True)
class ZoneSplitter:
    """Division into zones of rows that arrive batch by batch, in the order of their addresses.

    ``rows_per_zone``: live rows of a zone, but for the last one of each fragment; ``num_zones``:
    zones begun so far.
    """

    rows_per_zone: int
    num_zones: int = 0
    _fragment: int = _NO_FRAGMENT
    _filled: int = 0

    def cut(self, addresses: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the starts of zone pieces in the next rows, and the zone number of each, from 1.

        The first piece may continue the zone of the rows before.
        """
        fragments = (addresses >> np.uint64(OFFSET_BITS)).astype(np.int64)
        first_of_run = np.flatnonzero(np.diff(fragments, prepend=_NO_FRAGMENT - 1))
        lengths = np.diff(np.append(first_of_run, len(addresses)))
        position = np.arange(len(addresses)) - np.repeat(first_of_run, lengths)
        if fragments[0] == self._fragment:
            position[: lengths[0]] += self._filled
        position %= self.rows_per_zone
        begins = position == 0
        cuts = np.flatnonzero(begins | (np.arange(len(addresses)) == 0))
        zones = self.num_zones + np.cumsum(begins[cuts])
        self._fragment, self._filled = int(fragments[-1]), int(position[-1]) + 1
        self.num_zones = int(zones[-1])
        return cuts, zones


def note_nulls(nulls: dict[int, BitMap], addresses: NDArray[np.uint64]) -> None:
    """Add rows to the null ones: fragment -> offsets."""
    fragments = addresses >> np.uint64(OFFSET_BITS)
    for fragment in np.unique(fragments).tolist():
        offsets = (addresses[fragments == fragment] & _OFFSETS).astype(np.uint32)
        nulls.setdefault(fragment, BitMap()).update(offsets)


@dataclass(frozen=True, slots=True)
class ZonedColumn:
    """A column that gets a zone map.

    ``path``: its name, and those of the fields below it that lead to the value.
    """

    path: tuple[str, ...]
    field: Field
    rows_per_zone: int


@dataclass(frozen=True, slots=True)
class ZoneMapTask:
    """Rows to look at; picklable.

    ``scan``: reads the columns and the addresses of live rows.
    """

    title: ClassVar = "build zone maps"

    scan: ScanTask
    columns: tuple[ZonedColumn, ...]

    def run(self) -> tuple[BuiltZones, ...]:
        """The zones of each column, in the order of ``columns``."""
        builders = [_ZoneBuilder(column) for column in self.columns]
        for batch in self.scan.run():
            addresses = plain_numbers(batch.column(ROW_ADDRESS))
            for builder in builders:
                builder.add(addresses, values_at(batch, builder.column.path))
        return tuple(builder.done() for builder in builders)


@dataclass(frozen=True, slots=True)
class BuiltZones:
    """The zones of a column in the rows of a task."""

    rows: pa.RecordBatch  # As in the file of an index; picklable.
    nulls: dict[int, bytes]  # Fragment -> bitmap of its nulls, as bytes.


def check_can_have_zones(field: Field, name: str) -> None:
    """Reject a column whose values have no order."""
    data_type = field.to_arrow().type
    try:
        if not field.children and not field.is_blob and field.logical_type != "json":
            pc.min_max(_comparable(pa.nulls(0, data_type)))
            return
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pass
    raise UnsupportedFeatureError(
        f"the column {name!r} of type {type_name(data_type)} cannot have a zone map",
        hint="columns of numbers, decimals, text, bytes, days and times can",
    )


def _comparable(values: pa.Array) -> pa.Array:
    """The values in a type of the same order that Arrow has bounds of."""
    if pa.types.is_temporal(values.type):
        return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


@dataclass(slots=True)
class _Pieces:
    """Parts of zones in the order of rows; a zone may have several."""

    zone: list[NDArray[np.int64]] = field(default_factory=list)
    first: list[NDArray[np.uint64]] = field(default_factory=list)
    last: list[NDArray[np.uint64]] = field(default_factory=list)
    null_count: list[NDArray[np.int64]] = field(default_factory=list)
    nan_count: list[NDArray[np.int64]] = field(default_factory=list)
    ends: list[pa.StructArray] = field(default_factory=list)


class _ZoneBuilder:
    """Builder of the zones of one column."""

    def __init__(self, column: ZonedColumn) -> None:
        self.column = column
        self._type = column.field.to_arrow().type
        self._pieces = _Pieces()
        self._nulls: dict[int, BitMap] = {}
        self._cutter = ZoneSplitter(column.rows_per_zone)

    def add(self, addresses: NDArray[np.uint64], values: pa.Array) -> None:
        """Add rows behind those before."""
        if not len(addresses):
            return
        cuts, zones = self._cutter.cut(addresses)
        values = _comparable(values)
        is_null = plain_numbers(values.is_null())
        is_nan = np.zeros(len(values), np.bool_)
        if pa.types.is_floating(values.type):
            is_nan = numbers_with_default(False, pc.is_nan(values))
        pieces = self._pieces
        pieces.zone.append(zones)
        stops = np.append(cuts[1:], len(addresses))
        pieces.first.append(addresses[cuts])
        pieces.last.append(addresses[stops - 1])
        pieces.null_count.append(np.add.reduceat(is_null, cuts, dtype=np.int64))
        pieces.nan_count.append(np.add.reduceat(is_nan, cuts, dtype=np.int64))
        if is_nan.any():
            values = pc.if_else(plain_array(is_nan), plain_scalar(None, values.type), values)
        pieces.ends.append(_ends(values, cuts))
        note_nulls(self._nulls, addresses[is_null])

    def done(self) -> BuiltZones:
        """Return all zones."""
        nulls = {fragment: bitmap.serialize() for fragment, bitmap in self._nulls.items()}
        pieces = self._pieces
        if not pieces.zone:
            return BuiltZones(ZoneMap.empty(self._type).to_batch(), nulls)
        zone = np.concatenate(pieces.zone)
        cuts = np.flatnonzero(np.diff(zone, prepend=-1))
        stops = np.append(cuts[1:], len(zone))
        first = np.concatenate(pieces.first)[cuts]
        last = np.concatenate(pieces.last)[stops - 1]
        nan_count = np.add.reduceat(np.concatenate(pieces.nan_count), cuts).astype(np.uint32)
        minimum, maximum = self._bounds(cuts, nan_count)
        zones = ZoneMap(
            minimum,
            maximum,
            np.add.reduceat(np.concatenate(pieces.null_count), cuts).astype(np.uint32),
            nan_count,
            first >> np.uint64(32),
            first & _OFFSETS,
            last - first + np.uint64(1),
        )
        return BuiltZones(zones.to_batch(), nulls)

    def _bounds(
        self, cuts: NDArray[np.int64], nan_count: NDArray[np.uint32]
    ) -> tuple[pa.Array, pa.Array]:
        """Compute the bounds of each zone from those of its pieces."""
        ends = pa.concat_arrays(self._pieces.ends)
        minimum, maximum = ends.field("min"), ends.field("max")
        if len(cuts) < len(ends):
            minimum = _ends(minimum, cuts).field("min")
            maximum = _ends(maximum, cuts).field("max")
        if pa.types.is_floating(minimum.type):
            minimum, maximum = _of_floats(minimum, maximum, nan_count)
        if pa.types.is_temporal(self._type):
            return minimum.view(self._type), maximum.view(self._type)
        return minimum.cast(self._type), maximum.cast(self._type)


def _ends(values: pa.Array, cuts: NDArray[np.int64]) -> pa.StructArray:
    """The fields min and max of the values from each cut to the next, null where all are."""
    stops = [*cuts[1:].tolist(), len(values)]
    # Arrow's group_by would find all at once, but imports pandas.
    return pa.concat_arrays(
        [
            pa.repeat(pc.min_max(values.slice(start, stop - start)), 1)
            for start, stop in zip(cuts.tolist(), stops, strict=True)
        ]
    )


def _of_floats(
    minimum: pa.Array, maximum: pa.Array, nan_count: NDArray[np.uint32]
) -> tuple[pa.Array, pa.Array]:
    """Bounds by the total order, in which -0.0 is less than 0.0 and NaN the greatest."""

    def number(value: float) -> pa.Scalar:
        return plain_array(np.array([value], plain_dtype(minimum.type)))[0]

    def with_zero(values: pa.Array, zero: float) -> pa.Array:
        is_zero = pc.equal(values, number(0.0))
        return pc.if_else(plain_array(numbers_with_default(False, is_zero)), number(zero), values)

    minimum, maximum = with_zero(minimum, -0.0), with_zero(maximum, 0.0)
    return minimum, pc.if_else(plain_array(nan_count > 0), number(np.nan), maximum)


Built = tuple[BuiltZones, ...]


@also_snake_case
@dataclass(frozen=True, slots=True)
class ZoneMapResult:
    """Result of an operation on zone maps.

    Attributes:
        version: The new version; None if there was nothing to do.
        columns: The columns whose zone maps are new.
        numFragments: Fragments that were scanned.
        numZones: Zones of all these columns.
    """

    version: int | None = None
    columns: tuple[str, ...] = ()
    numFragments: int = 0  # noqa: N815
    numZones: int = 0  # noqa: N815


@dataclass(frozen=True, slots=True)
class ZoneMapRequest:
    """A zone map to build."""

    column: ZonedColumn  # What it is of.
    name: str  # Of the index.
    replaced: tuple[IndexMetadata, ...]  # The entries that it takes the place of.
    kept: tuple[IndexMetadata, ...] = ()  # Those of them whose zones it takes over.


@dataclass(frozen=True, slots=True)
class ZoneMapPlan:
    """Zone maps to build; picklable."""

    change: DmlPlan  # The version that it was planned on.
    wanted: tuple[ZoneMapRequest, ...]  # The zone maps.
    tasks: tuple[ZoneMapTask, ...]  # What the executors do.
    fragments: frozenset[int] = field(default_factory=frozenset)  # Their fragments.


def create_zone_maps(
    table: Table,
    columns: Sequence[str],
    rows_per_zone: int | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
) -> ZoneMapResult:
    """Create a zone map of each column, replacing existing ones.

    ``columns``: Names; a field of a struct is ``struct.field``. ``rows_per_zone``: Live rows of a
    zone; None for 8192.
    """
    settings = settings or ChangeSettings()
    return _carry_out(
        table, lambda: plan_zone_maps(table, columns, rows_per_zone, settings), settings, run
    )


def refresh_zone_maps(
    table: Table, settings: ChangeSettings | None = None, *, run: RunTasks = run_local
) -> ZoneMapResult:
    """Add the zones of fragments that zone maps do not cover; drop those of removed ones."""
    settings = settings or ChangeSettings()
    return _carry_out(table, lambda: plan_refresh(table, settings), settings, run)


def _carry_out(
    table: Table, plan: Callable[[], ZoneMapPlan], settings: ChangeSettings, run: RunTasks
) -> ZoneMapResult:
    def attempt(work: UnitOfWork) -> ZoneMapResult:
        planned = plan()
        built = list(run(planned.tasks)) if planned.tasks else []
        return commit_zone_maps(planned, built, work)

    return UnitOfWork(table, settings).run(attempt)


def plan_zone_maps(
    table: Table, columns: Sequence[str], rows_per_zone: int | None, settings: ChangeSettings
) -> ZoneMapPlan:
    """Plan ``create_zone_maps``; write nothing."""
    change = plan_change(table, settings)
    snapshot = change.snapshot()
    wanted = [request_zone_map(snapshot, name, rows_per_zone) for name in columns]
    return plan_wanted(change, wanted)


def request_zone_map(
    snapshot: Snapshot,
    column: str,
    rows_per_zone: int | None,
    named: tuple[str, tuple[IndexMetadata, ...]] | None = None,
) -> ZoneMapRequest:
    """A zone map of a column.

    ``column``: A name; a field of a struct is ``struct.field``. ``rows_per_zone``: Live rows of a
    zone; None for 8192. ``named``: Its name, and the entries that it replaces;
    None for the zone maps that the column has.
    """
    rows_per_zone = ROWS_PER_ZONE if rows_per_zone is None else rows_per_zone
    check_rows_per_zone(rows_per_zone)
    path = named_path(snapshot.schema, column)
    check_can_have_zones(path[-1], column)
    zoned = ZonedColumn(tuple(part.name for part in path), path[-1], rows_per_zone)
    name, replaced = named or _named_as_before(snapshot, zoned)
    return ZoneMapRequest(zoned, name, replaced)


def plan_wanted(change: DmlPlan, wanted: Sequence[ZoneMapRequest]) -> ZoneMapPlan:
    """Plan zone maps of all fragments; write nothing."""
    if not wanted:
        raise InvalidInputError("a zone map of no column", hint="name one column or more")
    paths = [planned.column.path for planned in wanted]
    if len(set(paths)) < len(paths):
        named = ", ".join(".".join(path) for path in paths)
        raise InvalidInputError(f"a column is named twice in {named}")
    snapshot = change.snapshot()
    every = frozenset(snapshot.manifest.fragments.ids.tolist())
    return ZoneMapPlan(change, tuple(wanted), _tasks(snapshot, wanted, every), every)


def plan_refresh(table: Table, settings: ChangeSettings) -> ZoneMapPlan:
    """Plan ``refresh_zone_maps``; write nothing."""
    change = plan_change(table, settings)
    return plan_refresh_of(change, change.snapshot().indices)


def plan_refresh_of(change: DmlPlan, indices: Sequence[IndexMetadata]) -> ZoneMapPlan:
    """Plan the refresh of those of some entries that are zone maps; write nothing."""
    snapshot = change.snapshot()
    every = frozenset(snapshot.manifest.fragments.ids.tolist())
    by_name: dict[str, list[IndexMetadata]] = {}
    for index in indices:
        if is_zone_map(index):
            by_name.setdefault(index.name, []).append(index)
    wanted, missing = [], frozenset[int]()
    for name, entries in by_name.items():
        path = path_to(snapshot.schema.fields, entries[0].fields[0])
        uncovered = every - frozenset().union(*(index.fragment_bitmap or () for index in entries))
        if path is None or (len(entries) == 1 and not uncovered):
            continue
        details = table_pb2.ZoneMapIndexDetails.FromString(_details_of(entries[0]))
        column = ZonedColumn(
            tuple(part.name for part in path), path[-1], details.rows_per_zone or ROWS_PER_ZONE
        )
        wanted.append(ZoneMapRequest(column, name, tuple(entries), tuple(entries)))
        missing |= uncovered
    return ZoneMapPlan(change, tuple(wanted), _tasks(snapshot, wanted, missing), missing)


def commit_zone_maps(plan: ZoneMapPlan, built: Sequence[Built], work: UnitOfWork) -> ZoneMapResult:
    """Write the files of the indices and commit the version that has them."""
    if plan.change.is_done or not plan.wanted:
        return ZoneMapResult()
    operation, num_zones = assemble_zone_maps(plan, built, work)
    result = work.commit(
        work.propose(plan.change.base, operation, uuid=plan.change.transaction_uuid)
    )
    if result is None:
        return ZoneMapResult()
    names = tuple(".".join(planned.column.path) for planned in plan.wanted)
    return ZoneMapResult(result.version, names, len(plan.fragments), num_zones)


def assemble_zone_maps(
    plan: ZoneMapPlan, built: Sequence[Built], work: UnitOfWork
) -> tuple[CreateIndex, int]:
    """The operation that has the zone maps, whose files are there, and how many zones they have."""
    new, num_zones = [], 0
    snapshot = plan.change.snapshot()
    for number, planned in enumerate(plan.wanted):
        parts = [of_task[number] for of_task in built]
        entry, zones = _assemble_zone_map(snapshot, plan, planned, parts, work)
        new.append(entry)
        num_zones += zones
    replaced = tuple(entry for planned in plan.wanted for entry in planned.replaced)
    return CreateIndex(tuple(new), replaced), num_zones


def _assemble_zone_map(
    snapshot: Snapshot,
    plan: ZoneMapPlan,
    planned: ZoneMapRequest,
    parts: Sequence[BuiltZones],
    work: UnitOfWork,
) -> tuple[IndexMetadata, int]:
    """The entry of one zone map, whose file is there, and how many zones it has."""
    live = frozenset(snapshot.manifest.fragments.ids.tolist())
    zones, nulls, covered = _reuse_zones(snapshot, planned, live - plan.fragments)
    for part in parts:
        zones.append(ZoneMap.from_batch(part.rows))
        for fragment_id, bitmap in part.nulls.items():
            if nulls is not None:
                nulls[fragment_id] = nulls.get(fragment_id, BitMap()) | BitMap.deserialize(bitmap)
    everything = ZoneMap.concat(zones, planned.column.field.to_arrow().type)
    name = uuid.uuid4()
    path = index_path(name, ZONE_MAP_FILE)
    work.register_files([path])
    size = write_zone_map(snapshot.store, path, everything, planned.column.rows_per_zone, nulls)
    details = table_pb2.ZoneMapIndexDetails(
        rows_per_zone=planned.column.rows_per_zone,
        use_seeds=False,
        has_null_bitmap=nulls is not None,
    )
    entry = new_index_entry(
        planned.name,
        [planned.column.field.id],
        snapshot.version,
        covered | plan.fragments,
        IndexDetails(ZONE_MAP_DETAILS, ZONE_MAP_VERSION, details.SerializeToString()),
        IndexFiles(name, {ZONE_MAP_FILE: size}),
    )
    return entry, len(everything.start)


def _reuse_zones(
    snapshot: Snapshot, planned: ZoneMapRequest, unchanged: frozenset[int]
) -> tuple[list[ZoneMap], Nulls | None, frozenset[int]]:
    """Zones and nulls of fragments that are not looked at again, and which fragments these are."""
    zones: list[ZoneMap] = []
    nulls: Nulls | None = {}
    covered: frozenset[int] = frozenset()
    for entry in planned.kept:
        ids = frozenset(entry.fragment_bitmap or ()) & unchanged
        known, nulls_known = read_zones_and_nulls(snapshot.files, entry)
        zones.append(known.of_fragments(np.array(sorted(ids), np.uint64)))
        covered |= ids
        if nulls is None or nulls_known is None:
            nulls = None
            continue
        nulls |= {id_: bitmap for id_, bitmap in nulls_known.items() if id_ in ids}
    return zones, nulls, covered


def _named_as_before(
    snapshot: Snapshot, column: ZonedColumn
) -> tuple[str, tuple[IndexMetadata, ...]]:
    own = [e for e in snapshot.indices if is_zone_map(e) and e.fields == (column.field.id,)]
    taken = {entry.name for entry in snapshot.indices}
    spelled = ".".join(column.path)
    free = [f"{spelled}_idx", f"{spelled}_zonemap_idx"]
    chosen = own[0].name if own else next(word for word in free if word not in taken)
    return chosen, tuple(own)


def _details_of(entry: IndexMetadata) -> bytes:
    return table_pb2.IndexMetadata.FromString(entry.raw).index_details.value


def _tasks(
    snapshot: Snapshot, wanted: Sequence[ZoneMapRequest], fragments: frozenset[int]
) -> tuple[ZoneMapTask, ...]:
    """Whole fragments, about as many for each task as a scan would read."""
    if not wanted or not fragments:
        return ()
    top_level_names = dict.fromkeys(planned.column.path[0] for planned in wanted)
    request = ScanRequest(
        schema=project(snapshot.schema, list(top_level_names)), system_columns=(ROW_ADDRESS,)
    )
    columns = tuple(planned.column for planned in wanted)
    scans = only_fragments(plan_scan(snapshot, request), fragments)
    return tuple(ZoneMapTask(scan, columns) for scan in scans)
