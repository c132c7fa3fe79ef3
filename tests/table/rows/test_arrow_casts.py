"""Each type as each other type, in arrays of every make: no crash, and the values one by one.

pyarrow ends the process on some of them.  So a process of its own casts them, and one that ends is
a failure that names the cast.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_lance.errors import LanceError
from pyspark_lance.format.logical_type import plain_type, to_plain
from pyspark_lance.table.cdf.column_source import cast_values
from pyspark_lance.table.rows.conform import arrow_cast, conform_array, storable

_DAY, _TIME = datetime.date(2024, 2, 29), datetime.time(1, 2, 3)
_MOMENT = datetime.datetime(2024, 2, 29, 1, 2, 3)
_SCALARS = {
    pa.bool_(): [True, False],
    pa.int8(): [1, 2],
    pa.int64(): [1, 2],
    pa.uint64(): [1, 2],
    pa.float16(): [1.0, 2.0],
    pa.float32(): [1.0, 2.0],
    pa.float64(): [1.0, 2.0],
    pa.decimal128(20, 0): [Decimal(1), Decimal(2)],
    pa.date32(): [_DAY, None],
    pa.timestamp("us"): [_MOMENT, None],
    pa.timestamp("ns", "UTC"): [_MOMENT, None],
    pa.time64("ns"): [_TIME, None],
    pa.time32("s"): [_TIME, None],
    pa.duration("us"): [datetime.timedelta(1), None],
    pa.string(): ["1", "2"],
    pa.large_string(): ["1", "2"],
    pa.binary(): [b"1", b"2"],
    pa.large_binary(): [b"1", b"2"],
    pa.binary(1): [b"1", b"2"],
    pa.dictionary(pa.int32(), pa.string()): ["1", "2"],
    pa.dictionary(pa.int8(), pa.int64()): [1, 2],
    pa.null(): [None, None],
}


def _nested(items: dict[pa.DataType, list]) -> dict[pa.DataType, list]:
    found = {}
    for kind, (one, other) in items.items():
        lists = [[one, other], [None, one]]
        found |= {pa.list_(kind): lists, pa.large_list(kind): lists, pa.list_(kind, 2): lists}
        found[pa.struct([("a", kind)])] = [{"a": one}, {"a": None}]
        found[pa.map_(pa.string(), kind)] = [[("k", one)], []]
    return found


_ITEMS = [
    pa.float32(), pa.int64(), pa.bool_(), pa.string(), pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip
_ONCE = _nested({kind: _SCALARS[kind] for kind in _ITEMS})
_LISTS = {
    kind: values for kind, values in _nested({pa.float32(): [1.0, 2.0]}).items()
    if not pa.types.is_map(kind)
}  # fmt: skip
VALUES = _SCALARS | _ONCE | _nested(_LISTS)


def bare(kind: pa.DataType, count: int) -> pa.Array:
    """Nulls that have no value below them, and no buffer that Arrow's format lets out."""
    types = pa.types
    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            bare(kind.index_type, count), pa.array([], kind.value_type)
        )
    if types.is_null(kind):
        return pa.nulls(count)
    validity = pa.py_buffer(bytes(count // 8 + 1)) if count else None
    if types.is_fixed_size_list(kind):
        items = bare(kind.value_type, count * kind.list_size)
        return pa.Array.from_buffers(kind, count, [validity], count, children=[items])
    if types.is_struct(kind):
        parts = [bare(member.type, count) for member in kind]
        return pa.Array.from_buffers(kind, count, [validity], count, children=parts)
    if kind.num_buffers == 3 or types.is_map(kind) or kind.num_fields:
        wide = types.is_large_list(kind) or str(kind).startswith("large_")
        offsets = pa.py_buffer(bytes((count + 1) * (8 if wide else 4)))
        if not kind.num_fields:
            texts = [validity, offsets, pa.py_buffer(b"")]
            return pa.Array.from_buffers(kind, count, texts, count)
        inner = pa.struct([kind.key_field, kind.item_field]) if types.is_map(kind) else None
        items = bare(inner or kind.value_type, 0)
        return pa.Array.from_buffers(kind, count, [validity, offsets], count, children=[items])
    values = pa.py_buffer(bytes(-(-count * kind.bit_width // 8))) if count else None
    return pa.Array.from_buffers(kind, count, [validity, values], count)


def makes(kind: pa.DataType) -> Iterator[tuple[str, pa.Array]]:
    """Arrays of a type, by what is special about them."""
    one, other = VALUES[kind]
    yield "empty", pa.array([], kind)
    yield "empty, no buffer", bare(kind, 0)
    yield "all null", pa.nulls(3, kind)
    yield "all null, no buffer", bare(kind, 3)
    yield "all null, no buffer, sliced", bare(kind, 3).slice(1)
    yield "first null", pa.array([None, one, other], kind)
    whole = pa.array([one, None, None, other, one, other], kind)
    yield "sliced", whole.slice(3)
    yield "sliced to nulls", whole.slice(1, 2)
    yield "sliced to nothing", whole.slice(2, 0)
    yield "sliced, some null", whole.slice(2, 3)


class OneByOne:
    """What each value becomes alone."""

    def __init__(self, cast):
        self._cast, self._found = cast, {}

    def __call__(self, array: pa.Array) -> list | None:
        """Of ``array``; None if one does not fit."""
        found = [self._of(value, array.type) for value in array.to_pylist()]
        return None if any(one is None for one in found) else [one[0] for one in found]

    def _of(self, value, kind):
        if value is None:
            return [None]
        key = repr(value)
        if key not in self._found:
            alone = self._cast(pa.array([value, value], kind))
            self._found[key] = None if alone is None else alone.to_pylist()
        return self._found[key]


def _tried(cast, array, *arguments):
    try:
        return cast(array, *arguments)
    except (LanceError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None


def casts_of(kind: pa.DataType, target: pa.DataType) -> Iterator[tuple[str, object]]:
    """The casts of the package from one type to another."""
    if not storable(kind, target):
        yield "arrow_cast", lambda array: _tried(arrow_cast, array, target)
    else:
        yield "conform_array", lambda array: _tried(conform_array, array, target, "c")
    yield "cast_values", lambda array: _tried(cast_values, array, target)
    if target == plain_type(kind, "c"):
        yield "to_plain", lambda array: _tried(to_plain, array, target, "c")


PARTS = 3


def cast_all(part: int) -> None:
    """Cast arrays of every type to a part of the types; print what goes wrong."""
    every = list(VALUES)
    for at, kind in enumerate(every):
        for target in every[(part - at) % PARTS :: PARTS]:
            for name, cast in casts_of(kind, target):
                values_of = OneByOne(cast)
                for make, array in makes(kind):
                    what = f"{name}: {kind} -> {target}, {make}"
                    sys.stdout.write(f"casts {what}\n")
                    sys.stdout.flush()
                    expected, found = values_of(array), cast(array)
                    if found is not None:
                        found.validate(full=True)
                        assert found.type == target, what
                    if expected is not None and (
                        array.null_count < len(array) or found is not None
                    ):
                        assert found is not None, what
                        assert found.to_pylist() == expected, what
                    if name == "conform_array" and array.null_count == len(array):
                        assert found is not None, what
    sys.stdout.write("done\n")


# Each part has every type, as what is cast and as what that becomes.
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]
)
def test_arrow_casts_equal_single_value_casts(part):
    done = subprocess.run(
        [sys.executable, Path(__file__), str(part)], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    said = done.stderr[-1000:]
    assert (done.returncode, lines[-1]) == (0, "done"), f"{said}\nthe last was: {lines[-1]}"
    assert len(lines) > 10_000


if __name__ == "__main__":
    cast_all(int(sys.argv[1]))
