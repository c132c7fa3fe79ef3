"""Every public name has a docstring with an example, and each example is run."""

from __future__ import annotations

import doctest
import inspect
import shutil

import pytest

import pyspark_lance
from pyspark_lance import LanceTable, errors, plugin
from pyspark_lance.spark.api.dml import LanceMergeBuilder, LanceOptimizeBuilder
from pyspark_lance.spark.api.table_creation import LanceTableBuilder

# Need a session or an installation of their own; tests/spark/plugin runs them.
_WITHOUT_EXAMPLE = {
    "errors_as_markdown",
    "reasons_as_markdown",
    "enable",
    "install",
    "copy_jar",
    "uninstall",
    "registered_class",
    "main",
}


def public_names():
    """Classes and functions that users call, by name."""
    for kind in (LanceTable, LanceMergeBuilder, LanceTableBuilder, LanceOptimizeBuilder):
        yield kind.__name__, kind
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}", member
    for module in (plugin, errors):
        for name, member in vars(module).items():
            if inspect.isfunction(member) and member.__module__ == module.__name__:
                yield name, member


_NAMES = {name: one for name, one in public_names() if not name.startswith("_")}


def examples_of(name):
    return doctest.DocTestParser().get_doctest(
        inspect.getdoc(_NAMES[name]) or "", {}, name, None, 0
    )


@pytest.mark.parametrize("name", sorted(_NAMES))
def test_public_names_have_docstrings_with_examples(name):
    assert inspect.getdoc(_NAMES[name])
    assert bool(examples_of(name).examples) != (name in _WITHOUT_EXAMPLE)


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """A table of which each example has a copy."""
    path = tmp_path_factory.mktemp("written") / "events"
    rows = [(1, "click", 0.5), (2, "view", 1.5), (3, "click", 2.5)]
    frame = spark.createDataFrame(rows, "id bigint, kind string, price double").coalesce(1)
    frame.write.format("lance").mode("append").save(str(path))
    return path


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(set(_NAMES) - _WITHOUT_EXAMPLE))
def test_docstring_examples_are_correct(name, spark, written, tmp_path):
    path = shutil.copytree(written, str(tmp_path / "events"))
    test = examples_of(name)
    test.globs.update(
        spark=spark,
        path=path,
        folder=str(tmp_path),
        table=LanceTable.forPath(spark, path),
        **{one: getattr(pyspark_lance, one) for one in pyspark_lance.__all__},
        **{one: value for one, value in vars(errors).items() if not one.startswith("_")},
    )
    printed = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append)
    assert results.failed == 0, "".join(printed)
