"""Which SQL statement works on which kind of table: the matrix of docs/sql.md, by running it.

``python tests/support/support_matrix.py all`` runs every cell in four sessions (plugin or plain,
classic or Connect), prints them, and fails where they are not what docs/sql.md says; ``plugin``
or ``plain``, with or without ``connect``, is one of these sessions.  ``--some`` runs every
statement on one kind of table only; ``--write`` puts what is found into docs/sql.md.

A cell is "yes" when the statement does what it says, "–" when it is refused, "later" when a view
shows it once it is made again, and "entry" when only the entry of Spark's own catalog answers or
changes, not the table.  Anything else is an error.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import lance
from connect_script import start_connect
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from spark_releases import has

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
_BEGIN, _END = (
    "<!-- matrix: {}, made by tests/support/support_matrix.py -->\n",
    "<!-- /matrix -->\n",
)
# Tables are so small that plans which adapt and compiled Java cost more than they save.
_QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
_ROWS = "SELECT 1L AS id, 'a' AS v UNION ALL SELECT 2L, 'b'"
_START = [(1, "a"), (2, "b")]
YES, NO, LATER, ENTRY = "yes", "–", "later", "entry"
# What older releases of Spark refuse.
_NEEDS = {
    "`CHANGES FROM VERSION`": "CHANGES of tables",
    "`INSERT INTO` with a list of columns": "column defaults of V2 tables in writes by name",
    "`INSERT WITH SCHEMA EVOLUTION`": "schema evolution of other writes than MERGE",
    "`MERGE WITH SCHEMA EVOLUTION`": "MERGE WITH SCHEMA EVOLUTION",
}
_CHANGING = ("INSERT", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "CREATE", "ALTER")
_OF_CATALOG = ("CREATE", "ALTER", "SHOW", "DESCRIBE")


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

    def is_answered_by(self, rows: list[tuple]) -> bool:
        """Whether these rows are the expected answer."""
        if callable(self.expected):
            return self.expected(rows)
        return sorted(rows, key=repr) == sorted(self.expected, key=repr)


@dataclass(frozen=True)
class Table:
    """One table to try a statement on.

    Attributes:
        name: As SQL knows it.
        path: Where it lies; None for those of which a catalog decides that.
    """

    name: str
    path: str | None = None

    def version(self) -> int | None:
        """The newest version in the files."""
        return None if self.path is None else lance.dataset(self.path).version


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
        "`INSERT INTO` with a list of columns", "INSERT INTO {t} (id) VALUES (3)", _ALL,
        [*_START, (3, None)],
    ),
    Statement("`INSERT OVERWRITE`", "INSERT OVERWRITE {t} VALUES (3L, 'c')", _ALL, [(3, "c")]),
    Statement(
        "`INSERT OVERWRITE` from itself", "INSERT OVERWRITE {t} SELECT id * 2, v FROM {t}", _ALL,
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
        "`CREATE OR REPLACE … CLUSTER BY`",
        "CREATE OR REPLACE TABLE {t} (n int) USING lance CLUSTER BY (n)", "DESCRIBE {t}",
        lambda rows: "# Clustering Information" in [row[0] for row in rows],
    ),
    Statement(
        "`ALTER TABLE … ADD COLUMNS`, `DEFAULT`", "ALTER TABLE {t} ADD COLUMNS (n int DEFAULT 7)",
        "SELECT id, n FROM {t}", [(1, 7), (2, 7)],
    ),
    Statement(
        "`ALTER TABLE … RENAME COLUMN`", "ALTER TABLE {t} RENAME COLUMN v TO w",
        "SELECT w FROM {t}", [("a",), ("b",)],
    ),
    Statement("`ALTER TABLE … DROP COLUMN`", "ALTER TABLE {t} DROP COLUMN v", _ALL, [(1,), (2,)]),
    Statement(
        "`ALTER TABLE … SET TBLPROPERTIES`", "ALTER TABLE {t} SET TBLPROPERTIES (a = 'b')",
        "SHOW TBLPROPERTIES {t}", lambda rows: ("a", "b") in rows,
    ),
    Statement(
        "`ALTER TABLE … CLUSTER BY`", "ALTER TABLE {t} CLUSTER BY (id)", "DESCRIBE {t}",
        lambda rows: "# Clustering Information" in [row[0] for row in rows],
    ),
    Statement(
        "`DESCRIBE`", "DESCRIBE {t}", None,
        lambda rows: [row[:2] for row in rows][:2] == [("id", "bigint"), ("v", "string")],
    ),
    Statement("`SHOW CREATE TABLE`", "SHOW CREATE TABLE {t}", None,
              lambda rows: "USING lance" in rows[0][0]),
    Statement("`ANALYZE TABLE`", "ANALYZE TABLE {t} COMPUTE STATISTICS", _ALL, _START),
]  # fmt: skip

_REFUSALS = (PySparkException, Py4JError)
_number = count()


def session_table(session, folder):
    """A managed table of Spark's own catalog."""
    name = f"matrix_{next(_number)}"
    session.sql(f"CREATE TABLE {name} USING lance AS {_ROWS}").collect()
    return Table(name)


