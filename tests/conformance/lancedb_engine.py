"""Answer the requests of ``python tests/conformance/run.py`` by lancedb alone.

Run it by the interpreter of an environment with lancedb:
``--engine "ENVIRONMENT/bin/python tests/conformance/lancedb_engine.py"``.
"""

from __future__ import annotations

import os
import tempfile

import lancedb
from engine_requests import COLUMNS, LINEAGE, serve


def table(request, folder):
    """The table or its branch, under a name that lancedb takes."""
    if not os.path.isdir(request["table"]):
        raise ValueError("the table was not found")
    os.symlink(request["table"], os.path.join(folder, "t.lance"))
    found = lancedb.connect(folder).open_table("t")
    return found.branches.checkout(request["branch"]) if "branch" in request else found


def rows(request, found):
    found.checkout(request["version"])
    rows = found.search().select([*COLUMNS, *LINEAGE]).to_arrow()
    return [
        [*(row[name] for name in LINEAGE), [row[name] for name in COLUMNS]]
        for row in rows.to_pylist()
    ]


def changes(request, found):
    """lancedb has no change feed; check only that the versions exist."""
    for version in (request["start"], request["end"]):
        found.checkout(version)
    return {}


def versions(request, found):
    return [one["version"] for one in found.list_versions()]


def in_a_folder(one):
    """Return a handler that opens the table for each request."""

    def ask(request):
        with tempfile.TemporaryDirectory() as folder:
            return one(request, table(request, folder))

    return ask


if __name__ == "__main__":
    serve({one.__name__: in_a_folder(one) for one in (versions, rows, changes)})
