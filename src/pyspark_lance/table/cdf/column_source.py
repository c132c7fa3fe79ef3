"""Columns of an earlier version, converted to the type of a later one.

Columns and their parts, at any depth, are paired by identity. What a version lacks reads as null,
and so does every single value that the requested type cannot represent.

A column keeps its field id through renames. It gets another one when its type changes, an overwrite
or the restoring of a version may give the ids of one column to another, and the id of a dropped
column may be assigned again. So columns and their parts are followed from version to version. Where
it is unknown how one version became the next (versions between were removed, or a transaction was),
ids are trusted as far as data files confirm their meaning, and names beyond that.

Source: docs/format/table-format.md, sections 3, 3.4, 3.5, 8.4 and 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_located, logical_field
from pyspark_lance.format.operation import Overwrite, Restore
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.manifest_file import list_versions, load_transaction
from pyspark_lance.plain_values import numbers_with_default, plain_dtype, plain_numbers
from pyspark_lance.table.rows.conform import arrow_cast
from pyspark_lance.table.scan.fragment_pruning import UNKNOWN_BOUNDS, row_id_bounds
from pyspark_lance.table.version.snapshot import Snapshot

# What the texts of numbers are made of: all that can be read as one is among these.
_INTEGER_TEXT = r"^[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)$"
_NUMBER_TEXT = r"^\s*[-+]?([0-9.]+([eE][-+]?[0-9]+)?|(?i:nan|inf|infinity))\s*$"
_TIME_TEXT = r"^[-+]?[0-9]"
_FLAG_TEXT = r"^(?i:true|false|[01])$"


def cast_values(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """``values`` as ``data_type``; those that it does not hold exactly are null."""
    if values.type.equals(data_type):
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_struct(data_type) and pa.types.is_struct(values.type):
        return _cast_struct(values, data_type)
    try:
        return arrow_cast(values, data_type)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(values), data_type)
    except pa.ArrowInvalid:
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        return _cast_distinct(_null_uncastable(values, data_type), data_type)


def _cast_struct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Members by name."""
    names = [member.name for member in values.type]
    members = [
        cast_values(values.field(names.index(member.name)), member.type)
        if member.name in names
        else pa.nulls(len(values), member.type)
        for member in data_type
    ]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(data_type), mask=mask)


