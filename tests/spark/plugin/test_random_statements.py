"""Random INSERT, UPDATE, DELETE and MERGE against a table that is a dict of rows.

After every statement values, row ids, both row versions and the number of versions are compared,
as pylance reads them.  Every few statements the session gets other settings, which are drawn.
One of the tables has a column of blobs, which statements give bytes or keep.
Sixty statements run by default, always the same; 5,000 by ``poe nightly-statements``, other ones by
``PYSPARK_LANCE_SEED=8``.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace

import lance
import pyarrow as pa
import pytest
from drawn_settings import drawn
from spark_releases import needs
from spark_sessions import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.interop]

STATEMENTS = int(os.environ.get("PYSPARK_LANCE_STATEMENTS", "30"))
SEED = int(os.environ.get("PYSPARK_LANCE_SEED", "7"))
PER_SETTINGS = 10
TEXTS = [None, "a", "ab", "b", "", "😀a", "a\0b", "a" * 3000]
BLOBS = [None, b"", b"blob", bytes(range(256)) * 300]
# Times as SQL writes them; beyond what Python has in some zones, so they are microseconds here.
_START, _END = -62_135_596_800, 253_402_300_799
_WRITTEN = ("TIMESTAMP'0001-01-01 00:00:00'", "TIMESTAMP'9999-12-31 23:59:59'")
_AHEAD = {
    "UTC": (0, 0),
    "America/Los_Angeles": (-28_378, -28_800),
    "Asia/Kathmandu": (20_476, 20_700),
}
LEAVE_BLOBS_OUT = needs("column defaults of V2 tables in writes by name")
# What is in the way of small jobs: more than one task, compiled Java.
QUICK = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass(frozen=True)
class Row:
    """A row as the model knows it; ``row_id`` is None until pylance shows it."""

    v: int | None
    s: str | None
    at: int | None  # Microseconds since 1970.
    created: int
    updated: int
    row_id: int | None
    b: bytes | None = None


class Model:
    """What the table must hold, by ``id``, which is unique."""

    def __init__(self):
        self.rows: dict[int, Row] = {}
        self.version = 1
        self.highest = -1

    def change(self, new: dict[int, Row]) -> None:
        """The state after a statement, which is a version if it changed anything."""
        if new != self.rows:
            self.rows, self.version = new, self.version + 1

    def check(self, path: str, statement: str) -> None:
        """Compare with the files, and learns the ids of new rows."""
        dataset = lance.dataset(path)
        assert dataset.version == self.version, statement
        names = ["id", "v", "s", "at", "_row_created_at_version", "_row_last_updated_at_version"]
        if "b" in dataset.schema.names:
            names.append("b")
        columns = dataset.to_table(columns=names, with_row_id=True, blob_handling="all_binary")
        at = columns["at"].cast(pa.int64())
        table = columns.set_column(columns.schema.get_field_index("at"), "at", at).to_pylist()
        assert len(table) == len(self.rows), statement
        found = {}
        for one in table:
            known = self.rows[one["id"]]
            row_id = one["_rowid"]
            expected = known.row_id if known.row_id is not None else row_id
            assert known.row_id is not None or row_id > self.highest, statement
            found[one["id"]] = Row(
                one["v"], one["s"], one["at"], one["_row_created_at_version"],
                one["_row_last_updated_at_version"], row_id, one.get("b"),
            )  # fmt: skip
            assert found[one["id"]] == replace(known, row_id=expected), statement
        assert len({row.row_id for row in found.values()}) == len(found), statement
        self.rows = found
        self.highest = max([self.highest, *(row.row_id for row in found.values())])


class Writer:
    """Makes statements, runs them in the model, and says their SQL."""

    def __init__(self, rng: random.Random, table: str, *, has_blobs: bool):
        self.rng, self.table, self.has_blobs = rng, table, has_blobs
        self.columns = "(id, v, s, at)" if has_blobs else ""
        self.next_id = 0
        self.zone = "UTC"

    def condition(self, alias: str = "", depth: int = 0):
        """SQL of a condition, and the same for (id, row): true, false or None."""
        rng = self.rng
        kind = rng.random()
        if depth < 2 and kind < 0.25:
            word = rng.choice(["AND", "OR"])
            (one, f), (other, g) = (self.condition(alias, depth + 1) for _ in range(2))

            def joined(key, row):
                both = {f(key, row), g(key, row)}
                decides = word == "OR"
                return decides if decides in both else (None if None in both else not decides)

            return f"({one} {word} {other})", joined
        if depth < 2 and kind < 0.32:
            text, f = self.condition(alias, depth + 1)
            return f"NOT {text}", lambda key, row: None if f(key, row) is None else not f(key, row)
        number = rng.randint(0, 9)
        text = rng.choice([one for one in TEXTS if one is not None])
        time = rng.choice([0, 1])
        at, written = micros_of(time, self.zone), _WRITTEN[time]
        plain = [
            (f"{alias}v > {number}", lambda _, row: None if row.v is None else row.v > number),
            (f"{alias}v IS NULL", lambda _, row: row.v is None),
            (f"{alias}at = {written}", lambda _, row: None if row.at is None else row.at == at),
            (f"{alias}at < {written}", lambda _, row: None if row.at is None else row.at < at),
            (
                f"{alias}s = {sql_text(text)}",
                lambda _, row: None if row.s is None else row.s == text,
            ),
            (f"{alias}s LIKE 'a%'", lambda _, row: None if row.s is None else row.s[:1] == "a"),
            (f"{alias}id % 5 = {number % 5}", lambda key, _: key % 5 == number % 5),
        ]
        hidden = [
            (f"{alias}_rowid % 4 = {number % 4}", lambda _, row: row.row_id % 4 == number % 4),
            (f"{alias}_row_created_at_version > {number}", lambda _, row: row.created > number),
        ]
        blobs = [
            (f"{alias}b IS NULL", lambda _, row: row.b is None),
            (f"{alias}b.size > 2", lambda _, row: None if row.b is None else len(row.b) > 2),
        ]
        return rng.choice(plain + hidden + blobs * self.has_blobs)

    def values(self, count: int):
        """New rows, and a VALUES clause with them."""
        rows = {}
        for _ in range(count):
            rows[self.next_id] = self.row([None, *range(10)])
            self.next_id += 1
        return rows, values_of(rows)

    def row(self, numbers: list[int | None]) -> tuple[int | None, str | None, int | None]:
        """Values of a row but for its id."""
        rng = self.rng
        at = rng.choice([None, 0, *(micros_of(one, rng.choice([*_AHEAD])) for one in (0, 1))])
        return rng.choice(numbers), rng.choice(TEXTS), at

    def insert(self, model: Model) -> str:
        rows, text = self.values(self.rng.randint(1, 4))
        model.change(model.rows | new_rows(rows, model))
        return f"INSERT INTO {self.table} {self.columns} {text}"

    def overwrite(self, model: Model) -> str:
        rows, text = self.values(self.rng.randint(1, 6))
        if self.rng.random() < 0.5:
            model.change(new_rows(rows, model))
            return f"INSERT OVERWRITE {self.table} {self.columns} {text}"
        rows = {key: (3, s, at) for key, (_, s, at) in rows.items()}
        kept = {key: row for key, row in model.rows.items() if row.v != 3}
        model.change(kept | new_rows(rows, model))
        text = values_of(rows)
        text = f"SELECT *, NULL AS b FROM ({text})" if self.has_blobs else text
        return f"INSERT INTO {self.table} REPLACE WHERE v = 3 {text}"

    def delete(self, model: Model) -> str:
        text, holds = self.condition()
        model.change({key: row for key, row in model.rows.items() if not holds(key, row)})
        return f"DELETE FROM {self.table} WHERE {text}"

    def update(self, model: Model) -> str:
        text, holds = self.condition()
        settings = {
            "v = v + 1": lambda _, row: (None if row.v is None else row.v + 1, row.s, row.at),
            "v = CAST(_rowid % 10 AS int)": lambda _, row: (row.row_id % 10, row.s, row.at),
            "s = NULL, v = CAST(id % 7 AS int)": lambda key, row: (key % 7, None, row.at),
            f"at = {_WRITTEN[1]}": lambda _, row: (row.v, row.s, micros_of(1, self.zone)),
        }
        if self.has_blobs:
            blob = self.rng.choice(BLOBS)
            settings |= {
                f"b = {hex_of(blob)}": lambda _, row: (row.v, row.s, row.at, blob),
                f"v = 4, b = if(id % 2 = 0, {hex_of(blob)}, b)": (
                    lambda key, row: (4, row.s, row.at, row.b if key % 2 else blob)
                ),
                f"b = coalesce(b, {hex_of(blob)})": lambda _, row: (
                    row.v, row.s, row.at, blob if row.b is None else row.b,
                ),
            }  # fmt: skip
        assignment, value = self.rng.choice(list(settings.items()))
        stamp = model.version + 1
        changed = {
            key: changed_row(row, value(key, row), stamp)
            for key, row in model.rows.items()
            if holds(key, row)
        }
        model.change(model.rows | changed)
        return f"UPDATE {self.table} SET {assignment} WHERE {text}"

    def merge(self, model: Model) -> str:
        old = self.rng.sample(sorted(model.rows), min(len(model.rows), 4))
        source = {key: self.row([None, 1, 8]) for key in old}
        fresh, _ = self.values(self.rng.randint(0, 2))
        sets_blobs = self.has_blobs and self.rng.random() < 0.6
        if sets_blobs:
            source = {key: (*values, self.rng.choice(BLOBS)) for key, values in source.items()}
            fresh = {key: (*values, self.rng.choice(BLOBS)) for key, values in fresh.items()}
        source |= fresh
        if not source:
            return self.insert(model)
        stamp, rows = model.version + 1, dict(model.rows)
        text, holds = self.condition("t.")
        removes = self.rng.random() < 0.3
        for key in old:
            if holds(key, rows[key]):
                row = changed_row(rows[key], source[key], stamp)
                rows = {k: r for k, r in rows.items() if k != key} if removes else rows | {key: row}
        clauses = [
            f"WHEN MATCHED AND {text} THEN "
            + (
                "DELETE"
                if removes
                else "UPDATE SET v = s.v, s = s.s, at = s.at" + ", b = s.b" * sets_blobs
            )
        ]
        if self.rng.random() < 0.7:
            rows |= new_rows(fresh, model)
            columns = ["id", "v", "s", "at", *(["b"] * sets_blobs)]
            listed = f"({', '.join(columns)}) VALUES ({', '.join('s.' + one for one in columns)})"
            clauses.append(f"WHEN NOT MATCHED THEN INSERT {listed if self.has_blobs else '*'}")
        if self.rng.random() < 0.3:
            other, left = self.condition("t.")
            for key, row in model.rows.items():
                if key not in source and left(key, row):
                    rows[key] = changed_row(row, (5, row.s, row.at), stamp)
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {other} THEN UPDATE SET v = 5")
        model.change(rows)
        return (
            f"MERGE INTO {self.table} t USING ({values_of(source)}) s ON t.id = s.id "
            + " ".join(clauses)
        )


def new_rows(rows, model):
    """Rows that the next version brings."""
    stamp = model.version + 1
    return {key: Row(*values[:3], stamp, stamp, None, *values[3:]) for key, values in rows.items()}


def changed_row(row, values, stamp):
    """A row that the version ``stamp`` gave other values, or the same ones."""
    b = values[3] if len(values) > 3 else row.b
    return replace(row, v=values[0], s=values[1], at=values[2], b=b, updated=stamp)


def hex_of(blob):
    """A literal of bytes."""
    return "NULL" if blob is None else f"X'{blob.hex()}'"


def micros_of(time: int, zone: str) -> int:
    """Microseconds since 1970 of one of ``_WRITTEN`` where clocks show the time of a zone."""
    return ((_START, _END)[time] - _AHEAD[zone][time]) * 1_000_000


def sql_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("\0", "\\0") + "'"


def values_of(rows):
    """A query of these rows, with types even if values are null."""
    has_blobs = any(len(values) > 3 for values in rows.values())
    listed = ", ".join(
        f"({key}L, {'NULL' if v is None else v}, {'NULL' if s is None else sql_text(s)}, "
        f"{'NULL' if at is None else f'timestamp_micros({at})'}"
        + "".join(f", {hex_of(blob)}" for blob in b)
        + ")"
        for key, (v, s, at, *b) in rows.items()
    )
    return (
        "SELECT id, CAST(v AS int) AS v, CAST(s AS string) AS s, CAST(at AS timestamp) AS at"
        + ", CAST(b AS binary) AS b" * has_blobs
        + f" FROM VALUES {listed} AS rows(id, v, s, at{', b' * has_blobs})"
    )


@pytest.mark.parametrize(
    # Statements leave blobs out.
    "place",
    [
        pytest.param("path", marks=needs("column defaults of V2 tables in writes by name")),
        "session",
    ],
)
def test_random_statements_equal_model(plugin, path, place):
    table = f"lance.`{path}`" if place == "path" else "random_statements"
    location = f"USING lance LOCATION '{path}'" if place == "session" else ""
    has_blobs = place == "path"
    blobs = ", b binary) TBLPROPERTIES ('b.blob' = 'true')" if has_blobs else ")"
    columns = f"id bigint, v int, s string, at timestamp{blobs}"
    plugin.sql(f"CREATE TABLE {table} ({columns} {location}")
    rng, model = random.Random(f"{SEED} {place}"), Model()
    writer = Writer(rng, table, has_blobs=has_blobs)
    kinds = [writer.insert, writer.delete, writer.update, writer.merge, writer.overwrite]
    try:
        for first in range(0, STATEMENTS // 2, PER_SETTINGS):
            given = drawn(rng)
            writer.zone = given["spark.sql.session.timeZone"]
            with session_settings(plugin, QUICK | given):
                for number in range(first, min(first + PER_SETTINGS, STATEMENTS // 2)):
                    few = len(model.rows) < 5
                    kind = writer.insert if few else rng.choices(kinds, [5, 3, 5, 6, 1])[0]
                    statement = kind(model)
                    plugin.sql(statement)
                    model.check(path, f"{number}: {statement} with {given}")
    finally:
        if place == "session":  # a path has no name that could be dropped
            plugin.sql(f"DROP TABLE {table}")
