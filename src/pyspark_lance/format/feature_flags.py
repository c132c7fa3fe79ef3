"""Feature flags: which tables can be read and written, and the flags of the next version.

A manifest has one word for readers and one for writers. A client refuses a table with a bit that it
does not implement.

Source: docs/format/table-format.md, section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError

DELETION_FILES: Final = 1
STABLE_ROW_IDS: Final = 2
V2_FORMAT: Final = 4
TABLE_CONFIG: Final = 8
BASE_PATHS: Final = 16
NO_TRANSACTION_FILES: Final = 32
DATA_OVERLAYS: Final = 64
COVERED_INDEXES: Final = 128
MIXED_FILE_VERSIONS: Final = 256
TAGGED_FRAGMENT_REUSE: Final = 1024
SPILLED_LINEAGE: Final = 2048
CLUSTERING_METADATA: Final = 4096
MANAGED_BLOBS: Final = 16384
NON_REUSABLE_FIELD_IDS: Final = 32768
ZONE_WRITE_SEED: Final = 65536

_KNOWN = "Lance 14.0.2"
_NEWER = "a Lance newer than 14.0.2"

# Features that may be readable but not writable: name, and implementations.
_FEATURES: Final = {
    DATA_OVERLAYS: (
        "data overlay files",
        "Lance 14.0.2 where `LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES` is set",
    ),
    TAGGED_FRAGMENT_REUSE: ("tagged fragment-reuse index", _KNOWN),
    SPILLED_LINEAGE: ("lineage spilled to hidden columns", _KNOWN),
    CLUSTERING_METADATA: ("clustering metadata", _NEWER),
    MANAGED_BLOBS: ("managed blobs", _KNOWN),
    NON_REUSABLE_FIELD_IDS: ("non-reusable field ids", _KNOWN),
    ZONE_WRITE_SEED: ("zone write seed", _NEWER),
}


@dataclass(frozen=True, slots=True)
class Unflagged:
    """A feature without a flag."""

    name: str
    read: str
    written: str
    known_by: str

    def refusal(self, what: str, where: str = "") -> UnsupportedFeatureError:
        """Return the error for a table with the feature."""
        hint = f"use a newer version of this package, or a client with it: {self.known_by}"
        return UnsupportedFeatureError(what, where, hint)


_OVERLAYS_KNOWN = _FEATURES[DATA_OVERLAYS][1]
FILES_2_3: Final = Unflagged(
    "data files of version 2.3", "no", "no", f"{_KNOWN}, which calls them unstable"
)
FRAGMENT_TREE: Final = Unflagged("fragments in a tree (manifest field 22)", "no", "no", _KNOWN)
FRAGMENT_OVERLAYS: Final = Unflagged("data overlays of a fragment", "no", "no", _OVERLAYS_KNOWN)
UNKNOWN_FIELDS: Final = Unflagged("unknown fields of a manifest", "yes", "no", _NEWER)
TRANSACTIONS_V2: Final = Unflagged(
    "Transactions V2 (operation 116), committed concurrently",
    "yes", "not over them: a conflict, `UnknownOperation`", _NEWER,
)  # fmt: skip
OTHER_OPERATIONS: Final = replace(
    TRANSACTIONS_V2, name="other unknown operations, committed concurrently"
)
MEM_WAL: Final = Unflagged("a write-ahead log (MemWAL)", "without its rows", "no", _KNOWN)
_UNFLAGGED: Final = (
    FILES_2_3, FRAGMENT_TREE, FRAGMENT_OVERLAYS, UNKNOWN_FIELDS, TRANSACTIONS_V2, OTHER_OPERATIONS,
    MEM_WAL,
)  # fmt: skip

_WRITABLE: Final = (
    DELETION_FILES
    | STABLE_ROW_IDS
    | V2_FORMAT
    | TABLE_CONFIG
    | BASE_PATHS
    | NO_TRANSACTION_FILES
    | COVERED_INDEXES
    | MIXED_FILE_VERSIONS
    | SPILLED_LINEAGE
    | MANAGED_BLOBS
    | NON_REUSABLE_FIELD_IDS
)
# Requirements for writers only: allocation of column ids, and the layout of rows.
_FOR_WRITERS: Final = NON_REUSABLE_FIELD_IDS | CLUSTERING_METADATA
# The fragment-reuse index concerns index look-ups; scans can work without them.
_READABLE: Final = _WRITABLE & ~NON_REUSABLE_FIELD_IDS | TAGGED_FRAGMENT_REUSE

_PAIRED: Final = (MIXED_FILE_VERSIONS, TAGGED_FRAGMENT_REUSE, MANAGED_BLOBS, ZONE_WRITE_SEED)


def check_readable(reader_flags: int) -> None:
    """Reject a table with reader features that are not implemented."""
    _refuse(reader_flags & ~_READABLE, "read")


def check_writable(reader_flags: int, writer_flags: int) -> None:
    """Reject a table with writer features that are not implemented."""
    _refuse((reader_flags | writer_flags) & ~_WRITABLE, "written")


def check_consistent(
    reader_flags: int, writer_flags: int, max_allocated_field_id: int | None
) -> None:
    """Reject contradictory flag words."""
    for flag in _PAIRED:
        if (reader_flags ^ writer_flags) & flag:
            raise CorruptFileError(
                f"feature flag {_describe(flag)} is set for only one of readers and writers "
                f"(reader flags {reader_flags}, writer flags {writer_flags})"
            )
    if reader_flags & NON_REUSABLE_FIELD_IDS:
        raise CorruptFileError(
            f"feature flag {_describe(NON_REUSABLE_FIELD_IDS)} is a writer flag but set for readers"
        )
    if bool(writer_flags & NON_REUSABLE_FIELD_IDS) != (max_allocated_field_id is not None):
        raise CorruptFileError(
            f"feature flag {_describe(NON_REUSABLE_FIELD_IDS)} and the highest allocated field id "
            f"must come together (writer flags {writer_flags}, id {max_allocated_field_id})"
        )


def compute_flags(
    *,
    has_deletion_files: bool,
    stable_row_ids: bool,
    has_config: bool,
    has_base_paths: bool,
    has_spilled_lineage: bool = False,
    manages_blobs: bool = False,
    keeps_field_ids: bool = False,
    previous: tuple[int, int] = (0, 0),
) -> tuple[int, int]:
    """Return the reader and the writer word of a new manifest.

    ``has_deletion_files``: whether any fragment has a deletion file; ``stable_row_ids``: whether
    the table has stable row ids; ``has_config``: whether the table configuration is not empty;
    ``has_base_paths``: whether files may be below other roots; ``has_spilled_lineage``: whether
    lineage of any fragment is in hidden columns; ``manages_blobs``: whether the schema requires
    blobs in objects of the table; ``keeps_field_ids``: whether column ids are never reused;
    ``previous``: reader and writer word of the previous version. Returns (reader flags, writer
    flags).
    """
    both = (
        (DELETION_FILES if has_deletion_files else 0)
        | (STABLE_ROW_IDS if stable_row_ids else 0)
        | (BASE_PATHS if has_base_paths else 0)
        | (SPILLED_LINEAGE if has_spilled_lineage else 0)
        | (MANAGED_BLOBS if manages_blobs else 0)
    )
    # Flags of inherited content: file versions once mixed stay mixed, index entries are copied as
    # they are, and blobs of older versions stay where they are.
    sticky = MIXED_FILE_VERSIONS | COVERED_INDEXES | MANAGED_BLOBS
    reader = both | previous[0] & sticky
    writer = (
        both
        | previous[1] & sticky
        | (TABLE_CONFIG if has_config else 0)
        | (NON_REUSABLE_FIELD_IDS if keeps_field_ids else 0)
    )
    return reader, writer


def flags_as_markdown() -> str:
    """Return Markdown tables of unsupported features, with and without flags."""
    lines = ["| flag | feature | read | written | known by |", "|---|---|---|---|---|"]

    def yes(is_done: int) -> str:
        return "yes" if is_done else "no"

    for flag, (name, known_by) in _FEATURES.items():
        is_read = flag & (_READABLE | _FOR_WRITERS)
        lines.append(f"| {flag} | {name} | {yes(is_read)} | {yes(flag & _WRITABLE)} | {known_by} |")
    lines += [f"| any other | such as semantic types | no | no | {_NEWER} |", ""]
    lines += ["Without a flag of their own:", "", "| what | read | written | known by |"]
    lines += ["|---|---|---|---|"]
    lines += [f"| {one.name} | {one.read} | {one.written} | {one.known_by} |" for one in _UNFLAGGED]
    return "\n".join(lines)


def _refuse(flags: int, verb: str) -> None:
    if not flags:
        return
    every = [1 << bit for bit in range(flags.bit_length()) if flags >> bit & 1]
    known_by = dict.fromkeys(_FEATURES.get(flag, ("", _NEWER))[1] for flag in every)
    raise UnsupportedFeatureError(
        f"the table cannot be {verb}: unsupported feature flags {', '.join(map(_describe, every))}",
        hint="use a newer version of this package, or a client that supports them: "
        f"{', '.join(known_by)}",
    )


def _describe(flag: int) -> str:
    return f"{flag} ({_FEATURES[flag][0]})" if flag in _FEATURES else str(flag)
