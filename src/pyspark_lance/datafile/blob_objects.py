"""BlobObjects: the objects of a table that the large blobs of one data file go to.

They are complete before the data file is, which names them.  No other file is written to them,
but rows that move keep to them, so that an object may outlive the data file it was written for.

Source: docs/format/file-format.md, section 9.1.
"""

from __future__ import annotations

import contextlib
import uuid

from pyspark_lance.codec.encoding_requests import BlobLimits
from pyspark_lance.metafile.paths import BLOBS
from pyspark_lance.store.object_store import ObjectStore, OutputFile


class BlobObjects:
    """Objects that hold one large blob each, and some that are filled with others."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        # Those that are being filled, by how many bytes may be in them.
        self._filled: dict[int, tuple[str, OutputFile]] = {}
        self.paths: list[str] = []

    def write(self, data: memoryview, limits: BlobLimits) -> tuple[str, int]:
        """Write a blob.

        Returns the path of its object below the root of the table, and its place in there.
        """
        if len(data) > limits.dedicated:
            path, output = self._new()
            try:
                output.write(data)
            except BaseException:
                output.abort()
                raise
            output.close()
            return path, 0
        filled = self._filled.get(limits.pack)
        if filled is not None and filled[1].tell() + len(data) > limits.pack:
            filled[1].close()
            filled = None
        if filled is None:
            filled = self._filled[limits.pack] = self._new()
        path, output = filled
        position = output.tell()
        output.write(data)
        return path, position

    def finish(self) -> None:
        """Make the objects appear that are being filled."""
        for _, output in self._filled.values():
            output.close()
        self._filled.clear()

    def abort(self) -> None:
        """Remove all that was written; best effort, since a cleanup finds what is left."""
        with contextlib.suppress(Exception):  # the error that led here matters more
            for _, output in self._filled.values():
                output.abort()
            self._store.delete_many(self.paths)

    def _new(self) -> tuple[str, OutputFile]:
        path = f"{BLOBS}/{uuid.uuid4()}.blob"
        output = self._store.open_output(path)
        self.paths.append(path)
        return path, output
