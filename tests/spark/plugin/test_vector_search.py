"""vector_search of SQL: what its arguments mean, and what it refuses."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance import LanceTable

from .conftest import plan_of

pytestmark = [pytest.mark.spark, pytest.mark.interop]

WIDTH = 4


@pytest.fixture(scope="module")
def numbers():
    return np.random.default_rng(5).normal(size=(300, WIDTH)).astype("f4")


@pytest.fixture(scope="module")
def searched(plugin, numbers, tmp_path_factory):
    """The path of a table of several fragments, and a view of that name."""
    path = str(tmp_path_factory.mktemp("search") / "t")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), WIDTH)
    rows = pa.table({"id": np.arange(300), "name": [f"n{i}" for i in range(300)], "v": vectors})
    lance.write_dataset(rows, path, max_rows_per_file=100, enable_stable_row_ids=True)
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW searched USING lance OPTIONS (path '{path}')")
    return path


@pytest.fixture(scope="module")
def others(plugin, tmp_path_factory):
    """Views of tables with no column of vectors, and with two."""
    folder = tmp_path_factory.mktemp("others")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(WIDTH, "f4")), WIDTH)
    tables = {"plain": {"id": [1]}, "double": {"a": vectors, "b": vectors}}
    for name, columns in tables.items():
        lance.write_dataset(pa.table(columns), folder / name)
        options = f"OPTIONS (path '{folder / name}')"
        plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING lance {options}")


def ask(plugin, arguments, columns="*", rest=""):
    return plugin.sql(f"SELECT {columns} FROM vector_search({arguments}) {rest}")


def array(vector):
    return f"array({', '.join(f'{number:.6f}D' for number in vector.tolist())})"


def nearest_ids(numbers, query, k):
    return np.argsort(((numbers - query) ** 2).sum(axis=1), kind="stable")[:k].tolist()


def test_nearest_rows_are_ordered_across_tasks(plugin, searched, numbers):
    found = ask(plugin, f"'{searched}', {array(numbers[7])}, 5")
    assert found.columns == ["id", "name", "v", "_distance"]
    ids = nearest_ids(numbers, numbers[7], 5)
    assert [row.id for row in found.collect()] == ids
    assert found.first()._distance == pytest.approx(0, abs=1e-9)
    assert "TakeOrderedAndProject(limit=5" in plan_of(found)
    assert found.rdd.getNumPartitions() == 1
    for table in ("searched", f"lance.`{searched}`", f"lance.main.`{searched}`"):
        assert [
            row.id for row in ask(plugin, f"'{table}', {array(numbers[7])}, 5").collect()
        ] == ids
    joined = ask(plugin, f"'searched', {array(numbers[7])}", "a.id, b.name",
                 "a JOIN searched b USING (id) WHERE b.id != 7")  # fmt: skip
    assert {row.name for row in joined.collect()} == {
        f"n{i}" for i in nearest_ids(numbers, numbers[7], 10) if i != 7
    }


def test_argument_names_follow_lance_spark(plugin, searched, numbers):
    arguments = (
        f"table => 'searched', query_vector => {array(numbers[3])}, vector_column => 'v', "
        "num_results => 3, distance_type => 'cosine', columns => array('name', '_distance'), "
        "filter => 'id != 3', version => 1, nprobes => 2, refine_factor => CAST(NULL AS int), "
        "ef => 30, bypass_vector_index => true, prefilter => true, with_row_id => true"
    )
    found = ask(plugin, arguments)
    assert found.columns == ["name", "_rowid", "_distance"]
    from_pylance = lance.dataset(searched).to_table(
        columns=["name", "_distance"], filter="id != 3", prefilter=True, with_row_id=True,
        nearest={"column": "v", "q": numbers[3], "k": 3, "metric": "cosine"},
    )  # fmt: skip
    rows = found.collect()
    assert [row.name for row in rows] == from_pylance["name"].to_pylist()
    assert [row._rowid for row in rows] == from_pylance["_rowid"].to_pylist()
    assert [row._distance for row in rows] == pytest.approx(
        from_pylance["_distance"].to_pylist(), 1e-5
    )
    near = ask(plugin, f"'searched', {array(numbers[3])}, limit => 9", "id", "WHERE _distance < 1")
    assert [row.id for row in near.collect()] == [
        i for i in nearest_ids(numbers, numbers[3], 9) if ((numbers[i] - numbers[3]) ** 2).sum() < 1
    ]


def test_several_vectors_have_query_index(plugin, searched, numbers):
    found = ask(plugin, f"'searched', array({array(numbers[1])}, {array(numbers[2])}), k => 2")
    assert found.columns == ["query_index", "id", "name", "v", "_distance"]
    assert [(row.query_index, row.id) for row in found.collect()] == [
        (number, place)
        for number in range(2)
        for place in nearest_ids(numbers, numbers[number + 1], 2)
    ]


def test_vectors_may_be_variables_or_parameters(plugin, searched, numbers):
    vector = numbers[9].tolist()
    text = "SELECT id FROM vector_search('searched', :v, 1)"
    assert plugin.sql(text, args={"v": vector}).first().id == 9
    plugin.sql(f"DECLARE OR REPLACE VARIABLE asked array<double> = {array(numbers[11])}")
    assert ask(plugin, "'searched', asked, 1").first().id == 11


def test_vector_search_uses_index(plugin, path, numbers):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), WIDTH)
    lance.write_dataset(pa.table({"id": np.arange(300), "v": vectors}), path)
    LanceTable.forPath(plugin, path).createVectorIndex(
        "v", "ivf_pq", numPartitions=3, numSubVectors=2, seed=1
    )
    query = {"column": "v", "q": numbers[5], "k": 6, "nprobes": 1}
    for nprobes in (1, 3):
        neighbours = lance.dataset(path).to_table(nearest={**query, "nprobes": nprobes})
        found = ask(plugin, f"'{path}', {array(numbers[5])}, 6, nprobes => {nprobes}")
        assert [row._distance for row in found.collect()] == pytest.approx(
            neighbours["_distance"].to_pylist(), rel=1e-4
        )
    # The index is not for this metric, and there are fewer rows.
    every = ask(plugin, f"'{path}', {array(numbers[5])}, 999, distance_type => 'dot'").collect()
    products = 1 - numbers @ numbers[5]
    assert [row.id for row in every] == np.argsort(products, kind="stable").tolist()


def test_rabit_index_gives_rows_of_pylance(plugin, tmp_path):
    wide = np.random.default_rng(8).normal(size=(400, 16)).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(wide.ravel()), 16)
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": np.arange(400), "v": vectors}), path)
    dataset.create_index("v", "IVF_RQ", metric="l2", num_partitions=3, num_bits=1)
    nearest = {"column": "v", "q": wide[7], "k": 6, "nprobes": 2}
    expected = lance.dataset(path).to_table(columns=["id", "_distance"], nearest=nearest)
    rows = ask(plugin, f"'{path}', {array(wide[7])}, 6, nprobes => 2").collect()
    assert sorted(row.id for row in rows) == sorted(expected["id"].to_pylist())
    distances = sorted(row._distance for row in rows)
    assert np.allclose(distances, expected["_distance"], atol=2e-4)
    found = LanceTable.forPath(plugin, path).nearest(wide[7], 6, nprobes=2).collect()
    assert np.allclose([row._distance for row in found], expected["_distance"], atol=2e-4)
    assert {row.id for row in found} == {row.id for row in rows}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "vector_search has no table"),
        ("'searched'", "vector_search has no vector: query_vector is one array of numbers"),
        ("'searched', array(1, 2)", "a query has length 2, but the column's vectors have length 4"),
        ("'searched', array()", "has no vector"),
        ("'searched', array(1, 2, 3, NULL)", "query_vector is one array of numbers without null"),
        ("'searched', array(1, 2, 3, NULL)", r"as in vector_search\('/data/t', array"),
        ("'searched', q => 'x'", "vector_search has no vector: q is one array"),
        ("'searched', array(1, 2, 3, 4), distance_type => 1", "has a distance_type that is not"),
        ("'searched', array(1, 2, 3, double('NaN'))", "query 0 holds NaN|has no vector"),
        ("'searched', array(1, 2, 3, 4), vector_column => 'name'", "holds no vectors"),
        ("'searched', array(1, 2, 3, 4), distance_type => 'hamming'", "is not a vector metric"),
        ("'plain', array(1, 2, 3, 4)", "the table has no column of vectors"),
        ("'double', array(1, 2, 3, 4)", "the table has several columns of vectors: say which"),
        ("'searched', array(1, 2, 3, 4), -1", "at least 1, not -1"),
        (
            "'searched', array(1, 2, 3, 4), 0",
            "k, the number of rows to find, must be at least 1, not 0",
        ),
        ("'searched', array(1, 2, 3, 4), 'x'", "at least 1, not 'x'"),
        ("'searched', array(1, 2, 3, 4), 3, 4", "name the others, as in nprobes => 20"),
        ("'searched', array(1, 2, 3, 4), upper_bound => 2", "WHERE _distance < "),
        ("'searched', array(1, 2, 3, 4), prefilter => false", "filters count before a search"),
        ("'searched', array(1, 2, 3, 4), probes => 2", "vector_search has 'probes', which it does"),
        ("'searched', array(1, 2, 3, rand())", "query_vector of vector_search is no constant"),
        ("'searched', array(0, 0, 0, 0), distance_type => 'cosine'", "query 0 has no direction"),
        ("'narrowed', array(1, 2, 3, 4)", "narrowed is no Lance table"),
        ("'/no/table', array(1, 2, 3, 4)", "LANCE_TABLE_NOT_FOUND"),
    ],
)
def test_invalid_vector_searches_are_refused(plugin, searched, others, arguments, message):
    plugin.sql("CREATE OR REPLACE TEMPORARY VIEW narrowed AS SELECT * FROM searched WHERE id > 7")
    with pytest.raises(Exception, match=message):
        ask(plugin, arguments).collect()
