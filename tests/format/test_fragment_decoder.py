"""Columns of many fragments at once: what the protobuf library reads, for any bytes."""

from __future__ import annotations

from itertools import accumulate, chain

import numpy as np
import pytest
from damage import bit_flips, splices, truncations
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import LanceError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.fragment import SPILLED, DataFile, ExternalFile, Fragment
from pyspark_lance.format.fragment_decoder import decode_columns
from pyspark_lance.format.manifest import cut_manifest
from pyspark_lance.format.wire import encode_varint, length_delimited

NAME = "010011111101101111010111" + "05d23d45b8a20a3d83b08555a5.lance"


def common(number: int) -> Fragment:
    files = (
        DataFile(NAME, (0, 1, 200), (0, -1, 1), 2, 1, 1 << number % 50),
        DataFile(f"{number}.lance", (-2, 4), (0, 1), 2, 1, 7, 3),
        DataFile("a..b", (1,), (), 2, number // 4 % 2),
    )
    deletion = DeletionFile(DeletionFileType.BITMAP, 1, 1 << 50, 9, 0) if number % 3 else None
    ids = bytes(number) if number % 5 else None
    return Fragment(number, files[: number % 4], 100 + number, deletion, ids, b"a", b"b")


def encoded(fragment: Fragment) -> bytes:
    return fragment.to_proto().SerializeToString()


MANY = [common(number) for number in range(300)]
COMMON = [encoded(fragment) for fragment in MANY]


def outcome(messages, before=b"", after=b""):
    """The columns, and whether there are unknown fields; None for an error."""
    fields = [length_delimited(2, message) for message in messages]
    offsets = np.array(list(accumulate(map(len, fields), initial=len(before))), np.int64)
    try:
        columns, has_unknown = decode_columns(before + b"".join(fields) + after, offsets)
    except LanceError:
        return None
    return [array.tolist() for array in columns.arrays()], has_unknown


def expected(*messages):
    """The outcome of each by the library, which reads few fragments."""
    columns, has_unknown = zip(*(outcome([message]) for message in messages), strict=True)
    return [list(chain(*parts)) for parts in zip(*columns, strict=True)], any(has_unknown)


def check(*messages: bytes) -> None:
    """Columns of valid messages after common ones are equal; each damaged one is refused."""
    valid = [message for message in messages if outcome([message])]
    for message in messages:
        if message not in valid:
            assert outcome([*COMMON, message, *COMMON[:9]]) is None
    if valid:
        columns, has_unknown = outcome([*COMMON, *valid, *COMMON[:9]])
        found = [column[len(COMMON) : -9] for column in columns], has_unknown
        assert found == expected(*valid)


def test_common_fragments_equal_their_values():
    found, has_unknown = outcome(COMMON, b"a" * 300, b"b" * 300)
    assert not has_unknown
    ids, rows, deleted, has_deletions, has_row_ids, num_bytes, versions = found
    assert ids == [one.id for one in MANY]
    assert rows == [one.physical_rows for one in MANY]
    assert deleted == [one.num_deleted_rows for one in MANY]
    assert has_deletions == [one.deletion_file is not None for one in MANY]
    assert has_row_ids == [one.row_ids is not None for one in MANY]
    assert num_bytes == [sum(file.size_bytes for file in one.files) for one in MANY]
    several, two = -1, (2 << 31) + 1
    assert versions[:8] == [several, two, two, several, several, two, two, two]
    check()


NUMBERS = st.one_of(
    st.sampled_from([0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**56, 2**63, 2**64 - 1]),
    st.integers(0, 300),
)


@st.composite
def varints(draw):
    """A number of up to eleven bytes, some of them needless."""
    data = encode_varint(draw(NUMBERS))
    padding = draw(st.sampled_from([0, 0, 0, 1, 3, 10 - len(data), 11 - len(data)]))
    if not padding:
        return data
    return bytes([*data[:-1], data[-1] | 0x80, *[0x80] * (padding - 1), draw(st.integers(0, 2))])


def messages_of(known):
    """Fields of some numbers with their values, in any order and number, and damaged bytes."""
    field = st.one_of(
        *(
            values.map(
                lambda value, number=number: (
                    encode_varint(number << 3) + value
                    if isinstance(value, bytes)
                    else length_delimited(number, value[0])
                )
            )
            for number, values in known
        )
    )
    strange = st.one_of(
        st.tuples(st.integers(0, 20), varints()).map(lambda f: encode_varint(f[0] << 3) + f[1]),
        st.tuples(st.integers(0, 20), st.binary(max_size=4)).map(lambda f: length_delimited(*f)),
        st.binary(min_size=1, max_size=10),
    )
    parts = st.tuples(st.lists(field, max_size=9), st.lists(strange, max_size=1), st.randoms())

    def joined(found):
        pieces = [*found[0], *found[1]]
        found[2].shuffle(pieces)
        return b"".join(pieces)

    return parts.map(joined)


def content(values):
    """Mark values that stand after a length."""
    return values.map(lambda value: (value,))


PATHS = st.sampled_from(
    [NAME, "a.lance", "", "..", "../a", "a/../b", "a..b", "/a", "a\0", "é", "b" * 2000]
)
LISTS = st.lists(varints(), max_size=4).map(b"".join)
FILES = messages_of(
    [
        (1, content(PATHS.map(str.encode) | st.just(b"\xff"))),
        (2, content(LISTS | st.just(bytes(1500)))),
        (3, content(LISTS)),
        *((number, varints()) for number in (2, 4, 5, 6, 7)),
    ]
)
DELETIONS = messages_of([(number, varints()) for number in (1, 2, 3, 4, 7)])
VALUES = st.binary(max_size=3) | st.just(bytes(300))
FRAGMENTS = messages_of(
    [
        *((number, varints()) for number in (1, 4)),
        (2, content(FILES | st.just(MANY[3].files[1].to_proto().SerializeToString()))),
        (3, content(DELETIONS)),
        *((number, content(VALUES)) for number in (5, 7, 9)),
        (6, content(st.just(b"") | VALUES)),
    ]
)


@given(st.lists(FRAGMENTS, min_size=1, max_size=8))
def test_any_fields_equal_protobuf_library(messages):
    check(*messages)


@pytest.mark.parametrize("damage", [bit_flips, splices])
def test_damaged_fragments_equal_protobuf_library(damage):
    for data in (COMMON[7], COMMON[58]):
        check(*damage(data, 250), *truncations(data))


def test_last_fragments_are_decoded_within_message():
    """Nothing follows the last number."""
    short = b"\x08\x01"
    assert outcome([*COMMON, short]) == expected(*COMMON, short)
    assert outcome([*COMMON, b"\x08\x81"]) is None


SPECIAL = {
    "markers": Fragment(1, (), 5, None, SPILLED, SPILLED, SPILLED),
    "files": Fragment(1, (), 5, None, *[ExternalFile("_a/b", 1, 2)] * 3),
    "many files": Fragment(1, MANY[2].files * 40, 5),
    "many columns": Fragment(1, (DataFile("a", (*range(2000),), (*range(2000),), 2, 1, 5),), 5),
    "nothing": Fragment(0, (), 0),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_fragments_of_uncommon_shape_are_read(name):
    check(encoded(SPECIAL[name]), encoded(SPECIAL[name]) + b"\x78\x01")


def of_file(*fields: bytes) -> bytes:
    return b"\x08\x05" + length_delimited(2, b"".join(fields))


def text(path: str) -> bytes:
    return length_delimited(1, path.encode())


def numbers(number: int, *values: int) -> bytes:
    return length_delimited(number, b"".join(map(encode_varint, values)))


def value(number: int, one: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(one)


def of_deletions(*deletions: bytes) -> bytes:
    return b"\x08\x05" + b"".join(length_delimited(3, one) for one in deletions)


A, MANY_NUMBERS = text("a"), range(1500)
EDGES = [
    *(of_file(text(path), value(6, 3)) for path in ("", "..", "../a", "a/../b", "a..b", "/a")),
    *(of_file(text(path)) for path in ("a\0", "\0a", "é", "b" * 2000, f"{'b' * 1500}/../c")),
    of_file(length_delimited(1, b"a\xff")),
    of_file(length_delimited(1, b"\xff"), A),
    of_file(A, text("")),
    of_file(text(""), A),
    of_file(A, numbers(2, 1, 2), numbers(3, 1)),
    of_file(A, numbers(2, 1), numbers(3, 1, 2), numbers(2, 300)),
    of_file(A, numbers(2, 1, 2)),
    of_file(A, numbers(2, 2**64 - 2), numbers(3, 0)),
    of_file(A, numbers(2, *MANY_NUMBERS), numbers(3, *MANY_NUMBERS)),
    of_file(A, numbers(2, *MANY_NUMBERS), numbers(3, *MANY_NUMBERS[1:])),
    of_file(A, length_delimited(2, b"\x01\x80"), numbers(3, 1)),
    *(
        of_file(A, length_delimited(2, b"\x80" * size + bytes([last])), numbers(3, 1))
        for size in (9, 10, 11)
        for last in (0, 1, 2, 127)
    ),
    *(
        of_file(A, value(number, one))
        for number in (4, 5, 6, 7)
        for one in (2, 2**31 - 1, 2**31, 2**32 + 2, 2**55, 2**56, 2**63 - 1, 2**63, 2**64 - 1)
    ),
    of_file(A, value(6, 2**63)) + of_file(A, value(6, 2**63)),
    of_file(A, value(4, 1)) + of_file(A, value(5, 1)) + of_file(A, value(4, 1)),
    of_file(A, value(15, 1)),
    *(of_deletions(value(1, one), value(4, 3)) for one in (0, 1, 2, 2**32, 2**32 + 1)),
    *(of_deletions(value(4, one)) for one in (0, 2**55, 2**62, 2**63, 2**64 - 1)),
    of_deletions(value(1, 1) + value(4, 3), value(4, 4)),
    of_deletions(value(4, 4), value(1, 1) + value(4, 3)),
    of_deletions(value(15, 1)),
    *(value(number, one) for number in (1, 4) for one in (2**32 - 1, 2**32, 2**32 + 1, 2**63)),
    value(1, 7) + value(1, 8),
    b"\x88\x00\x07",
    value(15, 1),
]


def test_edges_of_common_shape_equal_protobuf_library():
    for message in EDGES:
        check(message)


def test_unknown_fields_are_reported():
    assert outcome([*COMMON, value(15, 1)])[1]
    assert outcome([*COMMON, of_file(A, value(15, 1))])[1]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 127, 128, 300, 20_000]), st.integers(1, 90))))
def test_starts_of_equal_and_other_lengths_are_found(runs):
    fields = [length_delimited(2, bytes(size)) for size, count in runs for _ in range(count)]
    data = b"".join(fields)
    found = cut_manifest(data, None)
    assert found.encoded.starts.tolist() == [*accumulate(map(len, fields), initial=0)][:-1]
    if data:
        assert cut_manifest(data[:-1], None) is None
