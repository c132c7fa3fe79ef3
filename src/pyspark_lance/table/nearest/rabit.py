"""RabitQ: decode the codes of an IVF_RQ index, and compute distances from them.

A row is stored as the signs of the numbers of its rotated residual, with one bit each, and as
further bits of these numbers. A query is rotated in the same way; products with the signs come
from lookup tables. As in Lance, the entries of these tables are rounded to 255 steps for whole
batches of 32 rows, so that distances are those of Lance.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.nearest.vectors import row_products

_Floats = NDArray[np.floating[Any]]
_Bytes = NDArray[np.uint8]

SIGNS: Final = "_rabit_codes"
_FURTHER_BITS: Final = "__blocked_ex_codes"
_ROUNDS: Final = 4
_MAX_BITS: Final = 9
# Rows whose signs are interleaved, and the row of each byte of such a batch.
_BATCH: Final = 32
_ROW_OF_BYTE: Final = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
# Numbers whose further bits are stored together, and a quarter of them.
_BLOCK: Final = 64
_RUN: Final = 16
_STEPS: Final = np.float32(255)
_BYTE: Final = 8
_LOW_HALVES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_DECODED_NUMBERS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RabitCode:
    """The parameters of the codes of a segment."""

    num_bits: int  # Bits of each number, including its sign.
    flips: NDArray[np.float32]  # 1 or -1 of each number in each round; shape (4, d).

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the codes in the file of rows."""
        return SIGNS, *self.factors, *((_FURTHER_BITS,) if self.num_bits > 1 else ())

    @property
    def factors(self) -> tuple[str, str]:
        """Columns of the addend and of the factor of a row."""
        suffix = "_ex" if self.num_bits > 1 else ""
        return f"__add_factors{suffix}", f"__scale_factors{suffix}"


def parse_code(storage: Mapping[str, Any], names: Sequence[str], width: int) -> RabitCode:
    """Return the parameters of codes in the metadata of a file; refuse other layouts.

    ``names``: columns of the file; ``width``: numbers of a vector.
    """
    bits = int(storage["num_bits"])
    layout = {
        "rotation_type": (storage["rotation_type"], "fast"),
        "query_estimator": (storage["query_estimator"], "raw_query"),
        "packed": (bool(storage["packed"]), True),
        "code_dim": (storage["code_dim"], width),
    }
    for name, (own, known) in layout.items():
        if own != known:
            raise UnsupportedFeatureError(f"IVF_RQ indices of {name} {own} are not supported")
    signs = np.array(storage["fast_rotation_signs"], np.uint8)
    if not 1 <= bits <= _MAX_BITS or width % 8 or len(signs) != _ROUNDS * width // 8:
        raise UnsupportedFeatureError(f"IVF_RQ indices of {bits} bits are not supported")
    flipped = np.unpackbits(signs.reshape(_ROUNDS, -1), axis=1, bitorder="little")
    code = RabitCode(bits, np.where(flipped, np.float32(-1), np.float32(1)))
    missing = [name for name in code.columns if name not in names]
    if missing:
        raise UnsupportedFeatureError(f"IVF_RQ indices without {missing[0]} are not supported")
    return code


def rotate(code: RabitCode, vectors: _Floats) -> NDArray[np.float32]:
    """Rotate vectors as the rows of a segment were; shape (n, d)."""
    width = code.flips.shape[1]
    power = 1 << (width.bit_length() - 1)
    half = width // 2
    numbers = vectors.astype(np.float32)
    for number, flips in enumerate(code.flips):
        numbers *= flips
        # Of other widths than powers of two the first and the last numbers in turn.
        part = slice(0, power) if number % 2 == 0 else slice(width - power, width)
        numbers[:, part] = _walsh_hadamard(numbers[:, part])
        if power != width:
            left, right = numbers[:, :half], numbers[:, half:]
            numbers = np.concatenate([left + right, left - right], axis=1)
    return numbers if power == width else numbers * np.float32(1 / 4)


