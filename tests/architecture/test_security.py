"""What may not be in the sources: ways to run what was read, secrets, other dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pyspark_lance"

DEPENDENCIES = {"pyspark", "pyarrow", "numpy", "protobuf", "pyroaring", "fsspec", "s3fs"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "runpy", "code"}
CALLS = {"eval", "exec", "compile", "__import__"}
# What these read comes from Spark's own channels between the driver and its workers, within one
# application, never from a table.
PICKLES = {
    "spark/jobs/column_jobs.py": "results that executors give to the driver",
    "spark/jobs/update_job.py": "results that executors give to the driver",
    "spark/jobs/stages.py": "tasks for executors, and their results",
    "spark/jobs/nearest_job.py": "what one stage of a job gives to the next, in a shuffle",
    "spark/jobs/semi_join.py": "tasks that the driver gives to executors",
    "spark/sql/procedures.py": "state between two calls of the plugin, in the driver",
    "table/nearest/search_plan.py": "conditions as keys of a cache, which nothing reads",
    "table/dml/change_stages.py": "what one stage of a job gives to the next, in a shuffle",
}


def modules_of(tree):
    """Top-level names of all imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def dangers_of(source):
    """Modules and calls by which data can become code."""
    tree = ast.parse(source)
    found = set(modules_of(tree)) & MODULES
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & CALLS
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.add("allow_pickle")
    return found


def test_package_never_executes_table_content():
    found = {}
    for path in set(SOURCE.rglob("*.py")) - set(SOURCE.glob("proto/*")):
        dangers = dangers_of(path.read_text())
        if dangers:
            found[str(path.relative_to(SOURCE))] = dangers
    assert found == {name: {"pickle"} for name in PICKLES}


@pytest.mark.parametrize(
    ("source", "danger"),
    [
        ("import pickle", "pickle"), ("from yaml import load", "yaml"), ("eval('1')", "eval"),
        ("np.load(f, allow_pickle=True)", "allow_pickle"), ("def f():\n import marshal", "marshal"),
    ],
)  # fmt: skip
def test_dangerous_calls_are_detected(source, danger):
    assert dangers_of(source) == {danger}


def test_dependencies_are_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(one).name for one in project["dependencies"]} == DEPENDENCIES


# Secrets -----------------------------------------------------------------------------------

# Words are cut in two, so that this file has none.
SECRETS = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY",
    "a key of AWS": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "a token of GitHub": r"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{60}",
    "a token of a package index": r"\bpypi-AgEI[A-Za-z0-9_-]{20}",
    "a key of Google": r"\bAIza[A-Za-z0-9_-]{35}\b",
    "a key of an account of Azure": r"AccountKey=[A-Za-z0-9+/]{40,}",
    "a web token": r"\beyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{10,}",
    "a token of Slack": r"\bxox[abprs]-[0-9A-Za-z-]{20}",
    "a password in a URI": r"\b[a-z][a-z0-9+]{1,12}://[^\s/:@\"'{}<>]+:[^\s/:@\"'{}<>]{6,}@[a-z0-9]",
}


# Passwords of tests that look whether passwords are hidden.
EXAMPLES = re.compile(r":(?:hunter2|pa55word)")


def secrets_in(text):
    """Names of the patterns that are found, each with its text."""
    return [
        (name, found[0])
        for name, form in SECRETS.items()
        for found in re.finditer(form, text)
        if not EXAMPLES.search(found[0])
    ]


def tracked_files():
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a clone of the repository")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_files_contain_no_secrets():
    found = []
    for path in tracked_files():
        if not path.is_file() or path.suffix in (".lance", ".jar", ".png"):
            continue
        for name, text in secrets_in(path.read_text(errors="replace")):
            found.append((str(path.relative_to(ROOT)), name, text))
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE" + " KEY-----", "key = AKIA" + "Q3EGUZ7XWVJ2K5TB",
        "ghp_" + "a1B2" * 9, "AIza" + "Sy0123456789abcdefghijklmnopqrstuvw"[:35],
        "https://user:" + "geheim99@host/x", "AccountKey=" + "abcd" * 20,
        "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3",
    ],
)  # fmt: skip
def test_secrets_are_detected(text):
    assert len(secrets_in(text)) == 1
