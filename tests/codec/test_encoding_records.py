"""The records of encodings: each names a message of the format, a writer of it and its decoders."""

import inspect
import re
from pathlib import Path

import pytest

import pyspark_lance.codec
from pyspark_lance.codec.encoding_tree import (
    RECORDS,
    block_decoder,
    chunk_decoder,
    describe,
    level_decoder,
    value_decoder,
)
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

_CODEC = Path(inspect.getfile(pyspark_lance.codec)).parent
_KINDS = [field.name for field in pb.CompressiveEncoding.DESCRIPTOR.fields]
_PLACES = {
    "chunk_decoder": chunk_decoder,
    "block_decoder": block_decoder,
    "level_decoder": level_decoder,
    "value_decoder": value_decoder,
}


def test_encoding_records_are_unique_format_messages():
    kinds = [record.kind for record in RECORDS]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) <= set(_KINDS)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_writers_of_encoding_records_build_their_message(record):
    assert f"{record.kind}=" in (_CODEC / record.writer).read_text()


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("kind", _KINDS)
def test_unused_encodings_are_refused_by_name(kind, place):
    if any(record.kind == kind and getattr(record, place) for record in RECORDS):
        return
    number = pb.CompressiveEncoding.DESCRIPTOR.fields_by_name[kind].number
    encoding = pb.CompressiveEncoding.FromString(bytes([number << 3 | 2, 0]))  # an empty message
    with pytest.raises(
        UnsupportedFeatureError, match=re.escape(f"encoding {describe(encoding)} for ")
    ):
        _PLACES[place](encoding)


@pytest.mark.parametrize("place", _PLACES)
def test_missing_encoding_is_corrupt(place):
    with pytest.raises(CorruptFileError, match="missing or of an unknown kind"):
        _PLACES[place](pb.CompressiveEncoding())
