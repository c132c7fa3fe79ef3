"""Every exception of the package, grouped by what a caller does next.

LanceError
|-- TableNotFoundError         fix the path or create the table        (also FileNotFoundError)
|   `-- VersionNotFoundError   pick another version; it may be cleaned up
|-- TableAlreadyExistsError    choose a write mode                     (also FileExistsError)
|-- InvalidInputError          fix the call                            (also ValueError)
|   `-- SchemaMismatchError    fix the data or the schema
|-- UnsupportedFeatureError    upgrade, or use another reader
|-- CorruptFileError           restore the file
|-- CommitConflictError        redo the work on a newer snapshot
|   `-- RetryableCommitError   call again; gave up after n tries
`-- StorageError               look at the store; the cause is chained

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

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        """Keeps the three parts as ``args``, which is all that pickle needs."""
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        """The code and the three parts, one line each."""
        where = f"\n  at: {self.where}" if self.where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.what}{where}{hint}"


class TableNotFoundError(LanceError, FileNotFoundError):
    """There is no Lance table at the path."""

    code = "LANCE_TABLE_NOT_FOUND"


class VersionNotFoundError(TableNotFoundError):
    """The table has no such version, tag or branch (any more)."""

    code = "LANCE_VERSION_NOT_FOUND"


class TableAlreadyExistsError(LanceError, FileExistsError):
    """A table is in the way."""

    code = "LANCE_TABLE_ALREADY_EXISTS"


class InvalidInputError(LanceError, ValueError):
    """The call cannot be carried out as it was made."""

    code = "LANCE_INVALID_INPUT"


class SchemaMismatchError(InvalidInputError):
    """Data and table disagree about columns, types or nullability."""

    code = "LANCE_SCHEMA_MISMATCH"


class UnsupportedFeatureError(LanceError):
    """A feature flag, file version, encoding or type that is not implemented."""

    code = "LANCE_UNSUPPORTED_FEATURE"


class CorruptFileError(LanceError):
    """The bytes of a file contradict the format."""

    code = "LANCE_CORRUPT_FILE"


class CommitConflictError(LanceError):
    """Another commit makes this one impossible."""

    code = "LANCE_COMMIT_CONFLICT"


class RetryableCommitError(CommitConflictError):
    """Another commit got in the way; the same call may succeed on the newer version."""

    code = "LANCE_COMMIT_RETRY"


class StorageError(LanceError):
    """The store failed; the cause is chained."""

    code = "LANCE_STORAGE"


_SHOWN = re.compile(r"\[(LANCE_[A-Z_]+)\] ([^\n]*)(?:\n  at: ([^\n]*))?(?:\n  hint: ([^\n]*))?")


def error_in(text: str) -> LanceError | None:
    """The last error of this module that a text shows; None if it shows none."""
    shown = [one for one in _SHOWN.finditer(text) if one[1] in _BY_CODE]
    if not shown:
        return None
    code, what, where, hint = shown[-1].groups(default="")
    return _BY_CODE[code](what, where, hint)


_BY_CODE = {
    kind.code: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, LanceError)
}
