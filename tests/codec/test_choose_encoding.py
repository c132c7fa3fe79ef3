from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.codec.choose_encoding import PageEncoder
from pyspark_lance.codec.encoding_tree import describe
from pyspark_lance.codec.leaf_column import leaf_columns
from pyspark_lance.codec.shred import shred
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def layouts(array: pa.Array, version: str = "2.1", **metadata: str) -> list[pb.PageLayout]:
    keys = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in metadata.items()}
    field = pa.field("c", array.type, metadata=keys)
    (column,), (rows,) = list(leaf_columns(field)), shred(array, field)
    return [page.layout for page in PageEncoder.of(column, version).encode(rows)]


def kind(array: pa.Array, version: str = "2.1", **metadata: str) -> str:
    (layout,) = layouts(array, version, **metadata)
    if layout.HasField("constant_layout"):
        return "constant"
    if layout.HasField("full_zip_layout"):
        return "full zip"
    block = layout.mini_block_layout
    name = block.value_compression.WhichOneof("compression")
    return f"{name} of a dictionary" if block.HasField("dictionary") else name


RNG = np.random.default_rng(0)
SMALL = pa.array(RNG.integers(0, 100, 5000))
WORDS = pa.array([f"word {number % 40}" for number in range(5000)])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (SMALL, "inline_bitpacking"),
        (SMALL.cast(pa.timestamp("us")), "inline_bitpacking"),
        (SMALL[:100], "flat"),
        (pa.array(RNG.integers(-100, 100, 5000)), "flat"),
        (pa.array(RNG.random(5000)), "flat"),
        (pa.array(np.repeat(np.arange(100), 50)), "rle"),
        (pa.array([True, False] * 900), "flat"),
        (pa.array([f"user {number}" for number in range(5000)]), "fsst"),
        (pa.array([f"user {number}" for number in range(5000)]).cast(pa.binary()), "variable"),
        (pa.array([f"user {number}" for number in range(500)]), "variable"),
        (pa.array(["".join(map(chr, RNG.integers(33, 127, 8))) for _ in range(5000)]), "variable"),
        (WORDS, "inline_bitpacking of a dictionary"),
        (WORDS.cast(pa.large_binary()), "inline_bitpacking of a dictionary"),
        (WORDS.dictionary_encode(), "inline_bitpacking of a dictionary"),
        (WORDS[:50], "variable"),
        (pa.array(["x" * 255, "y"]), "variable"),
        (pa.array(["x" * 256, "y"]), "full zip"),
        (pa.array([bytes(255)] * 9, pa.binary(255)), "flat"),
        (pa.array([bytes(256)] * 9, pa.binary(256)), "full zip"),
        (pa.array([[1.0] * 31] * 9, pa.list_(pa.float64(), 31)), "fixed_size_list"),
        (pa.array([[1.0] * 32] * 9, pa.list_(pa.float64(), 32)), "full zip"),
        (pa.nulls(5), "constant"),
        (pa.nulls(5, pa.string()), "constant"),
        (pa.array([[], None, []], pa.list_(pa.int8())), "constant"),
        (
            pa.array([decimal.Decimal(number % 9) for number in range(900)], pa.decimal128(9, 1)),
            "inline_bitpacking of a dictionary",
        ),
    ],
)
def test_encoding_matches_values(array, expected):
    assert kind(array) == expected


def test_dictionaries_of_64_bit_numbers_need_2_2():
    values = pa.array(RNG.integers(-100, 100, 5000).astype(float))
    assert kind(values, "2.1") == "flat"
    assert kind(values, "2.2") == "inline_bitpacking of a dictionary"


def test_equal_zeros_of_different_sign_stay_different():
    values = pa.array([0.0, -0.0] * 500)
    (layout,) = layouts(values, "2.2")
    assert layout.mini_block_layout.num_dictionary_items == 2


def test_many_distinct_values_get_no_dictionary():
    values = pa.array([f"{number:07}" for number in range(50_000)])
    assert kind(values) == "fsst"
    assert kind(values.cast(pa.large_binary())) == "variable"


def test_half_null_numbers_get_no_dictionary():
    numbers = pa.array(RNG.random(50_000), mask=RNG.random(50_000) < 0.5)
    assert kind(numbers, "2.2") == "flat"


def test_pages_without_nulls_have_no_nullable_layers():
    # Lance before 9 looks for definition levels if there are such layers.
    with_null = layouts(pa.array([[1, None], None, []], pa.list_(pa.int32())))[0]
    without = layouts(pa.array([[1], [2]], pa.list_(pa.int32())))[0]
    assert with_null.mini_block_layout.layers == [3, 6]
    assert without.mini_block_layout.layers == [1, 2]
    assert not without.mini_block_layout.HasField("def_compression")


