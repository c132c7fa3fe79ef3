"""Which SQL statement works on which kind of table: the matrix of docs/sql.md, by running it.

``python tests/support_matrix.py companion|plain [connect]`` runs every cell and prints the
table; with ``--write`` into docs/sql.md, too.  A cell is "yes" when the statement does what it
says, "–" when it is refused; anything else is an error.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from connect_script import START_CONNECT
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "sql.md"
_BEGIN, _END = "<!-- matrix: made by tests/support_matrix.py -->\n", "<!-- /matrix -->\n"
_ROWS = "SELECT 1L AS id, 'a' AS v UNION ALL SELECT 2L, 'b'"
_START = [(1, "a"), (2, "b")]
YES, NO = "yes", "–"


@dataclass(frozen=True)
class Statement:
    """One row of the matrix.

    Attributes:
        label: As the document shows it.
        sql: With ``{t}`` for the name of the table.
        query: What is asked afterwards; None for what the statement itself returns.
        expected: The answer, sorted, or what must be true of it.
    """

    label: str
    sql: str
    query: str | None
    expected: list | Callable[[list], bool]


_ALL = "SELECT * FROM {t}"
STATEMENTS = [
    Statement("`SELECT`", _ALL, None, _START),
    Statement("hidden columns", "SELECT id, _rowid FROM {t}", None, [(1, 0), (2, 1)]),
    Statement("`VERSION AS OF`", "SELECT * FROM {t} VERSION AS OF 1", None, _START),
    Statement(
        "`CHANGES FROM VERSION`", "SELECT id FROM {t} CHANGES FROM VERSION 1", None, [(1,), (2,)]
    ),
    Statement("`INSERT INTO`", "INSERT INTO {t} VALUES (3, 'c')", _ALL, [*_START, (3, "c")]),
    Statement(
        "… with a column list", "INSERT INTO {t} (id) VALUES (3)", _ALL, [*_START, (3, None)]
    ),
    Statement("`INSERT OVERWRITE`", "INSERT OVERWRITE {t} VALUES (3L, 'c')", _ALL, [(3, "c")]),
    Statement(
        "… from itself", "INSERT OVERWRITE {t} SELECT id * 2, v FROM {t}", _ALL,
        [(2, "a"), (4, "b")],
    ),
    Statement(
        "`INSERT … REPLACE WHERE`", "INSERT INTO {t} REPLACE WHERE id = 2 SELECT 2L, 'z'", _ALL,
        [(1, "a"), (2, "z")],
    ),
    Statement(
        "`INSERT WITH SCHEMA EVOLUTION`",
        "INSERT WITH SCHEMA EVOLUTION INTO {t} SELECT 3L AS id, 'c' AS v, 5 AS n",
        "SELECT id, n FROM {t}", [(1, None), (2, None), (3, 5)],
    ),
    Statement("`DELETE`", "DELETE FROM {t} WHERE id = 1", _ALL, [(2, "b")]),
    Statement("`UPDATE`", "UPDATE {t} SET v = 'z' WHERE _rowid = 1", _ALL, [(1, "a"), (2, "z")]),
    Statement(
        "`MERGE INTO`",
        "MERGE INTO {t} t USING (SELECT 2L AS id, 'z' AS v UNION ALL SELECT 3L, 'c') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        _ALL, [(1, "a"), (2, "z"), (3, "c")],
    ),
    Statement(
        "`MERGE WITH SCHEMA EVOLUTION`",
        "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 2L AS id, 'b' AS v, 5 AS n) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
        "SELECT id, n FROM {t}", [(1, None), (2, 5)],
    ),
    Statement("`TRUNCATE TABLE`", "TRUNCATE TABLE {t}", _ALL, []),
    Statement(
        "`CREATE OR REPLACE … AS SELECT`, from itself",
        "CREATE OR REPLACE TABLE {t} USING lance AS SELECT id + 1 AS more FROM {t}", _ALL,
        [(2,), (3,)],
    ),
    Statement(
        "`ALTER TABLE … ADD COLUMNS`, `DEFAULT`", "ALTER TABLE {t} ADD COLUMNS (n int DEFAULT 7)",
        "SELECT id, n FROM {t}", [(1, 7), (2, 7)],
    ),
    Statement(
        "… `RENAME COLUMN`", "ALTER TABLE {t} RENAME COLUMN v TO w", "SELECT w FROM {t}",
        [("a",), ("b",)],
    ),
    Statement("… `DROP COLUMN`", "ALTER TABLE {t} DROP COLUMN v", _ALL, [(1,), (2,)]),
    Statement(
        "… `SET TBLPROPERTIES`", "ALTER TABLE {t} SET TBLPROPERTIES (a = 'b')",
        "SHOW TBLPROPERTIES {t}", lambda rows: ("a", "b") in rows,
    ),
    Statement(
        "`DESCRIBE`", "DESCRIBE {t}", None,
        lambda rows: [row[:2] for row in rows][:2] == [("id", "bigint"), ("v", "string")],
    ),
    Statement("`SHOW CREATE TABLE`", "SHOW CREATE TABLE {t}", None,
              lambda rows: "USING lance" in rows[0][0]),
    Statement("`ANALYZE TABLE`", "ANALYZE TABLE {t} COMPUTE STATISTICS", _ALL, _START),
]  # fmt: skip

_number = count()


def session_table(session, folder):
    """A managed table of Spark's own catalog."""
    name = f"matrix_{next(_number)}"
    session.sql(f"CREATE TABLE {name} USING lance AS {_ROWS}").collect()
    return name


