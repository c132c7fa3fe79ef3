"""Every exception of the package, grouped by what a caller does next.

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

Only text crosses from a Spark worker to the driver, so the message alone must suffice: a stable
code, what happened, where, and what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class LanceError(Exception):
    """Base class: carries what happened, where, and what to do about it.

    Args:
        what: One line with the expected and the found values.
        where: File, byte range, fragment, version or column.
        hint: What the reader of the message can do.
    """

    code: ClassVar[str] = "LANCE_ERROR"
    remedy: ClassVar[str] = "see the hint in the message"
    # What is shown where nobody knew a better hint.
    next_step: ClassVar[str] = ""

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        """Keeps the three parts as ``args``, which is all that pickle needs."""
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        """The code and the three parts, one line each."""
        where = f"\n  at: {self.where}" if self.where else ""
        step = self.hint or self.next_step
        hint = f"\n  hint: {step}" if step else ""
        return f"[{self.code}] {self.what}{where}{hint}"


class TableNotFoundError(LanceError, FileNotFoundError):
    """There is no Lance table at the path."""

    code = "LANCE_TABLE_NOT_FOUND"
    remedy = "fix the path, or create the table"


class VersionNotFoundError(TableNotFoundError):
    """The table has no such version, tag or branch (any more)."""

    code = "LANCE_VERSION_NOT_FOUND"
    remedy = "choose another version, tag or branch; an old version may have been cleaned up"


class TableAlreadyExistsError(LanceError, FileExistsError):
    """A table is in the way."""

    code = "LANCE_TABLE_ALREADY_EXISTS"
    remedy = "choose `append` or `overwrite`, or another path"


class NamespaceNotFoundError(LanceError, LookupError):
    """The catalog has no such namespace."""

    code = "LANCE_NAMESPACE_NOT_FOUND"
    remedy = "fix the name, or create the namespace"


class NamespaceNotEmptyError(LanceError):
    """A namespace that is to be dropped has tables or namespaces in it."""

    code = "LANCE_NAMESPACE_NOT_EMPTY"
    remedy = "drop what is in it first, or say `CASCADE`"


class InvalidInputError(LanceError, ValueError):
    """The call cannot be carried out as it was made."""

    code = "LANCE_INVALID_INPUT"
    remedy = "fix the call as the hint says"


class SchemaMismatchError(InvalidInputError):
    """Data and table disagree about columns, types or nullability."""

    code = "LANCE_SCHEMA_MISMATCH"
    remedy = "fix the data, change the column, or write with `mergeSchema` or `overwriteSchema`"


class TableReplacedError(InvalidInputError):
    """Another table is at the path since one of its versions was read."""

    code = "LANCE_TABLE_REPLACED"
    remedy = "read the new table from its start, or restore the old one; see the hint"
    next_step = "read the table again: make a new DataFrame of it"


class UnsupportedFeatureError(LanceError):
    """A feature flag, file version, encoding or type that is not implemented."""

    code = "LANCE_UNSUPPORTED_FEATURE"
    remedy = "upgrade this package, or read the table with another reader of Lance"


class CorruptFileError(LanceError):
    """The bytes of a file contradict the format."""

    code = "LANCE_CORRUPT_FILE"
    remedy = "restore the file that the message names, or read an older version"
    next_step = "restore the file from a copy, or read an older version (option version)"


class MissingFileError(CorruptFileError):
    """A file that a version of the table needs is not there (any more)."""

    code = "LANCE_MISSING_FILE"
    remedy = "read a newer version: the file may have been cleaned up; else restore it"


class ConflictReason(StrEnum):
    """Why two commits do not go together; the names stay what they are.

    Attributes:
        meaning: What happened.
    """

    meaning: str

    def __new__(cls, name: str, meaning: str) -> ConflictReason:
        """A name with what it means."""
        reason = str.__new__(cls, name)
        reason._value_, reason.meaning = name, meaning
        return reason

    CONCURRENT_APPEND = "ConcurrentAppend", "others added rows that this work would have read"
    CONCURRENT_DELETE_READ = "ConcurrentDeleteRead", "others deleted rows that this work had read"
    CONCURRENT_ROW_CHANGE = "ConcurrentRowChange", "others changed the same rows or fragments"
    CONCURRENT_REWRITE = "ConcurrentRewrite", "others moved the rows, as a compaction does"
    INDEX_CHANGED = "IndexChanged", "others created an index of that name, or on those rows"
    METADATA_CHANGED = "MetadataChanged", "others changed columns, or set the same property"
    TABLE_REPLACED = "TableReplaced", "others overwrote, restored or recreated the table"
    FILES_REMOVED = "FilesRemoved", "a cleanup removed files that this work needs"
    VERSION_TAKEN = "VersionTaken", "others committed first every time; there is no other conflict"
    UNKNOWN_OPERATION = "UnknownOperation", "the other operation is unknown: newer, or damaged"
    OTHER = "Other", "none of these; the message says what"


@dataclass(frozen=True, slots=True)
class Conflict:
    """What does not go together, for machines.

    Attributes:
        reason: Why.
        ours: The operation that was to be committed, by its name in the format; may be empty.
        theirs: The one that was committed before it; may be empty.
        version: The version that theirs made; None if it is none in particular.
        fragments: Ids of the fragments that both concern, ascending; may be empty.
    """

    reason: ConflictReason
    ours: str = ""
    theirs: str = ""
    version: int | None = None
    fragments: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        if type(self.reason) is not ConflictReason:
            raise InvalidInputError(f"{self.reason!r} is not a ConflictReason")

    def __str__(self) -> str:
        """As it stands in a message."""
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
        """What ``str`` gave."""
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


# Ids in a message; a compaction may concern all fragments there are.
_MAX_FRAGMENTS = 20


class CommitConflictError(LanceError):
    """Another commit makes this one impossible.

    Args:
        what: One line with the expected and the found values.
        where: The table, or the version of it that is in the way.
        hint: What the reader of the message can do.
        conflict: The same for machines.
    """

    code = "LANCE_COMMIT_CONFLICT"
    remedy = "look at what the other commit did, then do the work anew if it still makes sense"

    def __init__(
        self,
        what: str,
        where: str = "",
        hint: str = "",
        conflict: Conflict | ConflictReason = ConflictReason.OTHER,
    ) -> None:
        """Keeps all parts as ``args``, which is all that pickle needs."""
        super().__init__(what, where, hint)
        self.conflict = conflict if isinstance(conflict, Conflict) else Conflict(conflict)
        self.args = (what, where, hint, self.conflict)

    @property
    def reason(self) -> ConflictReason:
        """Why, by a name that stays what it is."""
        return self.conflict.reason

    def __str__(self) -> str:
        """The code and the parts, one line each."""
        return f"{super().__str__()}\n  conflict: {self.conflict}"


class RetryableCommitError(CommitConflictError):
    """Another commit got in the way; the same call may succeed on the newer version."""

    code = "LANCE_COMMIT_RETRY"
    remedy = "run it again, or allow more with `commitRetries` and `commitTimeout`"
    # The attempts that are left, as text, where the caller plans the same work again; else empty.
    retries: str = ""


class StorageError(LanceError):
    """The store failed; the cause is chained."""

    code = "LANCE_STORAGE"
    next_step = "look at the store, the network and what you may do there, then try again"
    remedy = (
        "look at the store and its credentials; the cause is chained. After a commit it means "
        "that the answer was lost: read the table before repeating the work"
    )


# Set to anything, it keeps all that a traceback has, for whoever looks for a fault of the package.
FULL_TRACEBACK = "PYSPARK_LANCE_FULL_TRACEBACK"


def shorten(error: BaseException) -> None:
    """Forgets the frames that an error and its causes came through.

    Where it then leaves what users call, a traceback ends with their line and the message.

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
        cause.__suppress_context__ = True  # what else was tried before is no cause
        cause = cause.__cause__


