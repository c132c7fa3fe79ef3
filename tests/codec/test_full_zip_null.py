"""Full-zip pages without values, as releases of Lance before 4 wrote null vectors."""

import numpy as np
import pytest

from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.codec.structural.full_zip import FullZipPage
from pyspark_lance.codec.values import NullValues
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def layout(**changes):
    description = pb.FullZipLayout(
        bits_def=1, bits_per_value=0, num_items=6, num_visible_items=6, layers=[3]
    )
    description.value_compression.constant.SetInParent()
    for name, value in changes.items():
        setattr(description, name, value)
    return description


def test_control_words_alone_are_null_values():
    page = FullZipPage(layout(), 6, [6])
    plan = page.plan(RowRanges(np.array([1, 4]), np.array([3, 5])))
    rows = page.decode(plan, [np.ones(place.end - place.start, np.uint8) for place in plan.ranges])
    assert rows.values == NullValues(3)
    assert rows.definition.tolist() == [1, 1, 1]


@pytest.mark.parametrize("changes", [{"bits_def": 0}, {"bits_per_value": 8}])
def test_values_without_bytes_need_levels_and_no_width(changes):
    with pytest.raises(CorruptFileError, match="null values of"):
        FullZipPage(layout(**changes), 6, [6])
