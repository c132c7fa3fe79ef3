"""Exceptions of the package, grouped by how a caller handles them.

LanceError
|-- TableNotFoundError         (also FileNotFoundError)
|   `-- VersionNotFoundError
|-- TableAlreadyExistsError    (also FileExistsError)
|-- NamespaceNotFoundError     (also LookupError)
|-- NamespaceNotEmptyError
|-- InvalidInputError          (also ValueError)
|   |-- SchemaMismatchError
|   `-- TableReplacedError
|-- UnsupportedFeatureError
|-- CorruptFileError
|   `-- MissingFileError
|-- CommitConflictError
|   `-- RetryableCommitError
`-- StorageError

Only text crosses from a Spark worker to the driver, so the message is self-contained: a stable
code, what happened, where, and what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class LanceError(Exception):
    """Base class: what happened, where, and what to do.

    Args:
        what: One line with the expected and the found values.
        where: File, byte range, fragment, version or column.
        hint: What the reader of the message can do.
    """

    code: ClassVar[str] = "LANCE_ERROR"
    remedy: ClassVar[str] = "see the hint in the message"
    # Fallback for errors without a more specific hint.
    next_step: ClassVar[str] = ""

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        """Keep the three parts as ``args``, as pickle requires."""
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        """Return the code and the three parts, one line each."""
        where = f"\n  at: {self.where}" if self.where else ""
        step = self.hint or self.next_step
        hint = f"\n  hint: {step}" if step else ""
        return f"[{self.code}] {self.what}{where}{hint}"


class TableNotFoundError(LanceError, FileNotFoundError):
    """The path has no Lance table."""

    code = "LANCE_TABLE_NOT_FOUND"
    remedy = "fix the path, or create the table"


class VersionNotFoundError(TableNotFoundError):
    """The table has no such version, tag or branch, or not any more."""

    code = "LANCE_VERSION_NOT_FOUND"
    remedy = "choose another version, tag or branch; an old version may have been cleaned up"


class TableAlreadyExistsError(LanceError, FileExistsError):
    """A table exists where one is to be created."""

    code = "LANCE_TABLE_ALREADY_EXISTS"
    remedy = "choose `append` or `overwrite`, or another path"


class NamespaceNotFoundError(LanceError, LookupError):
    """The catalog has no such namespace."""

    code = "LANCE_NAMESPACE_NOT_FOUND"
    remedy = "fix the name, or create the namespace"


class NamespaceNotEmptyError(LanceError):
    """The namespace to be dropped contains tables or namespaces."""

    code = "LANCE_NAMESPACE_NOT_EMPTY"
    remedy = "drop its contents first, or use `CASCADE`"


class InvalidInputError(LanceError, ValueError):
    """The arguments of the call are invalid."""

    code = "LANCE_INVALID_INPUT"
    remedy = "fix the call as the hint says"


class SchemaMismatchError(InvalidInputError):
    """Data and table disagree about columns, types or nullability."""

    code = "LANCE_SCHEMA_MISMATCH"
    remedy = "fix the data, change the column, or write with `mergeSchema` or `overwriteSchema`"


class TableReplacedError(InvalidInputError):
    """The table at the path was replaced by another one since a version was read."""

    code = "LANCE_TABLE_REPLACED"
    remedy = "read the new table from its start, or restore the old one; see the hint"
    next_step = "read the table again: create a new DataFrame"


class UnsupportedFeatureError(LanceError):
    """A feature flag, file version, encoding or type is not implemented."""

    code = "LANCE_UNSUPPORTED_FEATURE"
    remedy = "upgrade this package, or read the table with another reader of Lance"


class CorruptFileError(LanceError):
    """The bytes of a file contradict the format."""

    code = "LANCE_CORRUPT_FILE"
    remedy = "restore the file that the message names, or read an older version"
    next_step = "restore the file from a copy, or read an older version (option version)"


class MissingFileError(CorruptFileError):
    """A file that a version of the table needs is missing."""

    code = "LANCE_MISSING_FILE"
    remedy = "read a newer version: the file may have been cleaned up; otherwise restore it"


class ConflictReason(StrEnum):
    """Reason why two commits conflict; the names are stable.

    Attributes:
        meaning: What happened.
    """

    meaning: str

    def __new__(cls, name: str, meaning: str) -> ConflictReason:
        """Return a member with its meaning."""
        reason = str.__new__(cls, name)
        reason._value_, reason.meaning = name, meaning
        return reason

    CONCURRENT_APPEND = "ConcurrentAppend", "rows were added that this operation would have read"
    CONCURRENT_DELETE_READ = (
        "ConcurrentDeleteRead",
        "rows were deleted that this operation had read",
    )
    CONCURRENT_ROW_CHANGE = "ConcurrentRowChange", "the same rows or fragments were changed"
    CONCURRENT_REWRITE = "ConcurrentRewrite", "the rows were moved, as by a compaction"
    INDEX_CHANGED = "IndexChanged", "an index of that name, or on those rows, was created"
    METADATA_CHANGED = "MetadataChanged", "columns were changed, or the same property was set"
    TABLE_REPLACED = "TableReplaced", "the table was overwritten, restored or recreated"
    FILES_REMOVED = "FilesRemoved", "a cleanup removed files that this operation needs"
    VERSION_TAKEN = "VersionTaken", "every attempt was outrun; there is no other conflict"
    UNKNOWN_OPERATION = "UnknownOperation", "the concurrent operation is unknown: newer, or damaged"
    OTHER = "Other", "another reason, given in the message"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict of two commits in machine-readable form.

    Attributes:
            reason: Why they conflict.
        ours: Name of the operation to be committed; may be empty.
        theirs: Name of the operation committed before it; may be empty.
        version: The version that theirs committed; None if unspecific.
        fragments: Ids of the fragments that both affect, ascending; may be empty.
    """

    reason: ConflictReason
    ours: str = ""
    theirs: str = ""
    version: int | None = None
    fragments: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Reject a plain string as reason."""
        if type(self.reason) is not ConflictReason:
            raise InvalidInputError(f"{self.reason!r} is not a ConflictReason")

    def __str__(self) -> str:
        """Return the text for a message."""
        text = str(self.reason)
        if self.ours or self.theirs:
            text += f", {self.ours or '-'} after {self.theirs or '-'}"
        if self.version is not None:
            text += f", version {self.version}"
        if self.fragments:
            text += f", fragments {' '.join(map(str, self.fragments[:_MAX_FRAGMENTS]))}"
        return text

    @classmethod
    def parse(cls, text: str) -> Conflict:
        """Parse a text that ``str`` returned."""
        reason, *parts = text.split(", ")
        ours = theirs = ""
        version: int | None = None
        fragments: tuple[int, ...] = ()
        for part in parts:
            word, _, rest = part.partition(" ")
            if word == "version":
                version = int(rest)
            elif word == "fragments":
                fragments = tuple(map(int, rest.split()))
            else:
                ours, theirs = ("" if name == "-" else name for name in part.split(" after "))
        known = next((one for one in ConflictReason if one == reason), ConflictReason.OTHER)
        return cls(known, ours, theirs, version, fragments)


# Maximum number of ids in a message; a compaction may affect all fragments.
_MAX_FRAGMENTS = 20


class CommitConflictError(LanceError):
    """A concurrent commit makes this one impossible.

    Args:
        what: One line with the expected and the found values.
        where: The table, or its conflicting version.
        hint: What the reader of the message can do.
        conflict: The conflict in machine-readable form.
    """

    code = "LANCE_COMMIT_CONFLICT"
    remedy = "check what the other commit did, then run the operation again if still appropriate"

    def __init__(
        self,
        what: str,
        where: str = "",
        hint: str = "",
        conflict: Conflict | ConflictReason = ConflictReason.OTHER,
    ) -> None:
        """Keep all parts as ``args``, as pickle requires."""
        super().__init__(what, where, hint)
        self.conflict = conflict if isinstance(conflict, Conflict) else Conflict(conflict)
        self.args = (what, where, hint, self.conflict)

    @property
    def reason(self) -> ConflictReason:
        """Return the reason of the conflict, whose name is stable."""
        return self.conflict.reason

    def __str__(self) -> str:
        """Return the code and the parts, one line each."""
        return f"{super().__str__()}\n  conflict: {self.conflict}"


class RetryableCommitError(CommitConflictError):
    """A concurrent commit conflicts; the same call may succeed on the newer version."""

    code = "LANCE_COMMIT_RETRY"
    remedy = "run it again, or allow more with `commitRetries` and `commitTimeout`"
    # The remaining attempts, as text, if the caller plans the same operation again; else empty.
    retries: str = ""


class StorageError(LanceError):
    """The store failed; the exception's cause has the details."""

    code = "LANCE_STORAGE"
    next_step = "check the store, the network and your permissions, then try again"
    remedy = (
        "check the store and its credentials; the cause is chained. After a commit, its outcome is "
        "unknown: read the table before repeating the operation"
    )


