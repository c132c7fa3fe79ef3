"""Move long sequences of row ids and versions out of the manifest, into hidden columns.

Every commit writes and every reader reads the whole manifest, in which scattered row ids take bytes
per row. A hidden column of a data file of the fragment is read only when needed.

Source: docs/format/table-format.md, section 7.6.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ID, system_array
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import SPILLED, Fragment, new_data_file_name
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import data_path
from pyspark_lance.table.rows.lineage import SPILLED_FIELD_OF, decode_sequence, source_of
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest
from pyspark_lance.table.unit_of_work import remove_files

SPILLS_KEY: Final = "lance.row_lineage.spill"
INLINE_BYTES_KEY: Final = "lance.row_lineage.inline_max_bytes"
DEFAULT_INLINE_BYTES: Final = 200 << 10
"""Default and names of the two configuration entries of Lance."""

_ATTRIBUTE_OF: Final = {
    ROW_ID: "row_ids",
    CREATED_AT: "created_at",
    LAST_UPDATED_AT: "last_updated_at",
}


def inline_lineage_bytes(config: Mapping[str, str]) -> int | None:
    """Return the maximum bytes of an inline sequence; None for no limit.

    ``config``: of the table.
    """
    if config.get(SPILLS_KEY, "").lower() != "true":
        return None
    text = config.get(INLINE_BYTES_KEY)
    if text is None:
        return DEFAULT_INLINE_BYTES
    if not (text.isascii() and text.isdigit()):
        raise InvalidInputError(
            f"the property {INLINE_BYTES_KEY} = {text!r} is not a number of bytes",
            hint=f"set it to a whole number such as {DEFAULT_INLINE_BYTES}, or remove it",
        )
    return int(text)


def spill_lineage(
    request: WriteFragmentsRequest, fragments: Iterable[Fragment]
) -> tuple[Fragment, ...]:
    """Return the fragments, with a file of hidden columns if their sequences are too long.

    When anything fails, the files written by this call are removed.

    ``fragments``: new ones, with inline sequences of all of their rows, or without any.
    """
    limit = request.inline_lineage_bytes
    if limit is None:
        return tuple(fragments)
    done: list[Fragment] = []
    try:
        for fragment in fragments:
            long = [name for name in _ATTRIBUTE_OF if _is_longer(fragment, name, limit)]
            done.append(_spill_sequences(request, fragment, long) if long else fragment)
    except BaseException:
        remove_files(request.table.store(), files_of(done))
        raise
    return tuple(done)


def _is_longer(fragment: Fragment, name: str, limit: int) -> bool:
    source = source_of(fragment, name)
    return isinstance(source, bytes) and len(source) > limit


def _spill_sequences(
    request: WriteFragmentsRequest, fragment: Fragment, names: list[str]
) -> Fragment:
    """Return the fragment with the sequences ``names`` in a new file."""
    # Imported lazily: planning a statement does not need it.
    from pyspark_lance.datafile.writer import DataFileWriter  # noqa: PLC0415

    fields = [Field(SPILLED_FIELD_OF[name], name, "uint64", nullable=False) for name in names]
    arrays = []
    for name in names:
        source = source_of(fragment, name)
        assert isinstance(source, bytes)  # only inline sequences are too long
        values = decode_sequence(name, source).to_array()
        assert len(values) == fragment.physical_rows, "a hidden column has a value for each row"
        arrays.append(system_array(values))
    schema = LanceSchema(tuple(fields))
    path = data_path(new_data_file_name(uuid.uuid4().bytes))
    writer = DataFileWriter(request.table.store(), path, schema, version=request.file_version)
    try:
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow()))
        file = writer.finish()
    except BaseException:
        writer.abort()
        raise
    markers = {_ATTRIBUTE_OF[name]: SPILLED for name in names}
    return replace(fragment, files=(*fragment.files, file), **markers)  # type: ignore[arg-type]
