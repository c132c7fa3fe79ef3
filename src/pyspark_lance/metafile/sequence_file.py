"""Row-id and version sequences stored outside the manifest.

Lance does not write them, but the format allows them.

Source: docs/format/table-format.md, section 4.1 (ExternalFile).
"""

from __future__ import annotations

from typing import Final

from pyspark_lance.errors import CorruptFileError, InvalidInputError, MissingFileError
from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.store.object_store import ObjectStore

_RESTORE: Final = "restore the file from a copy; or read or restore another version"


def read_sequence(store: ObjectStore, file: ExternalFile) -> bytes:
    """Read the serialized sequence."""
    where = f"{store.uri}/{file.path} bytes {file.offset}..{file.offset + file.size}"
    try:
        # The size comes from a message, so it is checked before that much is requested.
        there = store.size(file.path)
        if file.offset + file.size > there:
            what = f"a sequence ends outside its file of {there} bytes"
            raise CorruptFileError(what, where, _RESTORE)
        return bytes(store.get_range(file.path, file.offset, file.offset + file.size))
    except FileNotFoundError as error:
        what = "the file of a row-id or version sequence is missing"
        raise MissingFileError(what, where, _RESTORE) from error
    except InvalidInputError as error:
        what = "the file of a row-id or version sequence is outside of the table"
        raise CorruptFileError(what, where) from error