def test_null_list_items_are_not_constant_pages():
    # Lance before 9 loses entries of constant pages that have more entries than rows.
    assert kind(pa.array([[None, None]], pa.list_(pa.int32()))) == "flat"
    assert kind(pa.array([[None] * 200], pa.list_(pa.string()))) == "variable"
    assert kind(pa.array([[None, None]], pa.list_(pa.null()))) == "constant"


def test_structs_over_lists_always_have_definition_levels():
    # pylance cannot read such a column when only some pages have them.
    kind_of_struct = pa.struct([("l", pa.list_(pa.int32()))])
    (layout,) = layouts(pa.array([{"l": [1]}], kind_of_struct))
    assert layout.mini_block_layout.HasField("def_compression")


def test_chunk_sizes_are_wider_in_2_2():
    assert not layouts(SMALL, "2.1")[0].mini_block_layout.has_large_chunk
    assert layouts(SMALL, "2.2")[0].mini_block_layout.has_large_chunk


def test_many_empty_lists_split_into_pages():
    lists = [[1, 2] if number % 70_000 == 9 else [] for number in range(200_000)]
    found = layouts(pa.array(lists, pa.list_(pa.int32())))
    assert len(found) > 1


def test_row_with_many_empty_lists_is_full_zip():
    row = [[]] * 100_000 + [[1]] + [[]] * 100_000
    assert kind(pa.array([row], pa.list_(pa.list_(pa.int32())))) == "full zip"


@pytest.mark.parametrize("scheme", ["zstd", "lz4"])
@pytest.mark.parametrize("array", [SMALL, WORDS, pa.array(np.arange(500) * 1.5)])
def test_requested_compression_is_written(scheme, array):
    expected = "general of a dictionary" if array is WORDS else "general"
    assert kind(array, compression=scheme) == expected


def test_useless_compression_is_omitted():
    noise = pa.array(RNG.integers(-(1 << 62), 1 << 62, 500))
    assert kind(noise, compression="lz4") == "flat"


def test_compression_none_writes_plain_values():
    assert kind(SMALL, compression="none") == "flat"
    assert kind(pa.array([f"user {n}" for n in range(5000)]), compression="none") == "variable"
    # A dictionary is no compression of its values; pylance makes one, too.
    assert kind(WORDS, compression="none") == "flat of a dictionary"


def value_encoding(array: pa.Array, **metadata: str) -> pb.CompressiveEncoding:
    (layout,) = layouts(array, **metadata)
    kind = layout.WhichOneof("layout")
    return getattr(layout, kind).value_compression


def test_requested_fsst_is_written_for_strings_and_binary():
    few = pa.array(["abc", "abcabc", None, ""])
    assert kind(few, compression="fsst") == "fsst"
    assert kind(few.cast(pa.large_binary()), compression="fsst") == "fsst"
    assert value_encoding(few, compression="fsst", structural_encoding="fullzip").HasField("fsst")


def test_wide_text_uses_fsst_and_huge_values_zstd():
    wide = pa.array([f"some words and the number {number} " * 20 for number in range(200)])
    assert describe(value_encoding(wide)) == "fsst(variable)"
    assert describe(value_encoding(wide.cast(pa.binary()))) == "variable"
    huge = pa.array(["text " * 20_000, None, "", "short"])
    assert describe(value_encoding(huge)) == "zstd(variable)"
    assert describe(value_encoding(huge.cast(pa.binary()))) == "zstd(variable)"
    assert describe(value_encoding(huge, compression="none")) == "variable"
    noise = pa.array([RNG.bytes(50_000) for _ in range(3)])
    assert describe(value_encoding(noise)) == "variable"


@pytest.mark.parametrize("scheme", ["zstd", "lz4"])
def test_wide_values_use_requested_compression(scheme):
    wide = pa.array(["wide " * 100, "", "x" * 300])
    assert describe(value_encoding(wide, compression=scheme)) == f"{scheme}(variable)"
    # pylance cannot read nulls among values that lz4 compressed one by one.
    with_null = pa.array(["wide " * 100, None])
    assert describe(value_encoding(with_null, compression=scheme)) == "zstd(variable)"


def test_byte_stream_split_is_written_on_request():
    numbers = pa.array(np.sin(np.arange(5000) / 1000))
    assert kind(numbers, bss="on") == "byte_stream_split"
    assert kind(numbers, bss="auto") == kind(numbers, bss="off") == "flat"
    split = describe(value_encoding(numbers, bss="on", compression="zstd"))
    assert split == "zstd(byte_stream_split(flat))"


