"""House rules that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pyspark_lance"
LANCE_TABLE = SOURCE / "spark" / "api" / "lance_table.py"
FILES = [p for p in SOURCE.rglob("*.py") if "proto" not in p.parent.name]


def test_top_level_holds_only_known_entries():
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no clone")
    entries = {path.partition("/")[0] for path in listed.stdout.splitlines()}
    folders = {"src", "protos", "tests", "spark_conf", "examples", "docs", "benchmarks"}
    files = {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff"}
    texts = {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert not {name for name in entries if name[0] != "."} - folders - files - texts


def test_package_import_loads_no_heavy_library():
    code = (
        "import sys, pyspark_lance; from pyspark_lance import DefaultSource;"
        "print([m for m in ('pyarrow', 'numpy', 's3fs', 'fsspec', 'google.protobuf', 'lance') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_have_limited_length(path):
    text = path.read_text()
    length = len(text.splitlines())
    if path == LANCE_TABLE:  # most of it is the reference of the API: signatures and docstrings
        length -= sum(map(_reference_length, _methods_of_lance_table()))
    assert length <= 1_000


def test_methods_of_lance_table_only_delegate():
    methods = _methods_of_lance_table()
    assert len(methods) > 70
    for method in methods:
        statements = [node for node in ast.walk(method) if isinstance(node, ast.stmt)]
        assert len(statements) <= 14, method.name  # itself, its docstring and a dozen


def _methods_of_lance_table():
    (table,) = [one for one in ast.parse(LANCE_TABLE.read_text()).body if hasattr(one, "bases")]
    return [one for one in table.body if isinstance(one, ast.FunctionDef)]


def _reference_length(method):
    first = method.body[0]
    is_docstring = isinstance(first, ast.Expr)
    return (first.end_lineno if is_docstring else first.lineno - 1) - method.lineno + 1


def test_test_names_are_short():
    """They say a behavior and its condition, in at most eight words besides numbers."""
    names = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def test_(\w+)\(", path.read_text())
    }
    assert len(names) > 1_000
    assert not [name for name in names if len(re.findall(r"[a-z]\w*?(?=_|$)", name)) > 8]


def test_subpackage_docstrings_state_allowed_imports():
    for path in SOURCE.rglob("__init__.py"):
        if path.parent not in (SOURCE, SOURCE / "proto"):
            docstring, *others = ast.parse(path.read_text()).body
            # What users name without an import of its own is loaded when it is used.
            assert not others or path.parent == SOURCE / "spark", path
            assert "\n\nMay import: " in ast.literal_eval(docstring.value), path


def test_module_docstrings_name_existing_files():
    python = {path.name for path in FILES} | {path.name for path in (ROOT / "tests").rglob("*.py")}
    java = {path.name for path in (ROOT / "src").rglob("*.java")}
    for path in FILES:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        named = re.findall(r"``(?:[a-z_0-9]+/)*([A-Za-z_0-9]+\.(?:py|java))``", text)
        assert set(named) <= python | java, path
        paragraphs = text.split("\n\n")
        assert not [one for one in paragraphs[:-1] if one.startswith("Source: ")], path


def test_package_never_imports_pylance():
    for path in FILES:
        # Its package is called lance; that of the REST protocol's client begins with the same word.
        assert not re.search(r"^\s*(import|from)\s+lance\b(?!_)", path.read_text(), re.M), path


def test_generators_use_pools_that_join_no_threads():
    """See ``generator_pool``."""
    found = [
        f"{path.relative_to(SOURCE)}: {function.name}"
        for path in FILES
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        and "ThreadPoolExecutor" in _own_names(function)
        and any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function))
    ]
    assert not found


def _own_names(function):
    return {node.id for node in _own_nodes(function) if isinstance(node, ast.Name)}


def _own_nodes(function):
    """The nodes of a function without those of functions inside."""
    remaining = list(function.body)
    while remaining:
        node = remaining.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            remaining += ast.iter_child_nodes(node)
