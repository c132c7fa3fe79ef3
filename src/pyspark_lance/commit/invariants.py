"""Check the invariants of a manifest before it is written; pure, no I/O.

The numbers identify the invariants; the checks cost O(fragments).  Sequences are only checked in
new or changed fragments: faults of other writers are no reason to refuse a commit, but no new ones
are added.

Source: docs/format/table-format.md, section 14.
"""

from __future__ import annotations

from collections.abc import Set

from pyroaring import BitMap

from pyspark_lance.commit.assign_lineage import created_at_of, last_updated_at_of, row_ids_of
from pyspark_lance.commit.index_rules import MEM_WAL_INDEX, Indices
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.feature_flags import MEM_WAL, UNKNOWN_FIELDS
from pyspark_lance.format.feature_flags import check_writable as check_writable_flags
from pyspark_lance.format.fragment import (
    SPILLED,
    SPILLED_CREATED_AT,
    SPILLED_LAST_UPDATED_AT,
    SPILLED_ROW_ID,
    TOMBSTONE,
    Fragment,
)
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import (
    CreateIndex,
    Merge,
    Operation,
    Overwrite,
    Project,
    Restore,
    UpdateConfig,
)

_SCHEMA_CHANGES = (Overwrite, Merge, Project, UpdateConfig, Restore)


def check_writable(manifest: Manifest, indices: Indices, *, replaces_all: bool = False) -> None:
    """Reject tables with parts that a new version would lose or break.

    ``replaces_all``: whether the operation replaces all fragments.

    Raises:
        UnsupportedFeatureError: A feature flag, an unknown field, a write-ahead log, data files of
            several versions, or fragments with the same id.
    """
    check_writable_flags(manifest.reader_flags, manifest.writer_flags)
    if not replaces_all:
        manifest.check_file_versions()
        manifest.check_fragment_ids()
    if manifest.has_unknown_fields:
        raise UNKNOWN_FIELDS.refusal(
            "the manifest has fields of a newer format, which a new version would lose",
            f"version {manifest.version}",
        )
    if any(index.name == MEM_WAL_INDEX for index in indices):
        raise MEM_WAL.refusal(
            f"the table has a write-ahead log (MemWAL, index entry {MEM_WAL_INDEX}), whose rows "
            "this version does not read",
            f"version {manifest.version}",
        )


def check_next_manifest(
    current: Manifest | None,
    built: Manifest,
    indices: Indices,
    operation: Operation,
    touched: Set[int],
) -> None:
    """Check the invariants of a manifest that was just built.

    ``touched``: ids of new or changed fragments; unchanged ones are not checked.
    """
    _check_numbers(current, built, operation)
    _check_schema(current, built, operation)
    ids = built.fragments.ids
    _require(bool((ids[1:] > ids[:-1]).all()), "I1", "fragment ids ascend")
    before = Fragments.of(()) if current is None else current.fragments
    for fragment_id in sorted(touched):
        index, fragment = before.index_of(fragment_id), built.fragment(fragment_id)
        old = None if index is None else before[index]
        if old != fragment:
            _check_fragment(fragment, old, built)
    highest = int(ids[-1]) if len(ids) else -1
    _require(highest <= _highest_id(built), "I1", "no id is above max_fragment_id")
    _check_flags(built)
    # Every other operation only removes entries and coverage.
    if isinstance(operation, CreateIndex):
        _check_indices(built, indices)


def _require(holds: bool, invariant: str, text: str, fragment: Fragment | None = None) -> None:
    if not holds:
        where = f"fragment {fragment.id}" if fragment is not None else ""
        raise InvalidInputError(f"the commit would break invariant {invariant}: {text}", where)


def _highest_id(manifest: Manifest) -> int:
    return -1 if manifest.max_fragment_id is None else manifest.max_fragment_id


def _check_numbers(current: Manifest | None, built: Manifest, operation: Operation) -> None:
    """Check that counters never decrease."""
    if current is None:
        _require(built.version == 1, "I14", "the first version is 1")
        return
    _require(built.version == current.version + 1, "I14", "versions are consecutive")
    _require(_highest_id(built) >= _highest_id(current), "I1", "max_fragment_id never goes down")
    _require(built.next_row_id >= current.next_row_id, "I6", "next_row_id never goes down")
    stable = built.uses_stable_row_ids == current.uses_stable_row_ids
    gives_ids = isinstance(operation, Merge) and built.uses_stable_row_ids
    _require(stable or gives_ids, "I5", "stable row ids stay, or are given to all rows at once")


def _check_schema(current: Manifest | None, built: Manifest, operation: Operation) -> None:
    """Check that field ids are unique and that only schema operations change the schema."""
    seen: set[int] = set()
    for field in built.schema.walk():
        _require(field.id >= 0 and field.id not in seen, "I2", f"field id {field.id} is unique")
        seen.add(field.id)
    if current is not None and not isinstance(operation, _SCHEMA_CHANGES):
        _require(built.schema == current.schema, "I11", "the schema stays")


