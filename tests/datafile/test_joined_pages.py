"""Small pages of one kind are decoded together; what comes out are the same rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import write_table
from same_text import assert_same_text

from pyspark_lance.codec.structural.page_layout import parse_page_layout
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.v2_1 import field_reader as v2_1_column
from pyspark_lance.store.open_store import open_store

RNG = np.random.default_rng(17)
ROWS = 6000


def table() -> pa.Table:
    masked = RNG.random(ROWS) < 0.2
    numbers = pa.array(RNG.integers(0, 1000, ROWS), mask=masked)
    lengths = RNG.integers(0, 5, ROWS)
    lists = [
        None if n % 13 == 0 else [f"{n}.{i}" for i in range(length)]
        for n, length in enumerate(lengths.tolist())
    ]
    nested = [[part, [], None] if part else [] for part in lists]
    later = pa.array([n if n > 4000 and n % 3 else 1 for n in range(ROWS)])
    return pa.table(
        {
            "numbers": numbers,
            "floats": RNG.standard_normal(ROWS),
            # Pages with and without nulls, packed and as runs: not all are of one kind.
            "mixed": pa.array(later, mask=(later.to_numpy() % 5 == 0) & (np.arange(ROWS) > 4500)),
            "flags": pa.array(RNG.random(ROWS) < 0.5),
            "words": pa.array([f"word {n % 9}" for n in range(ROWS)]),
            # Dictionaries that differ from page to page.
            "names": pa.array([f"a long name, number {n // 700 + n % 3}" for n in range(ROWS)]),
            "few": pa.array(
                [Decimal(10**30 + n // 700 + n % 3) for n in range(ROWS)], pa.decimal128(38, 0)
            ),
            "codes": pa.array([f"code {n // 900 + n % 4}" for n in range(ROWS)])
            .dictionary_encode()
            .cast(pa.dictionary(pa.int8(), pa.string())),
            "name_lists": pa.array(
                [[f"a long name, number {n // 700 + i}" for i in range(n % 4)] for n in range(ROWS)]
            ),
            "lists": pa.array(lists, pa.list_(pa.string())),
            "nested": pa.array(nested, pa.list_(pa.list_(pa.string()))),
            "struct": pa.array(
                [None if n % 7 == 0 else {"a": n, "l": lists[n]} for n in range(ROWS)],
                pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))]),
            ),
        }
    )


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def written(request, tmp_path_factory) -> tuple[Path, pa.Table]:
    folder = tmp_path_factory.mktemp("joined")
    content = table()
    write_table(folder, content, request.param, batch_rows=100, pages=4000)
    return folder, content


@pytest.fixture(params=[0, 1 << 12, 1 << 20], ids=["alone", "few", "many"])
def reader(written, request, monkeypatch) -> DataFileReader:
    monkeypatch.setattr(v2_1_column, "_MAX_JOINED_BYTES", request.param)
    return DataFileReader.open(open_store(str(written[0])), "data/x.lance")


def test_fixture_has_many_pages(reader):
    assert min(len(reader._file.metadata.column(n).pages) for n in (0, 1, 5)) > 5


def test_fixture_has_dictionary_columns(reader):
    for name in ("names", "few", "codes", "name_lists"):
        column = next(
            reader.embedded_columns()[leaf.id]
            for field in reader.schema.fields
            if field.name == name
            for leaf in field.walk()
            if not leaf.children
        )
        layouts = [
            parse_page_layout(page.encoding_bytes).mini_block_layout
            for page in reader._file.metadata.column(column).pages
        ]
        assert sum(layout.HasField("dictionary") for layout in layouts) > 1, name


@pytest.mark.parametrize("count", [1, 7, 300, 3000])
def test_takes_across_pages(reader, written, count):
    fields, columns = reader.schema.fields, reader.embedded_columns()
    for _ in range(3):
        rows = RNG.choice(ROWS, count, replace=False)
        assert_same_text(reader.take(fields, columns, rows), written[1].take(pa.array(rows)))


def test_ranges_across_pages(reader, written):
    fields, columns = reader.schema.fields, reader.embedded_columns()
    whole = written[1]
    for ranges in ([(0, ROWS)], [(17, 5003)], [(3, 1200), (1210, 1211), (4000, ROWS)]):
        found = pa.Table.from_batches(reader.read_batches(fields, columns, ranges=ranges))
        expected = pa.concat_tables([whole.slice(a, b - a) for a, b in ranges])
        assert_same_text(found, expected)
