"""How large the values of a page become, judged by its description alone."""

from __future__ import annotations

import pyarrow as pa

from pyspark_lance.codec.v2_0.array_decoder import bit_width_of
from pyspark_lance.proto import encodings_v2_0_pb2 as pb

_OFFSET_BYTES = 4
_FSST_GROWTH = 3


def estimate_value_bytes(
    encoding: pb.ArrayEncoding, data_type: pa.DataType, num_values: int
) -> float:
    """Decoded bytes per value; 0 if the description does not tell."""
    fixed = bit_width_of(data_type)
    if fixed:
        return fixed / 8
    kind = encoding.WhichOneof("array_encoding")
    if kind == "binary" and num_values:
        return _OFFSET_BYTES + max(encoding.binary.null_adjustment - 1, 0) / num_values
    if kind == "fsst":
        return _FSST_GROWTH * estimate_value_bytes(encoding.fsst.binary, data_type, num_values)
    if kind == "dictionary":
        dictionary = encoding.dictionary
        return estimate_value_bytes(
            dictionary.items, data_type, max(dictionary.num_dictionary_items, 1)
        )
    if kind == "nullable" and encoding.nullable.WhichOneof("nullability") != "all_nulls":
        nullable = encoding.nullable
        inner = nullable.no_nulls if nullable.HasField("no_nulls") else nullable.some_nulls
        return estimate_value_bytes(inner.values, data_type, num_values)
    return 0
