"""Every exception of the package, grouped by what a caller does next.

LanceError
|-- TableNotFoundError         (also FileNotFoundError)
|   `-- VersionNotFoundError
|-- TableAlreadyExistsError    (also FileExistsError)
|-- NamespaceNotFoundError     (also LookupError)
|-- NamespaceNotEmptyError
|-- InvalidInputError          (also ValueError)
|   `-- SchemaMismatchError
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

import re
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


class CommitConflictError(LanceError):
    """Another commit makes this one impossible."""

    code = "LANCE_COMMIT_CONFLICT"
    remedy = "look at what the other commit did, then do the work anew if it still makes sense"


class RetryableCommitError(CommitConflictError):
    """Another commit got in the way; the same call may succeed on the newer version."""

    code = "LANCE_COMMIT_RETRY"
    remedy = "run it again, or allow more with `commitRetries` and `commitTimeout`"


class StorageError(LanceError):
    """The store failed; the cause is chained."""

    code = "LANCE_STORAGE"
    next_step = "look at the store, the network and what you may do there, then try again"
    remedy = (
        "look at the store and its credentials; the cause is chained. After a commit it means "
        "that the answer was lost: read the table before repeating the work"
    )


_SHOWN = re.compile(r"\[(LANCE_[A-Z_]+)\] ([^\n]*)(?:\n  at: ([^\n]*))?(?:\n  hint: ([^\n]*))?")


def error_in(text: str) -> LanceError | None:
    """The last error of this module that a text shows; None if it shows none.

    Example:
        >>> error_in("Job failed: [LANCE_CORRUPT_FILE] no footer").code
        'LANCE_CORRUPT_FILE'
    """
    shown = [match for match in _SHOWN.finditer(text) if match[1] in _BY_CODE]
    if not shown:
        return None
    code, what, where, hint = shown[-1].groups(default="")
    kind = _BY_CODE[code]
    return kind(what, where, "" if hint == kind.next_step else hint)


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
