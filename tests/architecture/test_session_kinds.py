"""Every file of Spark tests says whether it runs with the plugin once more, and why."""

from __future__ import annotations

import ast

from session_kinds import BOTH_KINDS, FOLDER, KINDS, ONE_KIND, PLAIN, PLUGIN, WITH_PLUGIN, kinds_of


def with_a_session() -> dict[str, set[str]]:
    """The functions of each file that take the session of the process: its tests and fixtures."""
    found: dict[str, set[str]] = {}
    for path in sorted(FOLDER.glob("test_*.py")):
        functions = [
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
            and (node.name.startswith("test_") or "fixture" in map(_name, node.decorator_list))
        ]
        names = {one.name for one in functions if "spark" in [a.arg for a in one.args.args]}
        if names:
            found[path.name] = names
    return found


def _name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else ""


def test_session_tables_list_every_session_file():
    tables = (BOTH_KINDS, ONE_KIND, WITH_PLUGIN)
    names = [name for table in tables for name in table]
    sorted_files = {name for name in names if "::" not in name}
    there = set(with_a_session())
    assert there - sorted_files == set(), "say in session_kinds.py in which kinds they run"
    assert sorted_files - there == set(), "these have no test with a session any more"
    assert len(names) == len(set(names))


def test_session_tables_name_existing_tests():
    alone = [name.split("::") for name in {**BOTH_KINDS, **WITH_PLUGIN} if "::" in name]
    there = with_a_session()
    assert all(file in ONE_KIND and test in there[file] for file, test in alone)


def test_unlisted_tests_run_in_both_kinds(monkeypatch):
    monkeypatch.delenv("PYSPARK_LANCE_BOTH_KINDS", raising=False)
    assert kinds_of(FOLDER / "test_of_tomorrow.py", "test_a") == KINDS
    assert kinds_of(FOLDER / "test_types.py", "test_a") == KINDS
    assert kinds_of(FOLDER / "test_maintenance.py", "test_a") == (PLAIN,)
    assert kinds_of(FOLDER / "test_variants.py", "test_a") == (PLUGIN,)
    assert kinds_of(
        FOLDER / "test_real_sizes.py", "test_hundred_thousand_vectors_survive_changes"
    ) == (PLUGIN,)
    assert kinds_of(FOLDER / "test_real_sizes.py", "test_a") == (PLAIN,)
    assert kinds_of(FOLDER.parent / "docs" / "test_types.py", "test_a") == (PLAIN,)
    monkeypatch.setenv("PYSPARK_LANCE_BOTH_KINDS", "1")
    assert kinds_of(FOLDER / "test_variants.py", "test_a") == KINDS
