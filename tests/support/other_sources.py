"""Run statements that concern no Lance table, and write what came of each.

    other_sources.py came.json folder step [source of files ...]

With a ``step`` of 3, every third statement runs, and those that others need.  What came of one is
its rows, columns and plans, or its error, and behind ``plan:`` how it is analyzed.  Run with the
plugin's jar among Spark's and without it, the two files are the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FILES = ("parquet", "csv", "json", "orc")

# Of a source of files, by its name.
_OF_FILES = """
CREATE TABLE t_{s} (id BIGINT, name STRING, day INT) USING {s} PARTITIONED BY (day)
INSERT INTO t_{s} VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)
INSERT OVERWRITE t_{s} PARTITION (day = 2) SELECT 4, 'd'
SELECT * FROM t_{s} ORDER BY id
SELECT name, count(*) FROM t_{s} WHERE day = 1 AND id > 1 GROUP BY name
SHOW PARTITIONS t_{s}
DESCRIBE TABLE t_{s}
DESCRIBE TABLE EXTENDED t_{s}
DESCRIBE TABLE t_{s} PARTITION (day = 1)
DESCRIBE t_{s} name
SHOW CREATE TABLE t_{s}
SHOW TBLPROPERTIES t_{s}
SHOW COLUMNS IN t_{s}
ALTER TABLE t_{s} ADD COLUMNS (more STRING)
ALTER TABLE t_{s} ADD PARTITION (day = 9)
ALTER TABLE t_{s} DROP PARTITION (day = 9)
ALTER TABLE t_{s} SET TBLPROPERTIES ('a' = 'b')
ALTER TABLE t_{s} UNSET TBLPROPERTIES ('a')
ALTER TABLE t_{s} DROP COLUMN more
ALTER TABLE t_{s} RENAME COLUMN name TO label
ALTER TABLE t_{s} ALTER COLUMN name COMMENT 'of people'
ANALYZE TABLE t_{s} COMPUTE STATISTICS
ANALYZE TABLE t_{s} COMPUTE STATISTICS FOR COLUMNS id, name
UPDATE t_{s} SET name = 'x' WHERE id = 1
DELETE FROM t_{s} WHERE id = 1
MERGE INTO t_{s} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE
SELECT * FROM t_{s} VERSION AS OF 1
SELECT * FROM t_{s} TIMESTAMP AS OF '2020-01-01'
TRUNCATE TABLE t_{s} PARTITION (day = 1)
CREATE TABLE copy_{s} USING {s} AS SELECT * FROM t_{s}
CREATE TABLE IF NOT EXISTS copy_{s} (x INT) USING {s}
CREATE TABLE copy_{s} (x INT) USING {s}
CREATE OR REPLACE TABLE copy_{s} (x INT) USING {s}
REPLACE TABLE copy_{s} USING {s} AS SELECT 1 AS x
CREATE TABLE like_{s} LIKE t_{s}
CREATE TABLE keyed_{s} (id INT, PRIMARY KEY (id)) USING {s}
CREATE TABLE checked_{s} (id INT, CHECK (id > 0)) USING {s}
ALTER TABLE t_{s} ADD CONSTRAINT positive CHECK (id > 0)
CREATE TABLE generated_{s} (id INT, twice INT GENERATED ALWAYS AS (id * 2)) USING {s}
CREATE TABLE clustered_{s} (id INT) USING {s} CLUSTER BY (id)
CREATE TEMPORARY VIEW view_{s} USING {s} OPTIONS (path '{folder}/files_{s}')
py: spark.range(5).selectExpr('id', 'string(id) s').write.format('{s}').save('{folder}/files_{s}')
py: spark.range(5).selectExpr('id').write.format('{s}').save('{folder}/files_{s}')
py: spark.range(5).selectExpr('id').write.format('{s}').mode('ignore').save('{folder}/files_{s}')
CREATE TEMPORARY VIEW view_{s} USING {s} OPTIONS (path '{folder}/files_{s}')
SELECT count(*) FROM view_{s}
SELECT * FROM {s}.`{folder}/files_{s}` ORDER BY 1
SELECT * FROM {s}.`{folder}/missing`
py: spark.read.format('{s}').load('{folder}/files_{s}').where('s > 2').select('s')
py: spark.range(3).write.format('{s}').saveAsTable('saved_{s}')
py: spark.range(3).write.format('{s}').saveAsTable('saved_{s}')
py: spark.range(3).write.format('{s}').mode('append').saveAsTable('saved_{s}')
py: spark.range(3).write.insertInto('saved_{s}', overwrite=True)
py: spark.range(3).writeTo('saved_{s}').append()
py: spark.range(3).writeTo('saved_{s}').option('mergeSchema', 'true').append()
py: spark.range(3).writeTo('written_{s}').using('{s}').create()
py: spark.table('saved_{s}').where('id = 2')
DROP TABLE copy_{s}
DROP TABLE copy_{s}
"""
_OTHERS = """
SELECT 1 AS one, current_catalog(), current_schema()
SHOW CATALOGS
SHOW NAMESPACES
SHOW TABLES
SHOW TABLES IN nowhere
SHOW TABLE EXTENDED LIKE 't_*'
SHOW VIEWS
CREATE DATABASE other COMMENT 'of other users'
DESCRIBE DATABASE EXTENDED other
CREATE TABLE other.p (id INT DEFAULT 3, name STRING NOT NULL) USING parquet COMMENT 'a table'
INSERT INTO other.p (name) VALUES ('a')
INSERT INTO other.p VALUES (1, NULL)
SELECT * FROM other.p
USE other
SELECT * FROM p
SELECT * FROM spark_catalog.other.p
SELECT * FROM nothing.at.all
USE default
CREATE VIEW shown AS SELECT id, name FROM other.p WHERE id = 3
SELECT * FROM shown
SHOW CREATE TABLE shown
DESCRIBE EXTENDED shown
ALTER VIEW shown AS SELECT id FROM other.p
UPDATE shown SET id = 1
DELETE FROM shown
MERGE INTO shown t USING other.p s ON t.id = s.id WHEN MATCHED THEN DELETE
INSERT INTO shown VALUES (1)
DROP VIEW shown
CREATE VIEW kept AS SELECT id FROM t_parquet
CREATE TEMPORARY VIEW short AS SELECT * FROM range(3)
DELETE FROM short
CREATE FUNCTION doubled(x INT) RETURNS INT RETURN x * 2
SELECT doubled(4)
DESCRIBE FUNCTION EXTENDED doubled
DROP FUNCTION doubled
DESCRIBE FUNCTION upper
SELECT nothing_of_the_name(1)
SELECT * FROM nothing_of_the_name(1)
SELECT * FROM range(4) WHERE id % 2 = 0
SELECT k, sum(v) FROM VALUES (1, 2), (1, 3) AS t(k, v) GROUP BY k
SELECT * FROM VALUES (1), (2) AS a(x) JOIN VALUES (2), (3) AS b(y) ON x = y
WITH c AS (SELECT 1 AS x) SELECT * FROM c WHERE x IN (SELECT max(id) FROM range(2))
SELECT * FROM t_parquet t WHERE EXISTS (SELECT 1 FROM t_orc o WHERE o.id = t.id)
SELECT explode(array(1, 2)) AS e
SELECT row_number() OVER (PARTITION BY day ORDER BY id) AS n, id FROM t_parquet
EXPLAIN SELECT * FROM t_parquet WHERE id = 2
EXPLAIN EXTENDED SELECT count(*) FROM t_csv
CACHE TABLE cached AS SELECT * FROM range(5)
SELECT count(*) FROM cached
UNCACHE TABLE cached
REFRESH TABLE t_parquet
SET spark.sql.shuffle.partitions
CREATE TABLE nothing USING nosuchsource
CREATE TABLE untyped (id INT)
SELECT FROM WHERE
CREATE TABLE no (id INT) USING parquet PARTITIONED BY (missing)
INSERT INTO missing VALUES (1)
UPDATE missing SET a = 1
MERGE INTO missing t USING missing s ON t.a = s.a WHEN MATCHED THEN DELETE
ALTER TABLE missing ADD COLUMN a INT
DROP TABLE missing
DROP TABLE IF EXISTS missing
ANALYZE TABLE missing COMPUTE STATISTICS
ANALYZE TABLES IN other COMPUTE STATISTICS
DESCRIBE missing
SHOW CREATE TABLE missing
CREATE TABLE bucketed (id INT, name STRING) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS
INSERT INTO bucketed VALUES (1, 'a')
DESCRIBE EXTENDED bucketed
SELECT * FROM bucketed JOIN bucketed b USING (id)
CREATE TABLE located (id INT) USING parquet LOCATION '{folder}/located'
INSERT INTO located VALUES (1)
DROP TABLE located
SELECT * FROM parquet.`{folder}/located`
CREATE TABLE rated USING rate
SELECT count(*) FROM rated
SELECT * FROM missing_column_of_range
SELECT missing FROM range(1)
SELECT _rowid FROM t_parquet
SELECT _metadata.file_size > 0 FROM t_parquet LIMIT 1
SELECT 1 / 0
SELECT CAST('x' AS INT)
DECLARE VARIABLE v INT DEFAULT 5
SET VAR v = 6
SELECT v
BEGIN SELECT 1; END
DROP DATABASE other
DROP DATABASE other CASCADE
CREATE TABLE files (a INT, b STRING) USING parquet
CREATE VIEW kept_files AS SELECT * FROM files
CREATE TEMP VIEW numbers AS SELECT 1 AS a
plan: UPDATE missing SET a = 1
plan: UPDATE missing SET a = 1 WHERE a = 3
plan: UPDATE nowhere.x.y SET a = 1
plan: UPDATE parquet.`/nowhere` SET a = 1
plan: UPDATE IDENTIFIER('mis' || 'sing') SET a = 1
plan: UPDATE files SET a = 1
plan: UPDATE files SET a = b WHERE a > (SELECT max(a) FROM numbers)
plan: UPDATE IDENTIFIER('fi' || 'les') SET a = 1 WHERE a > 1
plan: UPDATE files SET c = 1
plan: UPDATE files AS f SET a = 1 WHERE f.c > 1
plan: UPDATE kept_files SET a = 1
plan: UPDATE numbers SET a = 1
plan: MERGE INTO missing t USING files s {matched}
plan: MERGE INTO files t USING missing s {matched}
plan: MERGE INTO files t USING numbers s {matched}
plan: MERGE INTO kept_files t USING numbers s {matched}
plan: MERGE INTO files t USING numbers s ON t.a = s.c WHEN MATCHED THEN DELETE
plan: WITH s AS (SELECT 1 AS a) MERGE INTO files t USING s {matched}
py: spark.catalog.listTables()
py: spark.catalog.listCatalogs()
py: spark.catalog.tableExists('t_parquet')
py: spark.catalog.getTable('t_parquet')
py: spark.catalog.createTable('listed', '{folder}/files_parquet')
py: spark.range(3).write.format('noop').mode('overwrite').save()
py: spark.range(3).write.format('nosuchsource').save('{folder}/x')
py: spark.read.format('nosuchsource').load('{folder}/x')
py: spark.readStream.format('rate').load().isStreaming
py: spark.createDataFrame([(1, 'a')], 'i int, s string').where('i = 1')
"""
_MATCHED = "ON t.a = s.a WHEN MATCHED THEN UPDATE SET *"
# In every share of the statements: what is analyzed only, and what many others need.
_IN_ALL = re.compile(
    r"plan: |USE |INSERT INTO t_|CREATE .*\b(t_parquet|kept|files|kept_files|numbers)\b"
)
# What differs from one process to the next.
_NUMBERS = (
    (re.compile(r"#\d+L?"), "#"),
    (re.compile(r"plan_id=\d+"), "plan_id"),
    (re.compile(r"\b(?:part|tree)-?\S*\d\S*"), "part"),
    (re.compile(r"(Created Time|Last Access|Table Statistics|Statistics)[ :,]+.*"), r"\1"),
    (re.compile(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \w+ \d{4}"), "time"),
    (re.compile(r"createTime\W+\d+|transient_lastDdlTime\W+\d+"), "time"),
    (re.compile(r"\bpart-[0-9a-f-]+\S*"), "part"),
    (re.compile(r"\n\t(at |\.\.\. \d+ more).*"), ""),
    (re.compile(r"\[\[?0,[0-9a-f,]+\]"), "row"),
    (re.compile(r"calling o\d+"), "calling"),
    (re.compile(r"@[0-9a-f]{5,}\b|\$Lambda\S+|0x[0-9a-f]+"), "object"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "uuid"),
)


def statements(folder: str, step: int, files: Sequence[str]) -> list[str]:
    """Statements in their order; each runs in the state that those before it left."""
    texts = [_OF_FILES.replace("{s}", one) for one in files] + [_OTHERS]
    text = "\n".join(texts).replace("{folder}", folder).replace("{matched}", _MATCHED)
    lines = [line for line in text.splitlines() if line.strip()]
    return [line for place, line in enumerate(lines) if place % step == 0 or _IN_ALL.match(line)]


def _analyzed(spark, text: str) -> object:
    """The plan of a statement as Spark's analyzer leaves it, before any check of it."""
    state = spark._jsparkSession.sessionState()
    try:
        return state.analyzer().execute(state.sqlParser().parsePlan(text)).toString()
    except Exception as error:  # noqa: BLE001 - any error of Spark
        return error