def external_table(session, folder):
    """A table of Spark's own catalog at a path."""
    name = f"matrix_{next(_number)}"
    session.sql(f"CREATE TABLE {name} USING lance LOCATION '{saved(session, folder)}'").collect()
    return name


def folder_table(session, folder):
    """A table of a catalog that is a folder."""
    name = f"folder.matrix_{next(_number)}"
    session.sql(f"CREATE TABLE {name} AS {_ROWS}").collect()
    return name


def path_table(session, folder):
    """A path as a name."""
    return f"lance.`{saved(session, folder)}`"


def temporary_view(session, folder):
    """A view over a path."""
    name = f"matrix_{next(_number)}"
    path = saved(session, folder)
    session.sql(f"CREATE TEMPORARY VIEW {name} USING lance OPTIONS (path '{path}')").collect()
    return name


def saved(session, folder):
    """A table at a new path."""
    path = f"{folder}/t{next(_number)}"
    session.sql(_ROWS).coalesce(1).write.format("lance").mode("append").save(path)
    return path


PLACES = {
    "session": session_table,
    "`LOCATION`": external_table,
    "folder": folder_table,
    "path": path_table,
    "view": temporary_view,
}
# Without the companion there is nothing to run these in.
PLAIN = ("session", "`LOCATION`", "view")


def cell(session, place: str, statement: Statement, folder: str) -> str:
    """Runs one statement on a new table."""
    if place == "view" and statement.sql.startswith("CREATE"):
        return NO  # it makes a table beside the view
    try:
        name = PLACES[place](session, folder)
        rows = session.sql(statement.sql.format(t=name)).collect()
        if statement.query is not None:
            rows = session.sql(statement.query.format(t=name)).collect()
    except (PySparkException, Py4JError):
        return NO
    found = [tuple(row) for row in rows]
    good = (
        statement.expected(found)
        if callable(statement.expected)
        else sorted(found, key=repr) == sorted(statement.expected, key=repr)
    )
    return YES if good else f"wrong: {found}"


def matrix(session, places) -> dict[str, dict[str, str]]:
    """All cells of some places."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            one.label: {place: cell(session, place, one, folder) for place in places}
            for one in STATEMENTS
        }


def documented() -> dict[str, dict[str, str]]:
    """What docs/sql.md says, by statement and column."""
    text = DOCUMENT.read_text(encoding="utf-8")
    lines = text[text.index(_BEGIN) + len(_BEGIN) : text.index(_END)].strip().splitlines()
    header, _, *rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def column_of(place: str, kind: str) -> str:
    """The heading of a column."""
    return place if kind == "companion" else f"{place}, plain"


def write(found: dict[str, dict[str, str]], kind: str) -> None:
    """Puts the cells of one kind of session into docs/sql.md; the others stay."""
    known = documented()
    columns = [*PLACES, *(column_of(place, "plain") for place in PLAIN)]
    if kind == "companion" and not any(columns[-1] in row for row in known.values()):
        columns = list(PLACES)
    for label, cells in found.items():
        row = known.setdefault(label, {})
        row |= {column_of(place, kind): value for place, value in cells.items()}
    lines = ["|", "".join(["|", *("---|" for _ in range(len(columns) + 1))])]
    lines[0] = "| | " + " | ".join(columns) + " |"
    for one in STATEMENTS:
        row = known[one.label]
        lines.append(f"| {one.label} | " + " | ".join(row.get(c, "?") for c in columns) + " |")
    text = DOCUMENT.read_text(encoding="utf-8")
    head, tail = text[: text.index(_BEGIN) + len(_BEGIN)], text[text.index(_END) :]
    DOCUMENT.write_text(head + "\n".join(lines) + "\n" + tail, encoding="utf-8")


def connect_session():
    """A local Connect server, on which the companion is switched on."""
    from pyspark_lance.spark.companion import enable

    names = {}
    exec(START_CONNECT, names)
    session = names["spark"]
    enable(session)
    with tempfile.TemporaryDirectory() as folder:
        session.conf.set("spark.sql.catalog.folder", "org.pysparklance.LanceCatalog")
        session.conf.set("spark.sql.catalog.folder.path", folder)
        yield session


def main(given: list[str]) -> int:
    """The command."""
    from conftest import start_session

    kind = given[0]
    places = list(PLACES) if kind == "companion" else list(PLAIN)
    sessions = (
        connect_session() if "connect" in given else start_session(companion=kind == "companion")
    )
    for session in sessions:
        found = matrix(session, places)
    for label, cells in found.items():
        sys.stdout.write(f"{label:50} {cells}\n")
    if "--write" in given:
        write(found, kind)
    return int(any(value not in (YES, NO) for row in found.values() for value in row.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