def external_table(session, folder):
    """A table of Spark's own catalog at a path."""
    name, path = f"matrix_{next(_number)}", saved(session, folder)
    session.sql(f"CREATE TABLE {name} USING lance LOCATION '{path}'").collect()
    return Table(name, path)


def folder_table(session, folder):
    """A table of a catalog that is a folder."""
    name = f"folder.matrix_{next(_number)}"
    session.sql(f"CREATE TABLE {name} AS {_ROWS}").collect()
    return Table(name)


def path_table(session, folder):
    """A path as a name."""
    path = saved(session, folder)
    return Table(f"lance.`{path}`", path)


def temporary_view(session, folder):
    """A view over a path."""
    table = Table(f"matrix_{next(_number)}", saved(session, folder))
    make_view(session, table)
    return table


def make_view(session, table):
    """Make the view, or make it again."""
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {table.name} USING lance OPTIONS (path '{table.path}')"
    ).collect()


def saved(session, folder):
    """The path of a new table."""
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
# Without the plugin there are no others.
PLAIN = ("`LOCATION`", "view")


def cell(session, place: str, statement: Statement, folder: str) -> str:
    """Run one statement on a new table."""
    verb = statement.sql.split()[0]
    if place == "view" and verb == "CREATE":
        return NO  # it makes a table beside the view
    table = PLACES[place](session, folder)
    before = table.version()
    try:
        rows = answer(session, statement.sql, table)
    except _REFUSALS:
        return NO
    stays = verb in _CHANGING and before is not None and table.version() == before
    for good in (YES, LATER):
        try:
            if statement.query is not None:
                rows = answer(session, statement.query, table)
            if statement.is_answered_by(rows) and not stays:
                return good
        except _REFUSALS as error:
            rows = str(error).splitlines()[:1]
        if place != "view" or verb not in _CHANGING or stays:
            break
        make_view(session, table)
    is_entry = verb in _OF_CATALOG and (stays or verb not in _CHANGING)
    return ENTRY if is_entry else f"wrong: {rows}"


def answer(session, sql: str, table: Table) -> list[tuple]:
    """The rows of a statement."""
    return [tuple(row) for row in session.sql(sql.format(t=table.name)).collect()]


def matrix(session, cells) -> dict[tuple[str, str], str]:
    """What comes of some cells, given as pairs of a statement and a place."""
    with tempfile.TemporaryDirectory() as folder:
        return {(one.label, place): cell(session, place, one, folder) for one, place in cells}


def every_cell(kind: str) -> list[tuple[Statement, str]]:
    """All cells of a kind of session."""
    return [(one, place) for one in STATEMENTS for place in places_of(kind)]


def one_cell_each(kind: str) -> list[tuple[Statement, str]]:
    """Every statement on one kind of table, and every kind of table with some statements."""
    places = places_of(kind)
    return [(one, places[at % len(places)]) for at, one in enumerate(STATEMENTS)]