def _came(spark, text: str, plain: Callable[[object], str]) -> dict[str, object]:
    from pyspark.sql import DataFrame

    if text.startswith("plan: "):
        text = text.removeprefix("plan: ")
        return {"analyzed": plain(_analyzed(spark, text)), **_came(spark, text, plain)}
    try:
        code = text.removeprefix("py: ")
        result = eval(code, {"spark": spark}) if code != text else spark.sql(text)
        if not isinstance(result, DataFrame):
            return {"value": plain(result)}
        rows = [plain(row) for row in result.collect()]
        plans = plain(result._jdf.queryExecution().toString())
        return {"rows": rows, "columns": plain(result.schema), "plans": plans}
    except Exception as error:  # noqa: BLE001 - any error of Spark
        return {"error": type(error).__name__, "text": plain(error)}


def main(came: str, folder: str, step: str, *files: str) -> None:
    """Run statements in a session with the default settings."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def plain(value: object) -> str:
        text = str(value).replace(folder, "/data")
        for pattern, constant in _NUMBERS:
            text = pattern.sub(constant, text)
        return text

    texts = statements(folder, int(step), files or FILES)
    all_of_them = [(text.replace(folder, "/data"), _came(spark, text, plain)) for text in texts]
    rules = spark._jsparkSession.experimental().extraOptimizations().size()
    children = spark._jvm.java.lang.ProcessHandle.current().children().toArray()
    commands = [child.info().commandLine().orElse("") for child in children]
    processes = [command for command in commands if "pyspark_lance" in command]
    kept = spark._jsparkSession.sessionState().catalog().getTableMetadata(
        spark._jvm.org.apache.spark.sql.catalyst.TableIdentifier("kept")
    ).properties().toString()  # fmt: skip
    spark.stop()
    found = {"came": all_of_them, "rules": rules, "processes": processes, "kept": plain(kept)}
    Path(came).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