def _walsh_hadamard(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the orthonormal transform of vectors whose width is a power of two."""
    count, width = vectors.shape
    step = 1
    while step < width:
        pairs = vectors.reshape(count, -1, 2, step)
        found = np.empty_like(pairs)
        np.add(pairs[:, :, 0], pairs[:, :, 1], out=found[:, :, 0])
        np.subtract(pairs[:, :, 0], pairs[:, :, 1], out=found[:, :, 1])
        vectors = found.reshape(count, width)
        step *= 2
    return vectors * (np.float32(1) / np.sqrt(np.float32(width)))


@dataclass(frozen=True, slots=True)
class RabitRows:
    """Codes of some rows of a partition; all arrays have a first axis of rows."""

    signs: _Bytes  # A bit for each number, the lowest first; shape (d / 8, n).
    # Whole numbers: further bits, and the sign above them; shape (n, d). None without further bits.
    numbers: NDArray[Any] | None
    addends: NDArray[np.float32]
    factors: NDArray[np.float32]
    is_rounded: NDArray[np.bool_]  # Whether they belong to a whole batch.

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        numbers = 0 if self.numbers is None else self.numbers.nbytes
        of_rows = self.addends.nbytes + self.factors.nbytes + self.is_rounded.nbytes
        return int(self.signs.nbytes + numbers + of_rows)

    def at(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> RabitRows:
        """Select some of the rows."""
        return RabitRows(
            self.signs[:, kept],
            None if self.numbers is None else self.numbers[kept],
            self.addends[kept],
            self.factors[kept],
            self.is_rounded[kept],
        )


def rows_of(code: RabitCode, batch: pa.RecordBatch) -> RabitRows:
    """Decode the rows of a whole partition."""
    columns = {name: batch.column(batch.schema.names.index(name)) for name in code.columns}
    # Copies, which do not keep the memory of a larger batch.
    addends, factors = (plain_numbers(columns[name]).copy() for name in code.factors)
    signs, further = _row_by_row(_bytes_of(columns[SIGNS])), columns.get(_FURTHER_BITS)
    numbers: NDArray[Any] | None = None
    if further is not None:
        low, width = code.num_bits - 1, code.flips.shape[1]
        numbers = further_numbers(_bytes_of(further), low, width)
        if low == _BYTE:
            highest = np.unpackbits(signs, axis=1, bitorder="little").astype(np.uint16)
            numbers = numbers | (highest << low)
        else:  # of eight numbers at once
            eight = numbers.view(np.uint64)
            eight |= _spread_bits(low).take(signs)
    return RabitRows(
        np.ascontiguousarray(signs.T),
        numbers,
        addends,
        factors,
        np.arange(batch.num_rows) < batch.num_rows // _BATCH * _BATCH,
    )


def _bytes_of(lists: pa.Array) -> _Bytes:
    width = lists.type.list_size
    items = lists.values.slice(lists.offset * width, len(lists) * width)
    return plain_numbers(items).reshape(-1, width)


def _row_by_row(stored: _Bytes) -> _Bytes:
    """Return the sign bits of a partition, row by row.

    Whole batches of rows are interleaved by halves of bytes, the rows that are left are stored
    column by column.
    """
    count, width = stored.shape
    whole = count // _BATCH
    rows = np.empty((count, width), np.uint8)
    batches = stored.reshape(-1)[: whole * _BATCH * width].reshape(whole, width, 2, _BATCH // 2)
    low, high = batches[:, :, 0], batches[:, :, 1]
    own = rows[: whole * _BATCH].reshape(whole, _BATCH, width)
    own[:, _ROW_OF_BYTE] = ((low & 15) | (high << 4)).transpose(0, 2, 1)
    own[:, _ROW_OF_BYTE + _BATCH // 2] = ((low >> 4) | (high & 0xF0)).transpose(0, 2, 1)
    rows[whole * _BATCH :] = stored.reshape(-1)[whole * _BATCH * width :].reshape(width, -1).T
    return rows


def _spread_bits(shift: int) -> NDArray[np.uint64]:
    """Return for each byte eight bytes, each with one of its bits, shifted; shape (256,)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return (bits << np.uint8(shift)).view(np.uint64)[:, 0]


def further_numbers(stored: _Bytes, num_bits: int, width: int) -> _Bytes:
    """Return the numbers of the further bits of rows; shape (n, width).

    ``stored``: of each block of 64 numbers 8 bytes for each bit; ``num_bits``: 1 to 8.
    """
    count = len(stored)
    blocks = stored.reshape(count, -1, 8 * num_bits)
    if num_bits == 1:
        numbers = np.unpackbits(blocks, axis=2, bitorder="little")
    elif num_bits == 8:
        numbers = blocks
    elif num_bits == 4:
        halves = np.ascontiguousarray(stored).view(np.uint64)
        eight = np.empty((count, halves.shape[1], 2), np.uint64)
        np.bitwise_and(halves, _LOW_HALVES, out=eight[:, :, 0])
        np.bitwise_and(halves >> np.uint64(4), _LOW_HALVES, out=eight[:, :, 1])
        numbers = eight.view(np.uint8)
    else:
        numbers = _runs_of(blocks, num_bits).reshape(count, -1, _BLOCK)
    return np.ascontiguousarray(numbers.reshape(count, -1)[:, :width])


def _runs_of(blocks: _Bytes, num_bits: int) -> _Bytes:
    """Return the numbers of blocks by runs of 16; shape (n, blocks, 4, 16)."""
    count, of_row, _ = blocks.shape
    low_bits = num_bits & ~1
    planes = blocks[:, :, : 8 * low_bits].reshape(count, of_row, -1, _RUN)
    if low_bits == 2:
        runs = np.stack([(planes[:, :, 0] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)
    elif low_bits == 4:
        runs = np.stack([planes & 15, planes >> 4], axis=3).reshape(count, of_row, 4, _RUN)
    else:
        last = [(planes[:, :, run] >> 6) << (2 * run) for run in range(3)]
        last_run = (last[0] | last[1] | last[2])[:, :, None]
        runs = np.concatenate([planes & 63, last_run], axis=2)
    if num_bits == low_bits:
        return runs
    # Highest bits: byte b % 8 has those of the numbers b of each run, two bits for a run.
    index = np.arange(_RUN)
    top = blocks[:, :, 8 * low_bits :][:, :, None, index % 8]
    shifts = (2 * np.arange(4)[:, None] + index // 8).astype(np.uint8)
    return runs | (((top >> shifts) & 1) << np.uint8(low_bits))


def concat_rows(parts: Sequence[RabitRows]) -> RabitRows:
    """Concatenate rows of one segment."""
    numbers = [one.numbers for one in parts if one.numbers is not None]
    return RabitRows(
        np.concatenate([one.signs for one in parts], axis=1),
        np.concatenate(numbers) if numbers else None,
        np.concatenate([one.addends for one in parts]),
        np.concatenate([one.factors for one in parts]),
        np.concatenate([one.is_rounded for one in parts]),
    )


def rabit_distances(
    code: RabitCode, rows: RabitRows, queries: NDArray[np.float32], added: _Floats, scale: _Floats
) -> Iterator[NDArray[np.float32]]:
    """Yield for each query the distances of all rows.

    ``queries``: rotated, shape (m, d); ``added``: to each distance; ``scale``: factor of the
    addends of rows.
    """
    products = _low_products(code, rows, queries)
    for number, query in enumerate(queries):
        inner = rabit_products(code, rows, query, SignTables.of(query), products[number])
        addends = np.float32(scale[number]) * rows.addends
        yield inner * rows.factors + addends + np.float32(added[number])


def rabit_products(
    code: RabitCode,
    rows: RabitRows,
    query: NDArray[np.float32],
    tables: SignTables,
    low_products: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the product of a rotated query with each row.

    ``low_products``: those with the further bits; None to compute them.
    """
    further = code.num_bits - 1
    inner: NDArray[Any] = tables.sums(rows.signs, rows.is_rounded)
    if rows.numbers is not None:
        if low_products is None:
            low_products = _low_products(code, rows, query[None])[0]
        inner = inner * np.float32(1 << further) + low_products
    inner -= np.float32((1 << further) - 0.5) * query.sum(dtype=np.float32)
    return inner


def _low_products(
    code: RabitCode, rows: RabitRows, queries: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the products of queries with the further bits of rows; shape (m, n)."""
    count, width = len(rows.addends), queries.shape[1]
    products = np.empty((len(queries), count), np.float32)
    step = max(1, _DECODED_NUMBERS // width)
    for first in range(0, count if rows.numbers is not None else 0, step):
        assert rows.numbers is not None
        part = slice(first, first + step)
        low = (rows.numbers[part] & ((1 << (code.num_bits - 1)) - 1)).astype(np.float32)
        # One query is not worth the threads of BLAS.
        products[:, part] = row_products(low, queries[0]) if len(queries) == 1 else queries @ low.T
    return products


@dataclass(frozen=True, slots=True)
class SignTables:
    """Lookup tables for the sums of the numbers of a query at sign bits.

    Both have an entry for each value of each byte of the sign bits, shape (d / 8, 256).
    """

    exact: NDArray[np.float32]
    levels: NDArray[np.int32]  # As in Lance rounded to steps.
    step: np.float32
    lowest: np.float32  # Of a sum of levels.

    @classmethod
    def of(cls, query: NDArray[np.float32]) -> SignTables:
        """Make the tables of a rotated query."""
        sums = _nibble_sums(query)
        lowest = sums.min()
        extent = sums.max() - lowest
        factor = _STEPS / extent if extent else np.float32(0)
        levels = np.rint((sums - lowest) * factor).astype(np.int32)
        return cls(
            _byte_tables(sums), _byte_tables(levels), extent / _STEPS,
            np.float32(len(sums)) * lowest,
        )  # fmt: skip

    @property
    def rounding(self) -> float:
        """The largest difference of rounded sums from exact ones."""
        return 1.02 * len(self.levels) * float(self.step)

    def sums(self, by_byte: _Bytes, is_rounded: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the sums at the sign bits of rows.

        ``by_byte``: the sign bits, shape (d / 8, n).
        """
        found: NDArray[Any] = _sum_entries(self.levels, by_byte) * self.step + self.lowest
        exact = np.flatnonzero(~is_rounded)
        if len(exact):
            found[exact] = _sum_entries(self.exact, by_byte[:, exact])
        return found


def _nibble_sums(query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sums of each four numbers at the bits of all nibbles; shape (d / 4, 16).

    They are added from the highest bit to the lowest, as in Lance, so that sums are equal.
    """
    numbers = query.reshape(-1, 4)
    sums = np.zeros((len(numbers), 1), np.float32)
    for index in (3, 2, 1, 0):
        sums = np.stack([sums, sums + numbers[:, [index]]], axis=2).reshape(len(numbers), -1)
    return sums


def _byte_tables(tables: NDArray[Any]) -> NDArray[Any]:
    """Return tables of 256 entries of tables of 16 for each half of a byte."""
    low, high = tables[::2, None, :], tables[1::2, :, None]
    return (low + high).reshape(-1, 256)


def _sum_entries(tables: NDArray[Any], by_byte: _Bytes) -> NDArray[Any]:
    """Return the sum of the entries of each row."""
    total = np.zeros(by_byte.shape[1], tables.dtype)
    for entries, own in zip(tables, by_byte, strict=True):
        total += entries.take(own)
    return total