def places_of(kind: str) -> list[str]:
    """The kinds of tables that a session may have."""
    return list(PLACES) if kind == "plugin" else list(PLAIN)


def documented(kind: str) -> dict[tuple[str, str], str]:
    """What docs/sql.md says of a kind of session, by label and place; what it lacks is refused."""
    begin = _BEGIN.format(kind)
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text[text.index(begin) + len(begin) :]
    lines = table[: table.index(_END)].strip().splitlines()
    header, _, *rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    written = {
        (row[0], name): value
        for row in rows
        for name, value in zip(header[1:], row[1:], strict=True)
    }
    return {(one.label, place): NO for one, place in every_cell(kind)} | written


def differences(found: dict[tuple[str, str], str], kind: str) -> list[str]:
    """Cells of which the document says something else."""
    lacking = [label for label, feature in _NEEDS.items() if not has(feature)]
    said = documented(kind) | {(label, place): NO for label in lacking for place in places_of(kind)}
    return [
        f"{label} on {place}, {kind}: {value}, in the document {said[label, place]}"
        for (label, place), value in found.items()
        if value != said[label, place]
    ]


def write(found: dict[tuple[str, str], str], kind: str) -> None:
    """Put the cells of a kind of session into docs/sql.md, but for rows that are refused."""
    known = documented(kind) | found
    places = places_of(kind)
    lines = ["| | " + " | ".join(places) + " |", "|" + "---|" * (len(places) + 1)]
    for one in STATEMENTS:
        cells = [known[one.label, place] for place in places]
        if set(cells) != {NO}:
            lines.append(f"| {one.label} | " + " | ".join(cells) + " |")
    text = DOCUMENT.read_text(encoding="utf-8")
    start = text.index(_BEGIN.format(kind)) + len(_BEGIN.format(kind))
    tail = text[text.index(_END, start) :]
    DOCUMENT.write_text(text[:start] + "\n".join(lines) + "\n" + tail, encoding="utf-8")


def connect_session(*, plugin: bool):
    """A local Connect server, on which the plugin may be switched on."""
    names = {}
    with tempfile.TemporaryDirectory() as folder:
        exec(start_connect({"spark.sql.warehouse.dir": f"{folder}/warehouse"}), names)
        session = names["spark"]
        session.conf.set("spark.sql.shuffle.partitions", "2")
        if plugin:
            from pyspark_lance.plugin import enable

            enable(session)
            session.conf.set("spark.sql.catalog.folder", "org.pysparklance.LanceCatalog")
            session.conf.set("spark.sql.catalog.folder.path", f"{folder}/catalog")
        yield session
        session.stop()


def run(kind: str, *, connect: bool, some: bool, writes: bool) -> int:
    """One session: prints its cells; 1 if they are not what the document says."""
    from spark_sessions import start_session

    has_plugin = kind == "plugin"
    sessions = connect_session(plugin=has_plugin) if connect else start_session(plugin=has_plugin)
    for session in sessions:
        for setting, value in _QUICK.items():
            session.conf.set(setting, value)
        found = matrix(session, one_cell_each(kind) if some else every_cell(kind))
    name = f"{kind}, {'Connect' if connect else 'classic'}"
    for one in STATEMENTS:
        cells = {place: value for (label, place), value in found.items() if label == one.label}
        sys.stdout.write(f"{name:20} {one.label:46} {cells}\n")
    if writes:
        write(found, kind)
    wrong = differences(found, kind)
    sys.stdout.writelines(f"NOT AS DOCUMENTED: {one}\n" for one in wrong)
    sys.stdout.write(f"{name}: {len(found)} cells, {len(wrong)} not as documented\n")
    return int(bool(wrong))


def main(given: list[str]) -> int:
    """The command."""
    writes, some = "--write" in given, "--some" in given
    if "all" not in given:
        return run(given[0], connect="connect" in given, some=some, writes=writes)
    failed = 0
    for kind in ("plugin", "plain"):
        for more in ([], ["connect"]):
            asked = [sys.executable, __file__, kind, *more, *(["--write"] * writes)]
            failed += subprocess.run(asked, check=False).returncode  # a process has one JVM
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