def _null_uncastable(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Set values to null that the type cannot represent, as far as one check shows."""
    types, own = pa.types, values.type
    if types.is_string(own) or types.is_large_string(own):
        if types.is_integer(data_type):
            is_parsable = pc.match_substring_regex(values, _INTEGER_TEXT)
        elif types.is_floating(data_type) or types.is_decimal(data_type):
            is_parsable = pc.match_substring_regex(values, _NUMBER_TEXT)
        elif types.is_boolean(data_type):
            is_parsable = pc.match_substring_regex(values, _FLAG_TEXT)
        elif types.is_temporal(data_type):
            is_parsable = pc.match_substring_regex(values, _TIME_TEXT)
        else:
            return values
    elif types.is_integer(data_type) and (types.is_integer(own) or types.is_floating(own)):
        bounds = np.iinfo(plain_dtype(data_type))
        low, high = (_clamp_to_type(int(bound), own) for bound in (bounds.min, bounds.max))
        is_parsable = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        if types.is_floating(own):
            is_parsable = pc.and_(is_parsable, pc.equal(pc.trunc(values), values))
    elif (types.is_integer(own) and types.is_floating(data_type) and data_type != pa.float16()) or (
        types.is_timestamp(own) and types.is_timestamp(data_type)
    ):
        back = values.cast(data_type, safe=False).cast(own, safe=False)
        is_parsable = pc.equal(back, values)
    else:
        return values
    return pc.if_else(is_parsable, values, pa.scalar(None, own))


def _clamp_to_type(number: int, data_type: pa.DataType) -> pa.Scalar:
    """The number in the type, or the nearest one that it has on the way to 0."""
    if pa.types.is_floating(data_type):
        nearest = np.array([number]).astype(plain_dtype(data_type))[0]
        if abs(int(nearest)) > abs(number):
            nearest = np.nextafter(nearest, nearest.dtype.type(0))
        return pa.scalar(nearest, data_type)
    bounds = np.iinfo(plain_dtype(data_type))
    return pa.scalar(max(int(bounds.min), min(int(bounds.max), number)), data_type)


def _cast_distinct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast each value once, however often it occurs."""
    if values.type.num_fields:
        return _cast_some(values, data_type)
    encoded = values.dictionary_encode()
    return _cast_some(encoded.dictionary, data_type).take(encoded.indices)


def _cast_some(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast by halves, so that only values that cannot be cast become null."""
    try:
        return arrow_cast(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        if len(values) <= 1:
            return pa.nulls(len(values), data_type)
    half = len(values) // 2
    parts = [_cast_some(part, data_type) for part in (values.slice(0, half), values.slice(half))]
    return pa.concat_arrays(parts)


Find = Callable[[Field, Sequence[Field]], Field | None]
"""Which of some stored fields is the column that is shown."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Source of the values of a column, or of a part of one."""

    shown: Field
    read: Field | None  # What is read for it, in a logical view too; None if there is nothing.
    # For each child of ``shown`` where it comes from; empty where there is nothing to distinguish
    # below.
    parts: tuple[ColumnSource, ...] = ()

    def column(self, array: pa.Array | None, num_rows: int) -> pa.Array:
        """The column, from the array that was read for ``read``."""
        if array is None:
            return pa.nulls(num_rows, self.shown.to_arrow().type)
        return array if self.read is self.shown else _as_shown(array, self)

    def with_blobs(self) -> ColumnSource:
        """The same with the bytes of blobs instead of where they are."""
        return ColumnSource(
            logical_field(self.shown, binary_blobs=True),
            None if self.read is None else logical_field(self.read, binary_blobs=True),
            tuple(part.with_blobs() for part in self.parts),
        )


def column_source(shown: Field, stored: Sequence[Field], find: Find) -> ColumnSource:
    """Return the source of a column.

    ``find``: returns the stored field of a column, and the stored part of each of its parts.
    """
    return _source(shown, stored, find, whole=False)


def _source(shown: Field, stored: Sequence[Field], find: Find, *, whole: bool) -> ColumnSource:
    own = find(shown, stored)
    if own is None:
        return ColumnSource(shown, None)
    as_bytes = shown.is_blob and not shown.children
    read = logical_field(own, binary_blobs=as_bytes, located=is_located(shown))
    if not _have_equal_types(shown, own):
        return ColumnSource(shown, shown if read == shown else read)
    # Not every file gives single members of these.
    whole = whole or own.is_packed or not (own.is_struct or own.is_list)
    parts = tuple(_source(child, own.children, find, whole=whole) for child in shown.children)
    there = tuple(part.read for part in parts if part.read is not None)
    others = (_source(child, own.children, find, whole=whole) for child in shown.left_out)
    left_out = tuple(other.read for other in others if other.read is not None)
    if not there and not left_out:
        # The members that the feed has say whether there is a struct.
        return ColumnSource(shown, None)
    if not whole:
        read = replace(own, children=there or left_out[:1], left_out=left_out)
    if read == shown:
        return ColumnSource(shown, shown)
    return ColumnSource(shown, read, parts)


def _have_equal_types(left: Field, right: Field) -> bool:
    """Return whether both have parts of one kind that can be distinguished."""
    if left.is_blob or right.is_blob or not left.children or not right.children:
        return False
    kinds = [(f.is_struct, f.is_list, f.is_map, f.is_fixed_size_list) for f in (left, right)]
    return kinds[0] == kinds[1] and (
        not left.is_fixed_size_list or left.logical_type == right.logical_type
    )


def _as_shown(values: pa.Array, source: ColumnSource) -> pa.Array:
    data_type = source.shown.to_arrow().type
    if not source.parts:
        return cast_values(values, data_type)
    if source.shown.is_struct:
        return _struct(values, source, data_type)
    if source.shown.is_map:
        return _map(values, source.parts[0], data_type)
    if source.shown.is_fixed_size_list:
        size = data_type.list_size
        items = values.values.slice(values.offset * size, len(values) * size)
        items = source.parts[0].column(items, len(items))
        mask = pc.is_null(values) if values.null_count else None
        return pa.FixedSizeListArray.from_arrays(items, type=data_type, mask=mask)
    lengths = numbers_with_default(0, pc.list_value_length(values))
    items = values.flatten()
    return _lists(data_type, lengths, _validity(values), source.parts[0].column(items, len(items)))


def _struct(values: pa.Array, source: ColumnSource, data_type: pa.DataType) -> pa.Array:
    assert source.read is not None
    field_indices = {child.id: index for index, child in enumerate(source.read.children)}
    members = [
        part.column(
            None if part.read is None else values.field(field_indices[part.read.id]), len(values)
        )
        for part in source.parts
    ]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(data_type), mask=mask)


def _map(values: pa.Array, entries: ColumnSource, data_type: pa.DataType) -> pa.Array:
    offsets = plain_numbers(values.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    pairs = [values.keys.slice(first, last - first), values.items.slice(first, last - first)]
    shown = entries.column(pa.StructArray.from_arrays(pairs, names=["key", "value"]), last - first)
    valid = np.asarray(values.is_valid())
    null_keys = np.flatnonzero(np.asarray(shown.field(0).is_null()))
    # A key is never null: a map with an unknown key is unknown.
    valid[np.searchsorted(offsets - first, null_keys, side="right") - 1] = False
    return _lists(data_type, np.diff(offsets), valid, shown)


def _lists(
    data_type: pa.DataType, lengths: NDArray[np.integer], valid: NDArray[np.bool_], items: pa.Array
) -> pa.Array:
    """Lists or maps of ``data_type`` with these items, end to end."""
    wide = pa.types.is_large_list(data_type)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64 if wide else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        data_type, len(lengths), [bits, pa.py_buffer(offsets)], children=[items]
    )


def _validity(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_valid())


_IsSame = Callable[[Field, Field], bool]
"""Whether two fields of one id, of an older and of a newer version, are the same column."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one version.

    ``column_of``: field id -> number of the column, or of the part of one.
    """

    schema: LanceSchema
    column_of: Mapping[int, int]


class ColumnHistory:
    """Identity of columns through the versions of a change feed."""

    def __init__(self) -> None:
        self._versions: dict[int, _Columns] = {}
        self._first: Snapshot | None = None
        self._next_column = 0
        self._are_constant = True
        # Versions of before the first one that came back, each with one that has its columns.
        self._restored: dict[int, Snapshot] = {}

    def follow(self, before: Snapshot | None, after: Snapshot) -> None:
        """Advance to the next existing version; ``before`` is None if there is none before it."""
        if self._first is None:
            self._first = before or after
            self._versions[self._first.version] = self._following(self._first.schema, {})
        if before is None:
            return
        old = self._versions[before.version]
        has_equal_fields = after.schema.fields == old.schema.fields
        if has_equal_fields and self._are_constant and not may_restore_columns(before, after):
            self._versions[after.version] = old
            return
        operation = None
        if after.version == before.version + 1:
            transaction = load_transaction(after.store, after.file)
            operation = None if transaction is None else transaction.operation
        if has_equal_fields and not isinstance(operation, Restore):
            self._versions[after.version] = old
            return
        self._are_constant = False
        if isinstance(operation, Restore):
            self._versions[after.version] = self._restore_columns(after, operation.version)
        else:
            if operation is None:
                is_same = _by_evidence(before, after)
            else:
                is_same = _never if isinstance(operation, Overwrite) else _always
            self._versions[after.version] = self._next(old, after.schema, is_same)

    def have_same_columns(self, version: int, later: int) -> bool:
        """Return whether no column changed between two versions; False if unknown."""
        return self._versions[version] is self._versions[later]

    def sources(self, wanted: Sequence[Field], end: int, version: int) -> tuple[ColumnSource, ...]:
        """Return the sources in ``version`` of the ``wanted`` columns of the version ``end``."""
        last, there = self._versions[end].column_of, self._versions[version]

        def find(shown: Field, stored: Sequence[Field]) -> Field | None:
            number = last[shown.id]
            return next((field for field in stored if there.column_of[field.id] == number), None)

        return tuple(column_source(field, there.schema.fields, find) for field in wanted)

    def visible_ids(self, version: int, end: int) -> frozenset[int]:
        """The fields of ``version`` whose values are seen in the columns of the version ``end``."""
        last = set(self._versions[end].column_of.values())
        there = self._versions[version].column_of
        return frozenset(field_id for field_id, column in there.items() if column in last)

    def added_field_ids(self, before: int, after: int) -> frozenset[int]:
        """The fields of a version that are no column, or part of one, of the one before it."""
        there = set(self._versions[before].column_of.values())
        here = self._versions[after].column_of
        return frozenset(field_id for field_id, column in here.items() if column not in there)

    def _restore_columns(self, after: Snapshot, version: int) -> _Columns:
        """The columns of a restored version."""
        if version in self._versions:
            return self._versions[version]
        # It comes from before all versions that are known, and so may others have.  The columns
        # of those are known, too: one that came back before is the same when it comes again.
        known = self._known_before(after, version)
        columns = self._following(after.schema, known)
        self._versions[version] = columns
        self._restored[version] = after
        return columns

    def _known_before(self, after: Snapshot, version: int) -> dict[int, int]:
        """Field id -> number of the column, for known columns of a restored version."""
        assert self._first is not None
        others = {self._first.version: self._first, **self._restored}
        past = _follow_columns(after, min(version, *others), self._first.version)
        same: dict[int, int] = {}
        if past is not None and version in past:
            known: dict[int, int] = {}
            for other in others.keys() & past.keys():
                numbers = self._versions[other].column_of
                known |= {past[other][field_id]: number for field_id, number in numbers.items()}
                del others[other]
            same = {
                field_id: known[column]
                for field_id, column in past[version].items()
                if column in known
            }
        # How it led to these, or these to it, is unknown.
        for other, snapshot in others.items():
            columns, is_same = self._versions[other], _by_evidence(snapshot, after)
            for new_id, old_id in _same_fields(columns.schema.fields, after.schema.fields, is_same):
                number = columns.column_of[old_id]
                if number not in same.values():
                    same.setdefault(new_id, number)
        return same

    def _next(self, old: _Columns, schema: LanceSchema, is_same: _IsSame) -> _Columns:
        same = dict(_same_fields(old.schema.fields, schema.fields, is_same))
        return self._following(
            schema, {new_id: old.column_of[old_id] for new_id, old_id in same.items()}
        )

    def _following(self, schema: LanceSchema, known: Mapping[int, int]) -> _Columns:
        column_of = {}
        for field in schema.walk():
            if field.id not in known:
                self._next_column += 1
            column_of[field.id] = known.get(field.id, self._next_column)
        return _Columns(schema, column_of)


def _follow_columns(
    snapshot: Snapshot, first: int, last: int
) -> dict[int, Mapping[int, int]] | None:
    """Version -> field id -> number of the column, of those from ``first`` on that are there.

    None if ``last`` was removed.
    """
    store = snapshot.store
    locations = [location for location in list_versions(store) if first <= location.version <= last]
    if not locations or locations[-1].version != last:
        return None
    history, before = ColumnHistory(), None
    for location in locations:
        after = Snapshot.load(snapshot.table, store, location)
        history.follow(before, after)
        before = after
    return {version: columns.column_of for version, columns in history._versions.items()}


def may_restore_columns(before: Snapshot, after: Snapshot) -> bool:
    """Return whether a restore may bring back a column, though both versions have the same fields.

    A dropped column may have left its id, name and type to another one.  Then files reappear that
    the version before had lost.
    """
    only_before, only_after = before.manifest.fragments.differing(after.manifest.fragments)
    kept = {fragment.id: fragment.files for fragment in only_before}
    newest = before.manifest.max_fragment_id
    has_lost_files = newest is not None and any(
        fragment.id <= newest and kept.get(fragment.id) != fragment.files for fragment in only_after
    )
    if not has_lost_files or after.version != before.version + 1:
        return False
    transaction = load_transaction(after.store, after.file)
    return transaction is not None and isinstance(transaction.operation, Restore)


def _always(old: Field, new: Field) -> bool:
    del old, new
    return True


def _never(old: Field, new: Field) -> bool:
    del old, new
    return False


def _by_evidence(before: Snapshot, after: Snapshot) -> _IsSame:
    """Columns of two versions between which the operations are unknown.

    An id in a data file of both versions is the same column.  An id is assigned again
    only when no larger one is in use, so no id below that of such a column has changed its meaning.
    """
    listed = {
        (file.path, file.base_id): file.fields
        for fragment in before.manifest.fragments
        for file in fragment.files
    }
    proven: set[int] = set()
    for fragment in after.manifest.fragments:
        for file in fragment.files:
            proven.update(set(listed.get((file.path, file.base_id), ())) & set(file.fields))
    if not proven:
        if not _share_rows(before, after):
            return _never  # after an overwrite, ids mean nothing
        kinds = {field.id: (field.name, field.logical_type) for field in before.schema.walk()}
        for field in after.schema.walk():
            if kinds.get(field.id) == (field.name, field.logical_type):
                proven.add(field.id)
    bound = max(proven, default=-1)
    return lambda old, new: new.id <= bound or old.name == new.name


def _share_rows(before: Snapshot, after: Snapshot) -> bool:
    """Return whether the versions may share row ids: after an overwrite, all are new."""
    (low, high), (other_low, other_high) = map(_row_ids_within, (before, after))
    return max(low, other_low) <= min(high, other_high)


def _row_ids_within(snapshot: Snapshot) -> tuple[int, int]:
    sources = [fragment.row_ids for fragment in snapshot.manifest.fragments]
    bounds = [
        row_id_bounds(source) if isinstance(source, bytes) else UNKNOWN_BOUNDS for source in sources
    ]
    return min((low for low, _ in bounds), default=1), max((high for _, high in bounds), default=0)


def _same_fields(
    old: Sequence[Field], new: Sequence[Field], is_same: _IsSame
) -> Iterator[tuple[int, int]]:
    """(New id, old id) of fields that are the same column, at any depth."""
    old_of = {field.id: field for field in old}
    by_id = {field.id for field in new if field.id in old_of and is_same(old_of[field.id], field)}
    # A column whose type changed is a new column instead of the old one.
    removed = {field.name: field for field in old if field.id not in by_id}
    for field in new:
        other = old_of[field.id] if field.id in by_id else removed.get(field.name)
        if other is not None:
            yield from _same_parts(other, field, is_same)


def _same_parts(old: Field, new: Field, is_same: _IsSame) -> Iterator[tuple[int, int]]:
    """Yield pairs as ``_same_fields``, for two fields that are the same column."""
    yield new.id, old.id
    if new.is_struct:
        yield from _same_fields(old.children, new.children, is_same)
        return
    # The items of lists, and keys and values of maps, are identified by their positions.
    pairs = list(zip(old.children, new.children, strict=False))
    if new.is_map and old.is_map:
        yield from ((new_part.id, old_part.id) for old_part, new_part in pairs)
        pairs = [
            pair
            for entries in pairs
            for pair in zip(entries[0].children, entries[1].children, strict=False)
        ]
    for old_part, new_part in pairs:
        yield from _same_parts(old_part, new_part, is_same)