_SHOWN = re.compile(
    r"\[(LANCE_[A-Z_]+)\] ([^\n]*)(?:\n  at: ([^\n]*))?(?:\n  hint: ([^\n]*))?"
    r"(?:\n  conflict: (\w+(?:, (?:[\w-]+ after [\w-]+|version \d+|fragments [\d ]*\d))*))?"
)


# Spark puts it behind the text of raise_error, on the same line.
_STATE_OF_RAISED = " SQLSTATE: P0001"


def error_in(text: str) -> LanceError | None:
    """The last error of this module that a text shows; None if it shows none.

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
    """The codes with their meanings and remedies, as the table of the documents."""
    lines = ["| code | class | meaning | what to do |", "|---|---|---|---|"]
    for kind in _BY_CODE.values():
        if kind is not LanceError:
            meaning = (kind.__doc__ or "").split("\n")[0].rstrip(".")
            lines.append(f"| `{kind.code}` | `{kind.__name__}` | {meaning} | {kind.remedy} |")
    return "\n".join(lines)


def reasons_as_markdown() -> str:
    """The reasons of conflicts with their meanings, as the table of the documents."""
    lines = ["| reason | meaning |", "|---|---|"]
    lines += [f"| `{reason}` | {reason.meaning} |" for reason in ConflictReason]
    return "\n".join(lines)
