"""Print what the package defines and nothing in it uses: python tests/support/unused_names.py.

What only tests use is unused, too. A name counts as used if the package has it anywhere but in its
definition and in ``__all__``; so a name that two things share hides both, and nothing is reported
that is not so. ``ALLOWED`` has what is called from outside: by users, Spark, Arrow, protocols of
Python.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "pyspark_lance"
# Public names of these modules are for users.
PUBLIC = ("spark/api/", "errors.py", "__init__.py", "command_line/")
ALLOWED = frozenset({
    # Spark calls them.
    "streamReader", "streamWriter", "initialOffset", "latestOffset", "getDefaultReadLimit",
    "prepareForTriggerAvailableNow", "reportLatestOffset",
    # Users do.
    "use_session", "numWrittenFiles", "numWrittenRows", "lost_bins", "numValues",
    # The plugin has it, and a test compares.
    "SAVE",
    "OF_VIEW",
    # The documents are compared with them.
    "options_as_markdown", "procedures_as_markdown", "flags_as_markdown",
    # Parameters of full-text indices that are read and written by their names.
    "split_identifiers", "split_on_numerics", "preserve_original", "index_operators",
    # What builds full-text indices writes by them.
    "TEXT_DETAILS_TYPE", "from_mapping", "to_params", "to_details",
    # ctypes and logging call or read them.
    "_fields_", "emit",
})  # fmt: skip
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.Module) -> list[str]:
    """Functions, classes, their methods and fields, and constants."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, _Definition):
            overrides = any("overload" in ast.dump(one) for one in node.decorator_list)
            found += [] if overrides else [node.name]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
        elif isinstance(node, ast.Assign):
            found += [one.id for one in node.targets if isinstance(one, ast.Name)]
    return [name for name in found if not (name.startswith("__") and name.endswith("__"))]


def words(text: str) -> list[str]:
    """The words of the code and of its plain strings, without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, _Definition | ast.Module) and ast.get_docstring(node, clean=False):
            node.body[0] = ast.Pass()
    return re.findall(r"\w+", ast.unparse(tree))


def unused() -> list[str]:
    """Names that the package defines and does not use."""
    defined, used = Counter(), Counter()
    where = {}
    for path in sorted(SOURCES.rglob("*.py")):
        if "_pb2" in path.name:
            continue
        text = path.read_text(encoding="utf-8")
        used.update(words(text))
        names = definitions(ast.parse(text))
        defined.update(names)
        place = path.relative_to(SOURCES).as_posix()
        where.update(
            {name: place for name in names if not place.startswith(PUBLIC) or name.startswith("_")}
        )
    return [
        f"{where[name]}: {name}"
        for name in where
        if used[name] <= defined[name] and name not in ALLOWED
    ]


if __name__ == "__main__":
    found = unused()
    print("\n".join(found) or "every name of the package is used in it")
    sys.exit(bool(found))