def _check_fragment(fragment: Fragment, old: Fragment | None, built: Manifest) -> None:
    """Check files, counts and lineage of a new or changed fragment."""
    live: set[int] = set()
    bases = {base.id for base in built.base_paths}
    for file in fragment.files:
        # Fields of 0.1 files are located by id.
        is_legacy = file.file_version == "0.1" and not file.column_indices
        columns = is_legacy or len(file.column_indices) == len(file.fields)
        _require(columns, "I3", "each field of a file has a column", fragment)
        alive = [field for field in file.fields if field != TOMBSTONE]
        _require(bool(alive), "I3", "a data file has a field that is alive", fragment)
        once = live.isdisjoint(alive) and len(set(alive)) == len(alive)
        _require(once, "I3", "a field is in one file", fragment)
        live.update(alive)
        _require(file.base_id is None or file.base_id in bases, "I9", "base ids exist", fragment)
    deletions = fragment.deletion_file
    if deletions is not None:
        count = deletions.num_deleted_rows
        _require(0 < count < fragment.physical_rows, "I4", "some rows are left", fragment)
        known = deletions.base_id is None or deletions.base_id in bases
        _require(known, "I9", "base ids exist", fragment)
    _require(fragment.physical_rows > 0, "I4", "a fragment has rows", fragment)
    if old is not None:
        same = old.physical_rows in (0, fragment.physical_rows)
        _require(same, "I11", "physical_rows of a fragment never changes", fragment)
    if built.uses_stable_row_ids:
        _check_lineage(fragment, old, built)


def _check_lineage(fragment: Fragment, old: Fragment | None, built: Manifest) -> None:
    """Check row id and version sequences that are new or changed."""
    for source, field_id in (
        (fragment.row_ids, SPILLED_ROW_ID),
        (fragment.created_at, SPILLED_CREATED_AT),
        (fragment.last_updated_at, SPILLED_LAST_UPDATED_AT),
    ):
        is_stored = source is not SPILLED or any(field_id in file.fields for file in fragment.files)
        _require(is_stored, "I5", f"a data file has the hidden column {field_id}", fragment)
    # Hidden columns were checked when they were written.
    if fragment.row_ids is not SPILLED and (old is None or old.row_ids != fragment.row_ids):
        row_ids = row_ids_of(fragment)
        _require(row_ids is not None, "I5", "every fragment has row ids", fragment)
        assert row_ids is not None  # the line above says so
        _require(len(row_ids) == fragment.physical_rows, "I5", "one row id per row", fragment)
        bounds = row_ids.bounds()
        used = bounds is None or bounds[1] < built.next_row_id
        _require(used, "I5", "row ids are below next_row_id", fragment)
    if old is not None and (
        old.created_at == fragment.created_at and old.last_updated_at == fragment.last_updated_at
    ):
        return
    created = None if fragment.created_at is SPILLED else created_at_of(fragment)
    updated = None if fragment.last_updated_at is SPILLED else last_updated_at_of(fragment)
    for versions in (created, updated):
        if versions is not None:
            whole = len(versions) == fragment.physical_rows
            _require(whole, "I7", "one version per row", fragment)
            inside = (versions.min_version or 0) >= 1 and (
                versions.max_version or 0
            ) <= built.version
            _require(inside, "I7", "versions lie between 1 and the new one", fragment)
    if created is None or updated is None or created == updated:
        return
    ordered = (created.max_version or 0) <= (updated.min_version or 0) or bool(
        (created.to_array() <= updated.to_array()).all()
    )
    _require(ordered, "I7", "rows are created before they are updated", fragment)


def _check_flags(built: Manifest) -> None:
    """Check that the feature flags match the manifest."""
    reader, writer = built.reader_flags, built.writer_flags
    columns = built.fragments.columns
    deletions = bool(columns.has_deletions.any())
    for bit, present, words in (
        (1, deletions, (reader, writer)),
        (2, built.uses_stable_row_ids, (reader, writer)),
        (8, bool(built.config), (writer,)),
        (16, bool(built.base_paths), (reader, writer)),
    ):
        for word in words:
            _require(bool(word & bit) == present, "I8", f"flag {bit} matches the manifest")
    has_ids = bool(columns.has_row_ids.all())
    _require(has_ids or not built.uses_stable_row_ids, "I5", "every fragment has row ids")
    check_writable_flags(reader, writer)


def _check_indices(built: Manifest, indices: Indices) -> None:
    """Check that indexed fields exist and segments of one index do not overlap."""
    present = {field.id for field in built.schema.walk()}
    covered: dict[str, BitMap] = {}
    for index in indices:
        exists = present.issuperset(index.fields)
        _require(exists, "I10", f"the columns of index {index.name!r} exist")
        if index.fragment_bitmap is not None and index.fields:
            others = covered.setdefault(index.name, BitMap())
            disjoint = others.isdisjoint(index.fragment_bitmap)
            _require(disjoint, "I10", f"segments of index {index.name!r} do not overlap")
            others |= index.fragment_bitmap
