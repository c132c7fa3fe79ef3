"""ManifestBuilder: the next version under construction; pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyspark_lance.commit.assign_lineage import assign_lineage
from pyspark_lance.commit.fragment_changes import FragmentsById
from pyspark_lance.commit.index_rules import Indices
from pyspark_lance.errors import CommitConflictError, InvalidInputError
from pyspark_lance.format.feature_flags import MIXED_FILE_VERSIONS, SPILLED_LINEAGE, compute_flags
from pyspark_lance.format.fragment import MAX_FRAGMENT_ID, TOMBSTONE, Fragment
from pyspark_lance.format.manifest import BasePath, Manifest, WriterVersion
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.version import __version__

# With a library name other than "lance", Lance applies no repairs for bugs of its old releases.
WRITER_VERSION = WriterVersion(library="pyspark-lance", version=__version__)


@dataclass(frozen=True, slots=True)
class TableState:
    """One version: a manifest and its index entries."""

    manifest: Manifest
    indices: Indices = ()


@dataclass(slots=True)
class ManifestBuilder:
    """The next version under construction."""

    base: Manifest
    version: int
    schema: LanceSchema
    fragments: FragmentsById
    indices: Indices
    max_fragment_id: int | None
    next_row_id: int
    data_storage_version: str
    config: Mapping[str, str]
    table_metadata: Mapping[str, str]
    base_paths: tuple[BasePath, ...]
    touched: set[int] = field(default_factory=set)  # Ids of fragments that are new or changed.

    @classmethod
    def of(cls, state: TableState) -> ManifestBuilder:
        """Return a builder initialized from a version."""
        manifest = state.manifest
        return cls(
            base=manifest,
            version=manifest.version + 1,
            schema=manifest.schema,
            fragments=FragmentsById(manifest.fragments),
            indices=state.indices,
            max_fragment_id=manifest.max_fragment_id,
            next_row_id=manifest.next_row_id,
            data_storage_version=manifest.file_version,
            config=manifest.config,
            table_metadata=manifest.table_metadata,
            base_paths=manifest.base_paths,
        )

    @property
    def stable(self) -> bool:
        """Return whether rows have stable ids."""
        return self.base.uses_stable_row_ids

    def existing(self, fragment_id: int) -> Fragment:
        """Return the current state of a fragment."""
        fragment = self.fragments.get(fragment_id)
        if fragment is None:
            raise CommitConflictError(
                f"fragment {fragment_id} is not in version {self.version - 1}",
                hint="run the operation again on the newest version",
            )
        return fragment

    def put(self, fragment: Fragment) -> None:
        """Add or replace a fragment."""
        self.fragments[fragment.id] = fragment
        self.touched.add(fragment.id)

    def remove(self, fragment_ids: Iterable[int]) -> None:
        """Remove existing fragments."""
        for fragment_id in fragment_ids:
            self.existing(fragment_id)
            del self.fragments[fragment_id]

    def with_id(self, fragment: Fragment) -> Fragment:
        """Return a new fragment with its id: id 0 is unassigned, other ids were reserved."""
        highest = -1 if self.max_fragment_id is None else self.max_fragment_id
        fragment_id = fragment.id or highest + 1
        if fragment_id > MAX_FRAGMENT_ID:
            raise InvalidInputError("the table has used up its 2^32 fragment ids")
        if fragment_id in self.fragments:
            raise InvalidInputError(f"new fragment {fragment_id} has the id of an existing one")
        self.max_fragment_id = max(highest, fragment_id)
        return replace(fragment, id=fragment_id)

    def add_rows(self, fragment: Fragment, sources: Iterable[Fragment] = ()) -> None:
        """Add a fragment whose rows are new, or were moved from ``sources``."""
        self._check_file_versions(fragment)
        fragment = self.with_id(fragment)
        if self.stable:
            fragment, self.next_row_id = assign_lineage(
                fragment, next_row_id=self.next_row_id, version=self.version, sources=sources
            )
        self.put(fragment)

    def _check_file_versions(self, fragment: Fragment) -> None:
        """Check that the table has one file version, unless Lance mixed them already."""
        if not self.data_storage_version or self.base.reader_flags & MIXED_FILE_VERSIONS:
            return
        for file in fragment.files:
            if file.file_version != self.data_storage_version:
                raise InvalidInputError(
                    f"a data file of version {file.file_version} for a table of version "
                    f"{self.data_storage_version}",
                    file.path,
                )

    def _has_spilled_lineage(self) -> bool:
        """Return whether hidden columns have lineage; without the flag only in new fragments."""
        if self.base.reader_flags & SPILLED_LINEAGE:
            return any(fragment.has_spilled_lineage for fragment in self.fragments.values())
        return any(self.fragments[key].has_spilled_lineage for key in self.touched)

    def finish(self, *, tag: str, now_ns: int) -> TableState:
        """Return the manifest with all derived fields."""
        self.touched = {one for one in self.touched if one in self.fragments}
        for fragment_id in self.touched:
            self.fragments[fragment_id] = _without_dead_files(self.fragments[fragment_id])
        fragments = self.fragments.fragments()
        allocated = self.base.max_allocated_field_id
        if allocated is not None:
            allocated = max(allocated, self.schema.max_field_id)
        manifest = replace(
            self.base,
            version=self.version,
            schema=self.schema,
            fragments=fragments,
            # Time travel uses timestamps, so they never decrease, even if the clock does.
            timestamp_ns=max(now_ns, self.base.timestamp_ns + 1),
            tag=tag,
            max_fragment_id=self.max_fragment_id,
            transaction_file="",
            writer_version=WRITER_VERSION,
            next_row_id=self.next_row_id,
            data_storage_version=self.data_storage_version,
            config=self.config,
            table_metadata=self.table_metadata,
            base_paths=self.base_paths,
            max_allocated_field_id=allocated,
            index_section=None,
            transaction_section=None,
        )
        reader_flags, writer_flags = compute_flags(
            has_deletion_files=bool(fragments.columns.has_deletions.any()),
            stable_row_ids=self.stable,
            has_config=bool(self.config),
            has_base_paths=bool(self.base_paths),
            has_spilled_lineage=self._has_spilled_lineage(),
            manages_blobs=self.schema.manages_blobs,
            keeps_field_ids=allocated is not None,
            previous=(self.base.reader_flags, self.base.writer_flags),
        )
        return TableState(
            replace(manifest, reader_flags=reader_flags, writer_flags=writer_flags), self.indices
        )


def _without_dead_files(fragment: Fragment) -> Fragment:
    """Drop the data files without a live column."""
    alive = tuple(f for f in fragment.files if any(field != TOMBSTONE for field in f.fields))
    return fragment if len(alive) == len(fragment.files) else replace(fragment, files=alive)
