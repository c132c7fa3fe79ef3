from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.datafile.file_metadata import FOOTER_BYTES, Footer, file_version_of
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError

FOOTER = Footer(
    column_metadata_position=100,
    cmo_table_position=200,
    gbo_table_position=232,
    num_global_buffers=1,
    num_columns=2,
    version="2.1",
)
FILE_SIZE = 248 + FOOTER_BYTES


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_footer_round_trips(version):
    footer = dataclasses.replace(FOOTER, version=version)
    content = footer.to_bytes()
    assert len(content) == FOOTER_BYTES
    assert Footer.from_bytes(b"before" + content, FILE_SIZE) == footer


def test_footer_of_2_0_file_says_0_3():
    assert dataclasses.replace(FOOTER, version="2.0").to_bytes()[-8:] == b"\0\0\3\0LANC"


@pytest.mark.parametrize(
    ("numbers", "version"),
    [((0, 0), "0.1"), ((0, 2), "0.1"), ((0, 3), "2.0"), ((2, 0), "2.0"), ((2, 2), "2.2")],
)
def test_footer_numbers_map_to_version(numbers, version):
    tail = bytes([numbers[0], 0, numbers[1], 0]) + b"LANC"
    assert file_version_of(tail) == version


@pytest.mark.parametrize("numbers", [(2, 3), (1, 0), (0, 4)])
def test_unknown_versions_are_refused_by_number(numbers):
    tail = bytes([numbers[0], 0, numbers[1], 0]) + b"LANC"
    with pytest.raises(UnsupportedFeatureError, match=rf"version {numbers[0]}\.{numbers[1]}"):
        file_version_of(tail)


def test_footer_of_0_1_file_is_refused():
    tail = bytes(FOOTER_BYTES - 8) + b"\0\0\2\0LANC"
    with pytest.raises(UnsupportedFeatureError, match=r"version 0\.1"):
        Footer.from_bytes(tail, 1000)


@pytest.mark.parametrize("content", [b"", b"LANC", b"\0\0\3\0LANX", b"PAR1" * 20])
def test_invalid_file_end_is_corrupt(content):
    with pytest.raises(CorruptFileError) as raised:
        file_version_of(content, "some/file")
    assert raised.value.where == "some/file"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_columns", 5),
        ("num_columns", 1 << 31),
        ("num_global_buffers", 0),
        ("num_global_buffers", 2),
        ("cmo_table_position", 1 << 63),
        ("gbo_table_position", 240),
        ("column_metadata_position", 249),
    ],
)
def test_tables_outside_file_are_corrupt(name, value):
    content = dataclasses.replace(FOOTER, **{name: value}).to_bytes()
    with pytest.raises(CorruptFileError):
        Footer.from_bytes(content, FILE_SIZE)


@given(st.binary(max_size=60), st.integers(0, 1 << 64))
def test_arbitrary_bytes_are_footer_or_lance_error(content, size):
    with contextlib.suppress(LanceError):
        Footer.from_bytes(content + b"\2\0\1\0LANC", size)
