"""What the engines beside it share: a loop over requests, and classes of errors by their words."""

from __future__ import annotations

import json
import sys

LINEAGE = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
COLUMNS = ["key", "n", "s"]


def serve(asks):
    """Answer the requests on standard input, one on each line, by the function for its kind."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            response = {request["ask"]: asks[request["ask"]](request)}
        except Exception as error:  # noqa: BLE001  # engines raise many kinds
            response = {"error": error_class(str(error)), "message": str(error)}
        print(json.dumps(response), flush=True)


def error_class(message):
    """The class of an error, by its words."""
    words = message.lower()
    if "/data/" in words or "/_deletions/" in words:
        return "corrupt"
    missing = ("not found", "cannot be found", "does not exist", "no longer exists")
    if any(text in words for text in missing):
        return "not found"
    return "unsupported" if "support" in words or "unknown lance" in words else "corrupt"
