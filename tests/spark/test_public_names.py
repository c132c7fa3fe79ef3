"""One rule for all public names, as docs/api.md has it: walked over all there is."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import re
import types
import typing
from pathlib import Path

import pytest
from table_access import append

import pyspark_lance
from pyspark_lance import LanceTable, plugin
from pyspark_lance.result_names import snake_case
from pyspark_lance.spark import redaction, threads
from pyspark_lance.spark.api.dml import LanceMergeBuilder, LanceOptimizeBuilder
from pyspark_lance.spark.api.table_creation import LanceTableBuilder
from pyspark_lance.spark.options.option_table import OPTIONS
from pyspark_lance.spark.sql import metadata_tables
from pyspark_lance.spark.sql.procedures import PROCEDURES

API = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
CALLED = (LanceTable, LanceMergeBuilder, LanceTableBuilder, LanceOptimizeBuilder)
CAMEL = re.compile(r"[a-z][a-z0-9]*([A-Z][A-Z0-9]?[a-z0-9]*)*")
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Options as Lance and its other writers call them, kept as they are.
OF_LANCE = ("storage.",)
# Opens nothing, so it takes no name of a version that would have to be looked up.
CONSTRUCTOR = "__init__"


def methods():
    """Every public method of what users call: its full name, and the function."""
    for kind in CALLED:
        for name, member in inspect.getmembers(kind, callable):
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}", member


def documented():
    """The classes and modules that the reference shows."""
    for path in re.findall(r"^::: (\S+)", API, re.MULTILINE):
        try:
            yield path, importlib.import_module(path)
        except ModuleNotFoundError:
            module, _, name = path.rpartition(".")
            yield path, getattr(importlib.import_module(module), name)


def results():
    """The frozen classes of the reference: what methods return."""
    return [one for _, one in documented() if dataclasses.is_dataclass(one)]


def public_attributes(kind):
    """What an object holds, with the documented names."""
    properties = [
        name
        for name, member in vars(kind).items()
        if isinstance(member, property) and not (member.__doc__ or "").startswith("``")
    ]
    fields = (field.name for field in dataclasses.fields(kind) if field.name[0] != "_")
    return [*fields, *properties]


def test_methods_parameters_and_options_use_camel_case():
    seen = 0
    for name, method in methods():
        seen += 1
        assert CAMEL.fullmatch(name.rpartition(".")[2]), name
        for parameter in inspect.signature(method).parameters:
            assert CAMEL.fullmatch(parameter), f"{name}({parameter})"
    assert seen > 65
    for option in OPTIONS:
        assert CAMEL.fullmatch(option.name) or option.name.startswith(OF_LANCE), option.name


def test_result_fields_accept_both_cases():
    assert len(results()) >= 13
    seen = 0
    for kind in results():
        for name in public_attributes(kind):
            seen += 1
            assert CAMEL.fullmatch(name), f"{kind.__name__}.{name}"
            assert hasattr(kind, snake_case(name)) or snake_case(name) == name
    assert seen > 45


def test_results_are_equal_for_either_naming():
    from pyspark_lance.table.compaction.compact import CompactionResult
    from pyspark_lance.table.dml.row_change import ChangeResult

    made = ChangeResult(3, num_deleted_rows=2)
    assert made == ChangeResult(3, numDeletedRows=2) == pickle.loads(pickle.dumps(made))
    assert (made.num_deleted_rows, made.numDeletedRows, made.num_updated_rows) == (2, 2, 0)
    assert "numDeletedRows=2" in repr(made)
    assert dataclasses.replace(made, numDeletedRows=1).num_deleted_rows == 1
    assert CompactionResult(conflictingBins=1).lost_bins == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.numDeletedRows = 5
    with pytest.raises((AttributeError, TypeError)):
        made.num_deleted_rows = 5


def test_dataframe_columns_use_camel_case():
    seen = 0
    for name, schema in vars(metadata_tables).items():
        if name.isupper() and hasattr(schema, "fieldNames"):
            for column in schema.fieldNames():
                seen += 1
                assert CAMEL.fullmatch(column), f"{name}.{column}"
    assert seen > 50


def test_procedure_names_use_snake_case_of_python_names():
    python = {snake_case(one) for kind in results() for one in public_attributes(kind)}
    columns = {
        snake_case(one)
        for name, schema in vars(metadata_tables).items()
        if name.isupper() and hasattr(schema, "fieldNames")
        for one in schema.fieldNames()
    }
    # As lance-spark's VACUUM has it.
    from_pylance = {"bytes_removed", "old_versions", "files_removed"}
    for name, procedure in PROCEDURES.items():
        assert SNAKE.fullmatch(name)
        for word in (*procedure.parameters.names, *procedure.result.names):
            assert SNAKE.fullmatch(word), f"{name}: {word}"
        for word in procedure.result.names:
            assert word in python | columns | from_pylance, f"{name}: {word}"


def test_version_parameters_come_with_tag_and_timestamp():
    seen = set()
    for name, method in methods():
        given = inspect.signature(method).parameters
        if "version" in given and not name.endswith((".restoreToVersion", f".{CONSTRUCTOR}")):
            seen.add(name)
            assert {"tag", "timestamp"} <= set(given), name
    assert {"LanceTable.scan", "LanceTable.forPath", "LanceTable.createTag"} <= seen
    for name, procedure in PROCEDURES.items():
        if "version" in procedure.parameters.names:
            assert {"tag", "timestamp"} <= set(procedure.parameters.names), name


def test_age_parameters_are_named_older_than(tmp_path):
    for name, method in methods():
        given = set(inspect.signature(method).parameters)
        if name != "LanceTable.vacuum":
            assert not [one for one in given if "retention" in one.lower()], name
    path = str(tmp_path / "t")
    append(path, 0)
    table = LanceTable(types.SimpleNamespace(conf={}), path)
    for age in (200, 200.0, "200 hours", "9days"):
        assert table.leftoverFiles(age) == table.removeLeftoverFiles(olderThan=age) == []
    assert table.leftoverFiles(retentionHours=1) == []


def test_listing_methods_return_dataframes_and_actions_objects():
    shown = {re.sub(r".*\.", "", path) for path, _ in documented()}
    listing = set()
    for name, method in methods():
        hint = typing.get_type_hints(inspect.unwrap(method)).get("return")
        text = str(inspect.signature(method).return_annotation)
        plain = name.rpartition(".")[2]
        if hint.__name__ == "DataFrame" if inspect.isclass(hint) else False:
            listing.add(plain)
            continue
        for word in re.findall(r"\b[A-Z]\w+", text):
            assert word in shown | {"LanceTable", "None", "Self"}, f"{name} returns {word}"
    assert {
        "history", "tags", "branches", "fragments", "indices", "consumers", "detail",
    } <= listing  # fmt: skip


def test_public_names_are_in_reference():
    shown = [one for _, one in documented()]
    for kind in (*CALLED, plugin, threads, redaction):
        assert kind in shown, kind
    for module in (plugin, threads, redaction):
        for name, member in vars(module).items():
            if inspect.isfunction(member) and member.__module__ == module.__name__:
                assert name.startswith("_") or inspect.getdoc(member), name
    assert {"LanceTable", "plugin_jar"} <= set(pyspark_lance.__all__)
