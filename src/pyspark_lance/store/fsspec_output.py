"""Output files of fsspec file systems; no object appears before ``close``."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from typing import Any

from pyspark_lance.store.object_store import as_byte_view


class MultipartOutput:
    """An upload in parts; at most one part and the last write are in memory."""

    def __init__(self, file: Any, run: Callable[[Callable[[], object]], object]) -> None:
        self._file: Any = file
        self._run = run
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes; upload a part once it is large enough."""
        if self._file is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._run(lambda: self._file.write(view))
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Upload the rest and complete the object; discard it on failure."""
        if self._file is None:
            return
        try:
            self._run(self._file.close)
            self._file = None
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard the uploaded parts."""
        file, self._file = self._file, None
        if file is not None:
            # If the request fails, the store's lifecycle rules drop unfinished uploads.
            with contextlib.suppress(Exception):
                file.discard()
            # Otherwise the file object would complete the upload when it is garbage-collected.
            file.closed = True


class SpooledOutput:
    """A local temporary file, for file systems whose open files cannot be discarded."""

    def __init__(self, upload: Callable[[str], None]) -> None:
        self._upload = upload
        self._file: Any = tempfile.NamedTemporaryFile(prefix="lance-output-")  # noqa: SIM115
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes."""
        if self._file is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._file.write(view)
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Upload the file."""
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                self._upload(file.name)

    def abort(self) -> None:
        """Remove the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