@pytest.mark.parametrize(
    ("key", "value", "array"),
    [
        ("compression", "fsst", SMALL),
        ("compression", "other", WORDS),
        ("bss", "on", WORDS),
        ("bss", "on", SMALL.cast(pa.int16())),
        ("bss", "sometimes", SMALL),
        ("structural_encoding", "other", SMALL),
        ("structural_encoding", "fullzip", WORDS.dictionary_encode()),
        ("structural_encoding", "fullzip", pa.array([[True]], pa.list_(pa.bool_(), 1))),
        ("dict_values_compression", "fsst", WORDS),
        ("some_key", "of_the_future", WORDS),
    ],
)
def test_unwritable_encoding_error_names_value(key, value, array):
    with pytest.raises(UnsupportedFeatureError, match=value):
        kind(array, **{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rle_threshold", "much"), ("rle_threshold", "2"), ("rle_threshold", "nan"),
        ("minichunk_size", "0"), ("minichunk_size", "40000"), ("minichunk_size", "-1"),
        ("dict_divisor", "0"), ("dict_size_ratio", "1.5"), ("dict_max_size", "1e3"),
        ("compression_level", "23"), ("dict_values_compression_level", "x"),
    ],
)  # fmt: skip
def test_out_of_range_setting_is_refused_by_name(key, value):
    with pytest.raises(InvalidInputError, match=rf"column c: .*{key[-4:]} is '{value}'"):
        kind(WORDS, **{key: value})


def chunks_of(array: pa.Array, **metadata: str) -> int:
    """Chunks of the only page."""
    keys = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in metadata.items()}
    field = pa.field("c", array.type, metadata=keys)
    (column,), (rows,) = list(leaf_columns(field)), shred(array, field)
    (page,) = PageEncoder.of(column, "2.1").encode(rows)
    return len(bytes(page.buffers[0])) // 2


def test_tuning_keys_change_encoding():
    runs = pa.array(np.repeat(RNG.integers(0, 1 << 40, 250), 20))
    assert kind(runs, rle_threshold="0.5") == "rle"
    assert kind(runs, rle_threshold="0.01") == "inline_bitpacking"
    for key, value in (
        ("dict_divisor", "1000"),
        ("dict_size_ratio", "0.01"),
        ("dict_max_size", "9"),
    ):
        assert kind(WORDS, **{key: value}) == "fsst"
    half = pa.array([f"a long word {number % 3000}" for number in range(5000)])
    assert kind(half) == "fsst"
    assert kind(half, dict_divisor="1") == "inline_bitpacking of a dictionary"
    names = pa.array([f"user {number}" for number in range(20_000)]).cast(pa.binary())
    assert chunks_of(names, minichunk_size="1000") > 5 * chunks_of(names)
    assert chunks_of(names, minichunk_size="30000") < chunks_of(names)


def test_dictionary_items_use_requested_or_profitable_compression():
    long_words = pa.array([f"a long common prefix {number % 500}" for number in range(5000)])

    def items(array: pa.Array, version: str, **metadata: str) -> str:
        (layout,) = layouts(array, version, **metadata)
        return describe(layout.mini_block_layout.dictionary)

    assert items(long_words, "2.1") == "variable"
    assert items(long_words, "2.2") == "lz4(variable)"
    assert items(WORDS, "2.2") == "variable"
    assert items(WORDS, "2.2", dict_values_compression="lz4") == "lz4(variable)"
    asked = {"dict_values_compression": "zstd", "dict_values_compression_level": "9"}
    assert items(long_words, "2.2", **asked) == "zstd(variable)"
    assert items(long_words, "2.2", dict_values_compression="none") == "variable"
    with pytest.raises(UnsupportedFeatureError, match=r"in files of version 2\.1"):
        items(long_words, "2.1", **asked)


def test_large_values_use_mini_blocks_on_request():
    wide = pa.array([f"some words and the number {number} " * 20 for number in range(200)])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(40_000)), 400)
    for array in (wide, vectors, pa.array([bytes(300)] * 9 + [bytes([1] * 300)], pa.binary(300))):
        assert kind(array) == "full zip"
        assert kind(array, structural_encoding="miniblock") != "full zip"
    huge = pa.array(["text " * 20_000, "x"])
    assert kind(huge, "2.2", structural_encoding="miniblock") == "fsst"
    with pytest.raises(UnsupportedFeatureError, match="column c: a value of 100000 bytes"):
        kind(huge, structural_encoding="miniblock")


def test_requested_vector_compression_is_written_if_profitable():
    rising = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40_000, dtype=np.int64)), 400)
    assert describe(value_encoding(rising, compression="zstd")) == "zstd(fixed_size_list(flat))"
    noise = pa.FixedSizeListArray.from_arrays(
        pa.array(RNG.integers(-(1 << 62), 1 << 62, 40_000)), 400
    )
    assert kind(noise, compression="lz4") == "full zip"
    with pytest.raises(UnsupportedFeatureError, match="in full-zip pages"):
        kind(rising, compression="zstd", structural_encoding="fullzip")


def test_byte_stream_split_is_automatic_with_compression():
    assert describe(value_encoding(SMALL, compression="zstd")) == "zstd(byte_stream_split(flat))"
    assert describe(value_encoding(SMALL, compression="zstd", bss="off")) == "zstd(flat)"
