"""Tables and queries like those of TPC-H: ours, with the plugin and without, Parquet and Delta.

python benchmarks/tpch.py [--scale 0.3] [--repeats 3] [--formats lance,plain,parquet,delta]
    [--folder FOLDER] [--memory 2g] [--warm 1] [--changed] [Q1 Q2 ...]

The eight tables come from the program ``tpchgen-cli`` (``pip install tpchgen-cli``, or its path in
TPCHGEN); the queries are in words of our own, so these are no results of TPC-H.  Each format has a
session of its own, of the same Spark, and tables that it wrote from the same rows; ``plain`` is
Lance without the plugin.  Delta comes from Maven Central and is left out where there is none
for the release of Spark that is installed.  The sessions take turns, query by query, and their
answers must be equal.  The table has the medians of the seconds by the clock, what they are of
Parquet's (in brackets: of the processor, of the JVM and all that it started), and the geometric
means of that.  Tables that a run left in the given folder are measured again.  ``--changed``
changes 1 % of the orders by MERGE first, each format as it does that by default; Parquet, which
has no MERGE, is written again.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import row_changes
from harness import Served, jvm_of, print_table, run, scratch, start_session, timed_in_jvm
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import pyspark_lance
from pyspark_lance import LanceTable

# What each is called by Spark; Parquet is what all other formats are compared with.
SOURCES = {"lance": "lance", "plain": "lance", "parquet": "parquet", "delta": "delta"}
PARTS = 2
ONE_PERCENT = "xxhash64(o_orderkey) % 100 = 0"
# Another where one value of the orders is another: few queries show their prices.
SUM_OF_ORDERS = "SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM orders"
# By format: seconds by the clock and of the processor, or ratios of them.
Figures = dict[str, tuple[float, ...]]

# What each query asks, in words of our own; the numbers are TPC-H's.
QUERIES = {
    # Sums and averages of all lines up to a day, by flag and status.
    "Q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
          sum(l_extendedprice * (1 - l_discount)),
          sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
          avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY ALL ORDER BY 1, 2""",
    # Suppliers of a region that have a kind of part at the lowest cost.
    "Q2": """
        WITH offers AS (
          SELECT * FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey
          JOIN nation ON n_nationkey = s_nationkey JOIN region ON r_regionkey = n_regionkey
          WHERE r_name = 'EUROPE')
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part JOIN offers AS o ON ps_partkey = p_partkey
        WHERE p_size = 15 AND p_type LIKE '%BRASS' AND ps_supplycost = (
          SELECT min(ps_supplycost) FROM offers AS i WHERE i.ps_partkey = p_partkey)
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    # Orders of a segment that are not shipped and are worth most.
    "Q3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15'
          AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    # Orders of a quarter of which a line came late, by priority.
    "Q4": """
        SELECT o_orderpriority, count(*) FROM orders
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01' AND EXISTS (
          SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY 1 ORDER BY 1""",
    # Trade within the nations of a region.
    "Q5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
          AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name ORDER BY revenue DESC""",
    # What a little less discount would have brought.
    "Q6": """
        SELECT sum(l_extendedprice * l_discount) FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
          AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    # Trade between two nations, by year.
    "Q7": """
        SELECT a.n_name, b.n_name, year(l_shipdate) AS y,
          sum(l_extendedprice * (1 - l_discount))
        FROM supplier JOIN lineitem ON s_suppkey = l_suppkey
        JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
        JOIN nation a ON s_nationkey = a.n_nationkey JOIN nation b ON c_nationkey = b.n_nationkey
        WHERE (a.n_name = 'FRANCE' AND b.n_name = 'GERMANY'
            OR a.n_name = 'GERMANY' AND b.n_name = 'FRANCE')
          AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        GROUP BY ALL ORDER BY 1, 2, 3""",
    # The share of one nation in a kind of part within a region, by year.
    "Q8": """
        SELECT year(o_orderdate) AS y,
          sum(if(s.n_name = 'BRAZIL', l_extendedprice * (1 - l_discount), 0))
            / sum(l_extendedprice * (1 - l_discount))
        FROM part JOIN lineitem ON p_partkey = l_partkey JOIN supplier ON s_suppkey = l_suppkey
        JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
        JOIN nation n ON c_nationkey = n.n_nationkey JOIN region ON n.n_regionkey = r_regionkey
        JOIN nation s ON s_nationkey = s.n_nationkey
        WHERE r_name = 'AMERICA' AND p_type = 'ECONOMY ANODIZED STEEL'
          AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        GROUP BY 1 ORDER BY 1""",
    # Profit with parts of a color, by nation and year.
    "Q9": """
        SELECT n_name, year(o_orderdate) AS y,
          sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)
        FROM part JOIN lineitem ON p_partkey = l_partkey JOIN supplier ON s_suppkey = l_suppkey
        JOIN partsupp ON ps_suppkey = l_suppkey AND ps_partkey = l_partkey
        JOIN orders ON o_orderkey = l_orderkey JOIN nation ON s_nationkey = n_nationkey
        WHERE p_name LIKE '%green%' GROUP BY ALL ORDER BY 1, 2 DESC""",
    # Customers that returned most.
    "Q10": """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal,
          n_name, c_address, c_phone, c_comment
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN nation ON c_nationkey = n_nationkey
        WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01'
          AND l_returnflag = 'R'
        GROUP BY ALL ORDER BY revenue DESC, c_custkey LIMIT 20""",
    # Parts that are much of what a nation has in stock.
    "Q11": """
        WITH stock AS (
          SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS worth
          FROM partsupp JOIN supplier ON ps_suppkey = s_suppkey
          JOIN nation ON s_nationkey = n_nationkey WHERE n_name = 'GERMANY' GROUP BY 1)
        SELECT * FROM stock WHERE worth > (SELECT sum(worth) * 0.0003 FROM stock)
        ORDER BY worth DESC, ps_partkey""",
    # Late lines by two modes, and whether their orders were urgent.
    "Q12": """
        SELECT l_shipmode, count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')),
          count_if(o_orderpriority NOT IN ('1-URGENT', '2-HIGH'))
        FROM orders JOIN lineitem ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
          AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01'
          AND l_receiptdate < DATE '1995-01-01'
        GROUP BY 1 ORDER BY 1""",
    # How many customers have how many orders.
    "Q13": """
        SELECT orders, count(*) AS customers FROM (
          SELECT c_custkey, count(o_orderkey) AS orders FROM customer LEFT JOIN orders
          ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY 1)
        GROUP BY 1 ORDER BY 2 DESC, 1 DESC""",
    # The share of promotions in a month.
    "Q14": """
        SELECT 100 * sum(if(p_type LIKE 'PROMO%', l_extendedprice * (1 - l_discount), 0))
          / sum(l_extendedprice * (1 - l_discount))
        FROM lineitem JOIN part ON l_partkey = p_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    # The supplier of most in a quarter.
    "Q15": """
        WITH revenue AS (
          SELECT l_suppkey, round(sum(l_extendedprice * (1 - l_discount)), 2) AS total
          FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
          GROUP BY 1)
        SELECT s_suppkey, s_name, s_address, s_phone, total
        FROM supplier JOIN revenue ON s_suppkey = l_suppkey
        WHERE total = (SELECT max(total) FROM revenue) ORDER BY s_suppkey""",
    # How many suppliers without complaints have parts of some kinds.
    "Q16": """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers
        FROM partsupp JOIN part ON p_partkey = ps_partkey
        WHERE p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
          AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9) AND ps_suppkey NOT IN (
            SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3""",
    # What small orders of a part bring in a year.
    "Q17": """
        SELECT sum(l_extendedprice) / 7 FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND l_quantity < (
          SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    # Customers of the largest orders.
    "Q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON o_orderkey = l_orderkey
        WHERE o_orderkey IN (
          SELECT l_orderkey FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 270)
        GROUP BY ALL ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    # Revenue of three kinds of parts in three kinds of boxes.
    "Q19": """
        SELECT sum(l_extendedprice * (1 - l_discount)) FROM lineitem JOIN part
        ON p_partkey = l_partkey
        WHERE l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
          p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
            AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5
          OR p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
            AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10
          OR p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
            AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15)""",
    # Suppliers of a nation that have too much of parts of a color.
    "Q20": """
        SELECT s_name, s_address FROM supplier JOIN nation ON s_nationkey = n_nationkey
        WHERE n_name = 'CANADA' AND s_suppkey IN (
          SELECT ps_suppkey FROM partsupp
          WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
            AND ps_availqty > (
              SELECT 0.5 * sum(l_quantity) FROM lineitem
              WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'))
        ORDER BY s_name""",
    # Suppliers that alone kept an order waiting.
    "Q21": """
        SELECT s_name, count(*) AS waits FROM supplier JOIN lineitem l ON s_suppkey = l.l_suppkey
        JOIN orders ON o_orderkey = l.l_orderkey JOIN nation ON s_nationkey = n_nationkey
        WHERE o_orderstatus = 'F' AND l.l_receiptdate > l.l_commitdate
          AND n_name = 'SAUDI ARABIA'
          AND EXISTS (SELECT 1 FROM lineitem m
            WHERE m.l_orderkey = l.l_orderkey AND m.l_suppkey <> l.l_suppkey)
          AND NOT EXISTS (SELECT 1 FROM lineitem m WHERE m.l_orderkey = l.l_orderkey
            AND m.l_suppkey <> l.l_suppkey AND m.l_receiptdate > m.l_commitdate)
        GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 100""",
    # Customers with money and without orders, by the code of their country.
    "Q22": """
        WITH callers AS (
          SELECT left(c_phone, 2) AS code, c_acctbal, c_custkey FROM customer
          WHERE left(c_phone, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        SELECT code, count(*), sum(c_acctbal) FROM callers
        WHERE c_acctbal > (SELECT avg(c_acctbal) FROM callers WHERE c_acctbal > 0)
          AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)
        GROUP BY 1 ORDER BY 1""",
}


class Session:
    """One format's Spark session, with its tables in a folder of their own."""

    def __init__(self, name: str, folder: str, memory: str) -> None:
        self._name, self._source = name, SOURCES[name]
        self._folder, self._rows = Path(folder) / name, Path(folder) / "source"
        settings = {**(settings_of(name) or {}), "spark.driver.memory": memory}
        self.spark = start_session(settings, folder)
        self._jvm = jvm_of(self.spark)

    def turn(self, what: str) -> tuple[float, float, object]:
        """Seconds by the clock and of the processor, and the rows of a query."""
        work: dict[str, Callable[[], object]] = {
            "write": self._write,
            "change": self._change,
            "open": self._open,
            "compare": lambda: self.spark.sql(SUM_OF_ORDERS).collect(),
        }
        query = work.get(what, lambda: self.spark.sql(QUERIES[what]).collect())
        taken = timed_in_jvm(self._jvm, query)
        assert taken is not None
        return taken

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format(self._source).load(str(self._folder / name))

    def _write(self) -> None:
        for path in sorted(self._rows.iterdir()):
            rows = self.spark.read.parquet(str(path))
            # Spark knows no other modes of a source in Python.
            rows.write.format(self._source).mode("append").save(str(self._folder / path.name))

    def _open(self) -> None:
        for path in self._folder.iterdir():
            self._table(path.name).createOrReplaceTempView(path.name)

    def _change(self) -> None:
        path, orders = self._folder / "orders", self._table("orders")
        changes = orders.where(ONE_PERCENT).selectExpr("o_orderkey", "o_totalprice + 1 AS price")
        if self._name == "parquet":
            price = sf.expr(f"o_totalprice + if({ONE_PERCENT}, 1, 0)")
            price = price.cast(orders.schema["o_totalprice"].dataType)
            new = self._folder.with_name("changed")
            orders.withColumn("o_totalprice", price).write.parquet(str(new))
            shutil.rmtree(path)
            new.rename(path)
        elif self._name == "plain":
            merge = LanceTable.forPath(self.spark, str(path)).merge(
                changes, "target.o_orderkey = source.o_orderkey"
            )
            merge.whenMatchedUpdate(set={"o_totalprice": "source.price"}).execute()
        else:
            changes.createOrReplaceTempView("changes")
            self.spark.sql(
                f"MERGE INTO {self._source}.`{path}` AS t USING changes AS s "
                "ON t.o_orderkey = s.o_orderkey WHEN MATCHED THEN UPDATE SET o_totalprice = s.price"
            )


def settings_of(name: str) -> dict[str, str] | None:
    """Of a format's session; None where there is none for the Spark that is installed."""
    if name == "delta":
        return row_changes.FORMATS["delta"].for_this_spark()
    if name == "lance":
        return {"spark.jars": pyspark_lance.plugin_jar()}
    return {"spark.sql.lance.plugin": "off"}


def generate(folder: Path, scale: float) -> None:
    """The rows that all formats are written from."""
    subprocess.run(
        [os.environ.get("TPCHGEN", "tpchgen-cli"), "parquet", f"--scale-factor={scale}",
         f"--parts={PARTS}", f"--output-dir={folder / 'source'}"],
        check=True,
    )  # fmt: skip


def same(ours: object, theirs: object) -> bool:
    """Sums in another order differ in their last digits."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return ours == theirs


def medians(sessions: dict[str, Served], what: str, repeats: int, warm: int) -> tuple[Figures, int]:
    """Figures of each format, and how many rows a query has; ends where answers differ."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sessions}
    rows: list[object] = []
    for turn in range(warm + repeats):
        answers: dict[str, list[object]] = {}
        for name in list(sessions)[:: 1 if turn % 2 else -1]:
            clock, processor, answer = sessions[name].ask(what)
            answers[name] = answer or []
            if turn >= warm:
                times[name].append((clock, processor))
        rows = next(iter(answers.values()))
        if different := [name for name, answer in answers.items() if not same(answer, rows)]:
            sys.exit(f"{what}: {different} answer not what {next(iter(answers))} answers")
    columns = {name: zip(*found, strict=True) for name, found in times.items()}
    figures = {name: tuple(map(statistics.median, found)) for name, found in columns.items()}
    return figures, len(rows)


def ratios(figures: Figures) -> Figures:
    """What each is of Parquet's, where there are both."""
    clock, processor = figures.get("parquet", (math.nan, math.nan))
    others = {name: found for name, found in figures.items() if name != "parquet"}
    return {name: (found[0] / clock, found[1] / processor) for name, found in others.items()}


def cells(names: list[str], figures: Figures, compared: Figures) -> Iterator[str]:
    """The figures of one row of the table."""
    for name in names:
        yield f"{figures[name][0]:.2f}" if name in figures else ""
    for name in names:
        if name != "parquet":
            pair = compared.get(name, (math.nan, math.nan))
            yield "" if math.isnan(pair[0]) else f"{pair[0]:.2f} ({pair[1]:.2f})"


def measured(
    sessions: dict[str, Served],
    missing: list[str],
    chosen: list[str],
    repeats: int,
    warm: int,
    changed: bool,
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table."""
    names = list(sessions)
    if missing:
        writers = {name: sessions[name] for name in missing}
        figures, _ = medians(writers, "write", repeats=1, warm=0)
        yield ("writing all, once", *cells(names, figures, ratios(figures)))
    if changed:
        figures, _ = medians(sessions, "change", repeats=1, warm=0)
        yield ("changing 1 % of the orders, once", *cells(names, figures, ratios(figures)))
    medians(sessions, "open", repeats=1, warm=0)
    medians(sessions, "compare", repeats=1, warm=0)
    found = []
    for query in chosen:
        figures, rows = medians(sessions, query, repeats, warm)
        found.append(ratios(figures))
        yield (f"{query}, {rows} rows", *cells(names, figures, found[-1]))
    means = {
        name: tuple(
            statistics.geometric_mean(one[name][column] for one in found) for column in (0, 1)
        )
        for name in found[0]
    }
    yield ("geometric mean", *cells(names, {}, means))


def main(
    *queries: str,
    scale: float = 0.3,
    repeats: int = 3,
    formats: tuple = tuple(SOURCES),
    folder: str = "",
    memory: str = "2g",
    warm: int = 1,
    changed: bool = False,
) -> None:
    names = []
    for name in dict.fromkeys([*formats, "parquet"]):
        if settings_of(name) is None:
            print(f"{name} is left out: there is none for Spark {pyspark.__version__}")
        else:
            names.append(name)
    with scratch(folder or None) as place:
        missing = [name for name in names if not Path(place, name).exists()]
        if missing:
            generate(Path(place), scale)
        # All sessions run at once, each with a JVM of that memory.
        sessions = {name: Served(name, place, memory) for name in names}
        rows = []
        for row in measured(sessions, missing, list(queries or QUERIES), repeats, warm, changed):
            print(*row, sep=" | ", file=sys.stderr, flush=True)  # a run takes long
            rows.append(row)
        for served in sessions.values():
            served.close()
        shutil.rmtree(f"{place}/source", ignore_errors=True)
    others = [f"{name} / parquet" for name in names if name != "parquet"]
    title = f"Queries like TPC-H's, scale {scale}, Spark {pyspark.__version__}, local[2]"
    print_table(title, ("", *(f"{name} s" for name in names), *others), rows)


if __name__ == "__main__":
    run(main, session=Session)