# If set, tracebacks keep all frames, for debugging the package.
FULL_TRACEBACK = "PYSPARK_LANCE_FULL_TRACEBACK"


def shorten(error: BaseException) -> None:
    """Remove the frames of an error and its causes.

    The traceback then ends with the user's call and the message.

    Examples:
        >>> try:
        ...     int("one")
        ... except ValueError as error:
        ...     shorten(error)
        ...     print(error.__traceback__)
        None
    """
    cause: BaseException | None = None if os.environ.get(FULL_TRACEBACK) else error
    while cause is not None and cause.__traceback__ is not None:
        cause.__traceback__ = None
        cause.__suppress_context__ = True  # earlier attempts are not a cause
        cause = cause.__cause__


_SHOWN = re.compile(
    r"\[(LANCE_[A-Z_]+)\] ([^\n]*)(?:\n  at: ([^\n]*))?(?:\n  hint: ([^\n]*))?"
    r"(?:\n  conflict: (\w+(?:, (?:[\w-]+ after [\w-]+|version \d+|fragments [\d ]*\d))*))?"
)


# Spark appends it to the message of raise_error, on the same line.
_STATE_OF_RAISED = " SQLSTATE: P0001"


def error_in(text: str) -> LanceError | None:
    """Return the last error of this module that a text contains; None if it contains none.

    Examples:
        >>> error_in("Job failed: [LANCE_CORRUPT_FILE] no footer").code
        'LANCE_CORRUPT_FILE'
    """
    text = text.replace(_STATE_OF_RAISED, "")
    shown = [match for match in _SHOWN.finditer(text) if match[1] in _BY_CODE]
    if not shown:
        return None
    code, what, where, hint, conflict = shown[-1].groups(default="")
    kind = _BY_CODE[code]
    hint = "" if hint == kind.next_step else hint
    if conflict and issubclass(kind, CommitConflictError):
        return kind(what, where, hint, Conflict.parse(conflict))
    return kind(what, where, hint)


_BY_CODE = {
    kind.code: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, LanceError)
}


def errors_as_markdown() -> str:
    """Return the codes with their meanings and remedies as a Markdown table."""
    lines = ["| code | class | meaning | what to do |", "|---|---|---|---|"]
    for kind in _BY_CODE.values():
        if kind is not LanceError:
            meaning = (kind.__doc__ or "").split("\n")[0].rstrip(".")
            lines.append(f"| `{kind.code}` | `{kind.__name__}` | {meaning} | {kind.remedy} |")
    return "\n".join(lines)


def reasons_as_markdown() -> str:
    """Return the conflict reasons with their meanings as a Markdown table."""
    lines = ["| reason | meaning |", "|---|---|"]
    lines += [f"| `{reason}` | {reason.meaning} |" for reason in ConflictReason]
    return "\n".join(lines)
