"""Answers the requests of ``python -m pyspark_lance.conformance`` by lancedb alone.

Run it by the interpreter of an environment with lancedb:
``--engine "ENVIRONMENT/bin/python tests/conformance/lancedb_engine.py"``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import lancedb

LINEAGE = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
COLUMNS = ["key", "n", "s"]


def table(request, folder):
    """The table or its branch, under a name that lancedb takes."""
    if not os.path.isdir(request["table"]):
        raise ValueError("the table was not found")
    os.symlink(request["table"], os.path.join(folder, "t.lance"))
    found = lancedb.connect(folder).open_table("t")
    return found.branches.checkout(request["branch"]) if "branch" in request else found


def rows(request, found):
    found.checkout(request["version"])
    told = found.search().select([*COLUMNS, *LINEAGE]).to_arrow()
    return [
        [*(row[name] for name in LINEAGE), [row[name] for name in COLUMNS]]
        for row in told.to_pylist()
    ]


def changes(request, found):
    """Of changes lancedb tells nothing; but that there are such versions."""
    for version in (request["start"], request["end"]):
        found.checkout(version)
    return {}


def versions(request, found):
    return [one["version"] for one in found.list_versions()]


def answer(request):
    with tempfile.TemporaryDirectory() as folder:
        try:
            one = {"versions": versions, "rows": rows, "changes": changes}[request["ask"]]
            return {request["ask"]: one(request, table(request, folder))}
        except Exception as error:  # noqa: BLE001  # lancedb raises many kinds
            return {"error": error_class(str(error)), "message": str(error)}


def error_class(message):
    """The class of an error, by its words."""
    words = message.lower()
    if "/data/" in words or "/_deletions/" in words:
        return "corrupt"
    if any(text in words for text in ("not found", "does not exist", "no longer exists")):
        return "not found"
    return "unsupported" if "support" in words or "unknown lance" in words else "corrupt"


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
