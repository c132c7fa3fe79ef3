"""Spark's internals behind one wall: what the plugin's Java may use outside of ``compat``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "plugin" / "org" / "pysparklance"
COMPAT = SOURCES / "compat"
OUTSIDE = sorted(one for one in SOURCES.rglob("*.java") if COMPAT not in one.parents)

# Reflection, private members, the stack: they break without a compiler's notice.
_HIDDEN = re.compile(
    r"java\.lang\.reflect|Class\.forName|MethodHandles|\.getDeclared\w+\(|\.setAccessible\("
    r"|\.getConstructors?\(|StackWalker|getStackTrace\("
)
_EXECUTION = re.compile(
    r"^import (?:static )?org\.apache\.spark\.sql\.execution\.([\w.$*]+);", re.M
)
# Plan nodes that every rule on sources meets.
_PLAN_NODES = {"datasources.v2.DataSourceV2Relation", "datasources.v2.DataSourceV2ScanRelation"}
# What else of org.apache.spark.sql.execution a file may import, and what for.
_ALLOWED = {
    # Statements.
    "rules/AddStatementOptions.java": {"datasources.CreateTempViewUsing"},
    # Spark's own estimates of join sides.
    "rules/InjectBroadcastKeyFilter.java": {"dynamicpruning.PartitionPruning"},
    "rules/InjectIndexKeyFilter.java": {"dynamicpruning.PartitionPruning"},
    # The translation of conditions.
    "rules/MarkUntranslatablePredicates.java": {"datasources.v2.DataSourceV2Strategy$"},
    "rules/PushDownLatePredicates.java": {"datasources.v2.DataSourceV2Strategy$"},
    # Sources of tables.
    "catalog/SessionCatalogs.java": {"datasources.v2.DataSourceV2Utils"},
    # The query of a thread, and the versions that it reads.
    "python/ActiveQuery.java": {"QueryExecution", "SQLExecution"},
    "write/LanceRowLevelOperation.java": {"QueryExecution"},
    "write/LanceWrite.java": {"QueryExecution"},
}
# The classes of Spark that run Python: its own readers and writers of data sources.
_OF_PYTHON = "datasources.v2.python."
_MOST_LOOKS = 2


def name_of(source):
    return source.relative_to(SOURCES).as_posix()


@pytest.mark.parametrize("source", OUTSIDE, ids=name_of)
def test_spark_internals_are_confined_to_compat(source):
    text, name = source.read_text(encoding="utf-8"), name_of(source)
    assert _HIDDEN.findall(text) == [], "reflection and looks at the stack belong to compat"
    imported = set(_EXECUTION.findall(text)) - _PLAN_NODES - _ALLOWED.get(name, set())
    if name.startswith("python/"):
        imported = {one for one in imported if not one.startswith(_OF_PYTHON)}
    assert imported == set(), "physical plans and strategies belong to compat"


def test_stack_walks_are_limited_and_documented():
    text = (COMPAT / "CallStack.java").read_text(encoding="utf-8")
    looks = re.findall(
        r"/\*\*\n((?:   \*.*\n)+)  public static boolean \w+\([^)]*\) \{\n"
        r"    return StackWalker",
        text,
    )
    assert len(looks) == text.count("StackWalker.getInstance()") <= _MOST_LOOKS
    assert all("tests/spark: " in reason for reason in looks)
    others = [one for one in COMPAT.glob("*.java") if one.name != "CallStack.java"]
    assert not any("StackWalker" in one.read_text(encoding="utf-8") for one in others)


def test_package_info_describes_every_compat_class():
    listed = (COMPAT / "package-info.java").read_text(encoding="utf-8")
    entries = dict(re.findall(r"<li>\{@code (\w+)\}: ((?:.*\n)+?)(?= \* <)", listed))
    classes = {one.stem for one in COMPAT.glob("*.java")} - {"package-info"}
    assert set(entries) == classes
    assert all(len(re.findall(r"\.\s", text)) >= 2 for text in entries.values())
