"""What is fuzzed: for each parser valid inputs, how to damage them, and how to read them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fuzz import corpus
from fuzz.mutations import mutate_bytes, mutate_message, mutate_text
from pylance_files import OneColumn

from pyspark_lance.codec.jsonb import decode_jsonb, encode_jsonb
from pyspark_lance.datafile.file_metadata import ARRAY_ENCODING_URL, PAGE_LAYOUT_URL, FileMetadata
from pyspark_lance.datafile.v0_1.metadata import LEGACY_FOOTER, LENGTH
from pyspark_lance.errors import LanceError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.format.index_metadata import indices_from_section, section_of_indices
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.metafile.manifest_file import ManifestLocation, read_manifest
from pyspark_lance.metafile.paths import (
    NamingScheme,
    branch_path,
    deletion_path,
    manifest_path,
    parse_manifest_name,
    tag_path,
)
from pyspark_lance.metafile.refs_file import read_branch, read_tag
from pyspark_lance.predicate.conditions import evaluate
from pyspark_lance.predicate.json import predicate_from_json
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.proto import (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    file_pb2,
    row_ids_pb2,
    table_pb2,
    transaction_pb2,
)
from pyspark_lance.store.memory_store import MemoryStore

# A file may claim any number of rows, cheaply if they are all equal: so many are read.
MAX_ROWS = 3000
_FOOTER = struct.Struct("<QQQIIHH4s")


@dataclass(frozen=True)
class Target:
    """A parser.

    Attributes:
        name: For the report.
        weight: How often it is chosen.
        damage: A random input.
        read: Reads it; returns, or raises an error of ours.
        samples: Valid inputs, which must be readable.
    """

    name: str
    weight: int
    damage: Callable[[random.Random], Any]
    read: Callable[[Any, random.Random], None]
    samples: list[Any]


def make_targets(folder: Path, *, every: int = 1) -> list[Target]:
    """All parsers with their inputs; ``every`` thins out the data files."""
    files = corpus.data_files(folder, every=every)
    parts = [FileParts.of(sample) for sample in files]
    legacy = [sample.data for sample in corpus.legacy_files(every=every)]
    found = corpus.metadata_files(folder / "tables")
    manifests = [ManifestParts.of(s) for s in found.manifests if parse_manifest_name(s.name)]
    transactions = [sample.data for sample in found.transactions]
    transactions += [m.transaction for m in manifests if m.transaction]
    sections = [m.indices for m in manifests if m.indices]
    rows = [sample.data for sample in corpus.row_id_sequences()]
    versions = [sample.data for sample in corpus.version_sequences()]
    arrows, bitmaps = corpus.deletion_files()
    documents = [sample.data for sample in corpus.jsonb_documents()]
    references = [sample.data for sample in found.references]

    def raw(samples: list[bytes]) -> Callable[[random.Random], bytes]:
        return lambda rng: mutate_bytes(rng.choice(samples), rng)

    def messages(samples: list[bytes], kind: Any) -> Callable[[random.Random], bytes]:
        def damage(rng: random.Random) -> bytes:
            data = rng.choice(samples)
            if rng.random() < 0.3:
                return mutate_bytes(data, rng)
            message = kind.FromString(data)
            mutate_message(message, rng)
            return message.SerializeToString()

        return damage

    def texts(samples: list[str]) -> Callable[[random.Random], str]:
        return lambda rng: mutate_text(rng.choice(samples), samples, rng)

    return [
        Target("data file bytes", 18, lambda c: c.choice(parts).damaged(c), read_file, parts),
        Target("data file messages", 30, lambda c: c.choice(parts).mutated(c), read_file, parts),
        Target("0.1 file", 9, lambda c: damage_legacy(c.choice(legacy), c), read_file, legacy),
        Target("manifest", 7, lambda c: c.choice(manifests).damaged(c), read_table, manifests),
        Target(
            "transaction",
            5,
            messages(transactions, transaction_pb2.Transaction),
            read_transaction,
            transactions,
        ),
        Target(
            "index section", 3, messages(sections, table_pb2.IndexSection), read_indices, sections
        ),
        Target("row ids", 5, messages(rows, row_ids_pb2.RowIdSequence), read_row_ids, rows),
        Target(
            "row versions",
            3,
            messages(versions, row_ids_pb2.RowDatasetVersionSequence),
            read_versions,
            versions,
        ),
        Target(
            "deletion arrow", 3, lambda c: damage_deletions(c.choice(arrows), c), read_arrow, arrows
        ),
        Target(
            "deletion bitmap",
            3,
            raw([s.data for s in bitmaps]),
            read_bitmap,
            [s.data for s in bitmaps],
        ),
        Target("tag or branch", 2, raw(references), read_reference, references),
        Target("JSONB", 6, raw(documents), read_jsonb, documents),
        Target("JSON text", 3, texts(corpus.JSON_TEXTS), read_json, corpus.JSON_TEXTS),
        Target("condition text", 8, texts(corpus.CONDITIONS), read_condition, corpus.CONDITIONS),
        Target(
            "condition JSON",
            4,
            texts(corpus.JSON_CONDITIONS),
            read_condition_json,
            corpus.JSON_CONDITIONS,
        ),
    ]


@dataclass(frozen=True)
class FileParts:
    """A 2.x file, taken apart at its messages."""

    name: str
    data: bytes
    head: bytes
    columns: tuple[bytes, ...]
    buffers: tuple[bytes, ...]
    version: tuple[int, int]
    places: list[range]

    @classmethod
    def of(cls, sample: corpus.Sample) -> FileParts:
        data = sample.data
        store = MemoryStore()
        store.put("x", data)
        metadata = FileMetadata.load(store, "x")
        footer = metadata.footer
        tables = []
        for position, entries in (
            (footer.cmo_table_position, footer.num_columns),
            (footer.gbo_table_position, footer.num_global_buffers),
        ):
            pairs = struct.iter_unpack("<QQ", data[position : position + 16 * entries])
            tables.append(tuple(data[start : start + size] for start, size in pairs))
        places = [range(footer.column_metadata_position, len(data)), range(len(data))]
        for index in range(metadata.num_columns):
            for page in metadata.column(index).pages:
                for start, end in page.buffers:
                    places += [
                        range(start, min(end, start + 100)),
                        range(max(start, end - 40), end),
                    ]
        places = [place for place in places if len(place)]
        numbers = _FOOTER.unpack(data[-_FOOTER.size :])[5:7]
        head = data[: footer.column_metadata_position]
        return cls(sample.name, data, head, tables[0], tables[1], numbers, places)

    def damaged(self, rng: random.Random) -> bytes:
        if rng.random() < 0.8 and len(self.data) > 200:
            # Bits only: what keeps its place reaches the code behind the checks of the container.
            copy = bytearray(self.data)
            for _ in range(rng.choice((1, 1, 2, 4))):
                at = rng.choice(rng.choice(self.places))
                copy[at] = rng.choice((copy[at] ^ (1 << rng.randrange(8)), 0, 255, 1))
            return bytes(copy)
        return mutate_bytes(self.data, rng, self.places)

    def mutated(self, rng: random.Random) -> bytes:
        columns, buffers = list(self.columns), list(self.buffers)
        if rng.random() < 0.12:
            descriptor = file_pb2.FileDescriptor.FromString(buffers[0])
            mutate_message(descriptor, rng)
            buffers[0] = descriptor.SerializeToString()
        if columns and (rng.random() < 0.9 or buffers[0] == self.buffers[0]):
            at = rng.randrange(len(columns))
            columns[at] = mutate_column(columns[at], rng)
        return self.assemble(columns, buffers)

    def assemble(self, columns: list[bytes], buffers: list[bytes]) -> bytes:
        pieces = [self.head]
        position = len(self.head)

        def add(content: bytes) -> tuple[int, int]:
            nonlocal position
            pieces.append(content)
            position += len(content)
            return position - len(content), len(content)

        column_places = [add(content) for content in columns]
        buffer_places = [add(content) for content in buffers]
        table, _ = add(b"".join(struct.pack("<QQ", *place) for place in column_places))
        other, _ = add(b"".join(struct.pack("<QQ", *place) for place in buffer_places))
        first = column_places[0][0] if column_places else len(self.head)
        add(_FOOTER.pack(first, table, other, len(buffers), len(columns), *self.version, b"LANC"))
        return b"".join(pieces)


def mutate_column(data: bytes, rng: random.Random) -> bytes:
    """Change the message of a column, mostly the description of one of its pages."""
    column = file_pb2.ColumnMetadata.FromString(data)
    if not column.pages or rng.random() < 0.25:
        mutate_message(column, rng)
        return column.SerializeToString()
    page = rng.choice(column.pages)
    holder = file_pb2.AnyMessage.FromString(page.encoding.direct.encoding)
    kinds = {
        ARRAY_ENCODING_URL: encodings_v2_0_pb2.ArrayEncoding,
        PAGE_LAYOUT_URL: encodings_v2_1_pb2.PageLayout,
    }
    kind = kinds.get(holder.type_url)
    if kind is None or rng.random() < 0.02:
        mutate_message(holder, rng)
    else:
        encoding = kind.FromString(holder.value)
        mutate_message(encoding, rng)
        holder.value = encoding.SerializeToString()
    page.encoding.direct.encoding = holder.SerializeToString()
    return column.SerializeToString()


def damage_legacy(data: bytes, rng: random.Random) -> bytes:
    """Damage bytes, or the metadata message, which may be anywhere."""
    if rng.random() < 0.5:
        return mutate_bytes(
            data, rng, [range(len(data)), range(max(0, len(data) - 300), len(data))]
        )
    position, *version = LEGACY_FOOTER.unpack(data[-LEGACY_FOOTER.size :])
    message = file_pb2.LegacyMetadata.FromString(_framed(data, position))
    body = data[: -LEGACY_FOOTER.size]
    if rng.random() < 0.4:
        schema = file_pb2.Schema.FromString(_framed(data, message.manifest_position))
        mutate_message(schema, rng)
        message.manifest_position = len(body)
        content = schema.SerializeToString()
        body += LENGTH.pack(len(content)) + content
    else:
        mutate_message(message, rng)
    content = message.SerializeToString()
    return body + LENGTH.pack(len(content)) + content + LEGACY_FOOTER.pack(len(body), *version)


def _framed(data: bytes, position: int) -> bytes:
    (length,) = LENGTH.unpack_from(data, position)
    return data[position + LENGTH.size : position + LENGTH.size + length]


@dataclass(frozen=True)
class ManifestParts:
    """A manifest file: its bytes and its messages."""

    data: bytes
    version: int
    manifest: bytes
    head: bytes
    indices: bytes
    transaction: bytes

    @classmethod
    def of(cls, sample: corpus.Sample) -> ManifestParts:
        name = parse_manifest_name(sample.name)
        assert name is not None
        data = sample.data
        position = int.from_bytes(data[-16:-8], "little")
        message = table_pb2.Manifest.FromString(_framed(data, position))
        found = _read_manifest(data, name.version)
        return cls(
            data,
            name.version,
            message.SerializeToString(),
            data[:position],
            section_of_indices(found.indices) if found.indices else b"",
            found.transaction_bytes or b"",
        )

    def damaged(self, rng: random.Random) -> tuple[bytes, int]:
        if rng.random() < 0.4:
            places = [range(len(self.data)), range(max(0, len(self.data) - 400), len(self.data))]
            return mutate_bytes(self.data, rng, places), self.version
        message = table_pb2.Manifest.FromString(self.manifest)
        mutate_message(message, rng)
        content = message.SerializeToString()
        framed = LENGTH.pack(len(content)) + content
        footer = struct.pack("<qHH4s", len(self.head), 0, 2, b"LANC")
        return self.head + framed + footer, self.version


def read_file(content: bytes | FileParts, rng: random.Random) -> None:
    """One way of reading a data file; what comes back must be sound in itself."""
    store = MemoryStore()
    store.put("x", content.data if isinstance(content, FileParts) else content)
    file = OneColumn(store, "x")
    if not file.fields:
        return
    count = min(file.reader.num_rows, MAX_ROWS)
    match rng.randrange(4):
        case 0 | 1:
            for part in file.scan(ranges=[(0, count)], batch_rows=500):
                part.validate()
        case 2:
            file.read(count // 2, min(count // 2 + 3, count)).validate()
        case _:
            file.take(np.arange(0, count, 97)).validate()
    if file.reader.version == "0.1":
        file.reader.page_statistics([field.id for field in file.fields])


def _read_manifest(data: bytes, version: int) -> Any:
    store = MemoryStore()
    path = manifest_path(version, NamingScheme.V2)
    store.put(path, data)
    return read_manifest(store, ManifestLocation(path, version, NamingScheme.V2, len(data)))


def read_table(given: tuple[bytes, int] | ManifestParts, _: random.Random) -> None:
    """A manifest with its sections, sequences and schema, and back to bytes."""
    data, version = (given.data, given.version) if isinstance(given, ManifestParts) else given
    found = _read_manifest(data, version)
    found.transaction()
    manifest = found.manifest
    manifest.to_bytes()
    manifest.schema.to_arrow()
    for fragment in manifest.fragments:
        if isinstance(fragment.row_ids, bytes):
            RowIdSequence.from_bytes(fragment.row_ids).expect_length(fragment.physical_rows)
        for versions in (fragment.created_at, fragment.last_updated_at):
            if isinstance(versions, bytes):
                sequence = RowDatasetVersionSequence.from_bytes(versions)
                sequence.expect_length(fragment.physical_rows)


def read_transaction(data: bytes, _: random.Random) -> None:
    Transaction.from_bytes(data).to_bytes()


def read_indices(data: bytes, _: random.Random) -> None:
    section_of_indices(indices_from_section(data))


def read_row_ids(data: bytes, _: random.Random) -> None:
    """Like a fragment's; more rows than a fragment of the corpus are refused as elsewhere."""
    sequence = RowIdSequence.from_bytes(data)
    _ = sequence.bounds()
    count = len(sequence)
    if count > 100_000:
        return
    values = sequence.to_array()
    assert len(values) == count
    part = sequence.slice(count // 3, count // 2)
    assert (part.to_array() == values[count // 3 : count // 2]).all()
    if count:
        offsets = np.arange(0, count, 7)
        assert (sequence.take(offsets) == values[offsets]).all()
        sequence.without(DeletionVector.of([0]))
    sequence.to_bytes()


def read_versions(data: bytes, _: random.Random) -> None:
    sequence = RowDatasetVersionSequence.from_bytes(data)
    count = len(sequence)
    if count > 100_000:
        return
    values = sequence.to_array()
    assert len(values) == count
    part = sequence.slice(count // 3, count // 2)
    assert (part.to_array() == values[count // 3 : count // 2]).all()
    if count:
        sequence.replace_at([0], 9)
    sequence.to_bytes()


def damage_deletions(given: corpus.Deletions, rng: random.Random) -> corpus.Deletions:
    rows = given.rows if rng.random() < 0.95 else rng.randrange(5000)
    return corpus.Deletions(mutate_bytes(given.data, rng), rows)


def read_arrow(given: corpus.Deletions, _: random.Random) -> None:
    file = DeletionFile(DeletionFileType.ARROW_ARRAY, 1, 5, given.rows)
    store = MemoryStore()
    store.put(deletion_path(0, file), given.data)
    read_deletion_file(store, 0, file, 20_000)


def read_bitmap(data: bytes, _: random.Random) -> None:
    vector = DeletionVector.from_bitmap_bytes(data)
    if len(vector) < 200_000:
        vector.to_array()
    assert len(vector.keep_mask(0, 1000)) == 1000


def read_reference(data: bytes, _: random.Random) -> None:
    store = MemoryStore()
    store.put(tag_path("x"), data)
    store.put(branch_path("x"), data)
    refused = 0
    for read in (read_tag, read_branch):
        try:
            read(store, "x")
        except LanceError as error:
            refused += 1
            if refused == 2:
                raise error


def read_jsonb(data: bytes, _: random.Random) -> None:
    decode_jsonb(pa.array([data, None, data], pa.large_binary()))


def read_json(text: str, _: random.Random) -> None:
    array = _text_array(text)
    if array is not None:
        decode_jsonb(encode_jsonb(array))


def _text_array(text: str) -> pa.Array | None:
    try:
        return pa.array([text], pa.string())
    except UnicodeEncodeError:
        return None


def read_condition(text: str, _: random.Random) -> None:
    found = evaluate(
        parse_predicate(text, corpus.ROWS.schema, time_zone="Europe/Berlin"), corpus.ROWS
    )
    assert len(found) == corpus.ROWS.num_rows


def read_condition_json(text: str, _: random.Random) -> None:
    found = evaluate(predicate_from_json(text, corpus.ROWS.schema), corpus.ROWS)
    assert len(found) == corpus.ROWS.num_rows
