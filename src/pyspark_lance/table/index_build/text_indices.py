"""Settings and state of the segments of a full-text index, for adding more rows to it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.index.index_file import IndexFile, row_id_index
from pyspark_lance.table.index.inverted.segments import TextSegment, open_text_segment
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.index.minhash import SIGNATURES_FILE, MinHashOptions, options_of
from pyspark_lance.table.index.reused_fragments import moved_addresses, reuse_versions
from pyspark_lance.table.index.segments import INVERTED, MINHASH, kind_of
from pyspark_lance.table.index_build.text_build import METADATA_FILE
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

logger = logging.getLogger(__name__)

_NEWEST_VERSION: Final = 3
_ROWS_AT_ONCE: Final = 1 << 20
_T = TypeVar("_T")
_OTHER_NAMES: Final = {"fts": INVERTED, "minhashlsh": MINHASH, "minhash": MINHASH}


def index_kind(name: str) -> str:
    """The kind of index of this name, in whatever case, also by the names of Lance."""
    name = name.lower()
    return _OTHER_NAMES.get(name, name)


def tokenizer_options(kind: str, given: Mapping[str, Any]) -> TokenizerOptions | None:
    """Parse the tokenizer options of an index of a kind; None if none are given.

    ``given``: by the names of Lance; None for its defaults.

    Raises:
        InvalidInputError: Options of another kind of index, or an invalid value.
    """
    known = {name: value for name, value in given.items() if value is not None}
    if known and kind != INVERTED:
        name = next(iter(known))
        raise InvalidInputError(f"{name} is for inverted indices, not for {kind}")
    if known.get("max_token_length") == 0:
        known["max_token_length"] = None
    return TokenizerOptions.from_mapping(known) if known else None


def options_to_refresh(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], *, is_named: bool
) -> TokenizerOptions | None:
    """Return the tokenizer options of further segments; None if the index has to stay as it is.

    ``is_named``: whether the caller named this index.

    Raises:
        UnsupportedFeatureError: The tokenizer of the named index is not supported.
    """

    def options() -> TokenizerOptions:
        found = _options_of(snapshot.files, entries[-1])
        Tokenizer(found)
        return found

    return _or_leave(snapshot, entries, options, is_named=is_named)


def minhash_to_refresh(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], *, is_named: bool
) -> MinHashOptions | None:
    """Return the parameters of further segments of an index; None if it has to stay as it is.

    ``is_named``: whether the caller named this index.

    Raises:
        UnsupportedFeatureError: The parameters of the named index's signatures are not supported.
    """

    def options() -> MinHashOptions:
        found = options_of(entries[-1])
        Tokenizer(found.tokens)
        return found

    return _or_leave(snapshot, entries, options, is_named=is_named)


def _or_leave(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], make: Callable[[], _T], *, is_named: bool
) -> _T | None:
    """Return the options of an index; None if they are not supported and it is not named."""
    try:
        return make()
    except (LanceError, FileNotFoundError) as error:
        if is_named:
            raise
        logger.info("the index %r of %s stays as it is: %s", entries[0].name, snapshot.uri, error)
        return None


def readable_segment(snapshot: Snapshot, entry: IndexMetadata) -> TextSegment | None:
    """Return a segment of texts; None if it cannot be read."""
    try:
        return open_text_segment(snapshot.files, entry)
    except (LanceError, FileNotFoundError):
        return None


def has_equal_tokens(snapshot: Snapshot, entry: IndexMetadata, options: TokenizerOptions) -> bool:
    """Return whether a segment has the tokens, and positions if needed, of ``options``."""
    segment = readable_segment(snapshot, entry)
    if segment is None:
        return False
    own = replace(
        segment.options, block_size=options.block_size, with_position=options.with_position
    )
    return own == options and (segment.has_positions or not options.with_position)


def _options_of(files: TableFiles, entry: IndexMetadata) -> TokenizerOptions:
    if entry.index_version > _NEWEST_VERSION:
        raise UnsupportedFeatureError(f"version {entry.index_version} of an inverted index")
    file = IndexFile.open(files, entry, METADATA_FILE, whole=True)
    found = file.reader.schema.metadata
    if "params" not in found:
        raise CorruptFileError("an inverted index without its parameters", file.where)
    options = TokenizerOptions.from_params(found["params"].decode(), file.where)
    for number in _partitions(file):
        documents = IndexFile.open(files, entry, f"part_{number}_docs.lance")
        if any(field.name.startswith("_doc_index") for field in documents.reader.schema.fields):
            raise UnsupportedFeatureError(
                "an inverted index whose documents are elements of lists", file.where
            )
    return options


def _partitions(file: IndexFile) -> list[int]:
    try:
        return [int(number) for number in json.loads(file.reader.schema.metadata["partitions"])]
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptFileError("an inverted index without its partitions", file.where) from error


def references_uncovered_rows(
    snapshot: Snapshot, entry: IndexMetadata, fragments: Collection[int]
) -> bool:
    """Return whether a segment refers to live rows outside of the fragments that it covers.

    An update keeps the row id and moves the row; values written in place take a fragment out of the
    bitmap.  Lance applies all segments to a row that any of them covers: as soon as another segment
    covers the row, its old text counts as well.  So such a segment is rebuilt before that.

    True also if that is unknown: its files are damaged.
    """
    live = set(snapshot.manifest.fragments.ids.tolist())
    try:
        for named in _named_rows(snapshot.files, entry):
            if snapshot.uses_stable_row_ids:
                addresses, is_found = row_id_index(snapshot).addresses_of(named)
                addresses = addresses[is_found]
            else:
                addresses = moved_addresses(named, reuse_versions(snapshot))
            now = set(np.unique(addresses >> np.uint64(OFFSET_BITS)).tolist())
            if not now & live <= set(fragments):
                return True
    except (LanceError, FileNotFoundError):
        return True
    return False


def _named_rows(files: TableFiles, entry: IndexMetadata) -> Iterator[NDArray[np.uint64]]:
    """Yield the row ids or addresses of the documents of a segment, in blocks."""
    if kind_of(entry) == MINHASH:
        names = [SIGNATURES_FILE]
    else:
        metadata = IndexFile.open(files, entry, METADATA_FILE, whole=True)
        names = [f"part_{number}_docs.lance" for number in _partitions(metadata)]
    for name in names:
        file = IndexFile.open(files, entry, name)
        for first in range(0, file.reader.num_rows, _ROWS_AT_ONCE):
            end = min(first + _ROWS_AT_ONCE, file.reader.num_rows)
            rows = file.read_ranges([(first, end)], ["_rowid"])
            yield plain_numbers(rows.column(0).combine_chunks())
