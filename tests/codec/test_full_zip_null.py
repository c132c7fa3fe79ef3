"""Full-zip pages without values, as releases of Lance write vectors of nulls."""

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.codec.array_assembly import assemble_leaf, assemble_rows
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.structural.full_zip import FullZipPage
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def layout(**changes):
    description = pb.FullZipLayout(
        bits_def=1, bits_per_value=0, num_items=6, num_visible_items=6, layers=[3]
    )
    description.value_compression.constant.SetInParent()
    for name, value in changes.items():
        if name == "layers":
            description.layers[:] = value
        else:
            setattr(description, name, value)
    return description


def test_control_words_decode_to_null_vectors():
    page = FullZipPage(layout(), 6, [6])
    plan = page.plan(RowRanges(np.array([1, 4]), np.array([3, 5])))
    words = np.array([0, 1, 0, 0, 1, 0], np.uint8)
    rows = page.decode(plan, [words[place.start : place.end] for place in plan.ranges])
    assert rows.definition.tolist() == [1, 0, 1]
    array, _ = assemble_rows(rows, pa.list_(pa.float32(), 2))
    assert array.to_pylist() == [None, [None, None], None]


def test_empty_page_decodes_to_null_vectors():
    page = FullZipPage(layout(bits_def=0, layers=[1]), 6, [0])
    rows = page.decode(page.plan(RowRanges.single(2, 4)), [np.zeros(0, np.uint8)])
    array, _ = assemble_rows(rows, pa.list_(pa.float32(), 2))
    assert array.to_pylist() == [[None, None]] * 2


def test_values_without_bytes_have_no_width():
    with pytest.raises(CorruptFileError, match="null values"):
        FullZipPage(layout(bits_per_value=8), 6, [6])


def vectors_of_nulls(*layers, bits):
    description = pb.FullZipLayout(
        bits_per_value=bits, num_items=6, num_visible_items=6, layers=[1]
    )
    encoding = description.value_compression
    for dimension, has_validity in layers:
        encoding.fixed_size_list.items_per_value = dimension
        encoding.fixed_size_list.has_validity = has_validity
        encoding = encoding.fixed_size_list.values
    encoding.constant.SetInParent()
    return description


def test_vectors_of_nulls_have_bits_and_no_items():
    page = FullZipPage(vectors_of_nulls((2, True), (5, True), bits=24), 6, [18])
    rows = page.decode(page.plan(RowRanges.single(2, 4)), [np.zeros(6, np.uint8)])
    kind = pa.list_(pa.list_(pa.float32(), 5), 2)
    assert assemble_leaf(rows.values, kind, None).to_pylist() == [[None, None]] * 2


@pytest.mark.parametrize(
    ("layers", "bits"),
    [([(2, True)], 16), ([(2, True), (1 << 20, False)], 8), ([(2, False)], 8), ([], 8)],
)
def test_null_vectors_with_wrong_layers_are_corrupt(layers, bits):
    with pytest.raises(CorruptFileError, match="null values"):
        FullZipPage(vectors_of_nulls(*layers, bits=bits), 6, [12])
