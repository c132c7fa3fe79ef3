"""Answer the requests of ``python tests/conformance/run.py`` by pylance alone."""

from __future__ import annotations

import json
import sys

import lance

LINEAGE = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
COLUMNS = ["key", "n", "s"]


def dataset(request, version):
    """The table, or its branch, at a version."""
    if "branch" not in request:
        return lance.dataset(request["table"], version=version)
    newest = lance.dataset(request["table"])
    return newest.checkout_version((request["branch"], version))


def rows(request):
    return rows_of(dataset(request, request["version"]))


def rows_of(table):
    """Releases that have no version columns leave these out."""
    for names in (LINEAGE[2:], []):
        try:
            rows = table.scanner(
                columns=[*COLUMNS, *names], with_row_id=True, with_row_address=True
            ).to_table()
            break
        except Exception as error:
            if not names or "_row_" not in str(error):
                raise
    return [
        [*(row.get(name) for name in LINEAGE), [row[name] for name in COLUMNS]]
        for row in rows.to_pylist()
    ]


def changes(request):
    """Changes by ``delta``: no values before an update, none of deleted rows."""
    found = {"insert": [], "update_postimage": [], "delete": []}
    for version in range(request["start"], request["end"] + 1):
        after = dataset(request, version)
        delta = after.delta(begin_version=version - 1, end_version=version)
        for kind, rows in (
            ("insert", delta.get_inserted_rows()), ("update_postimage", delta.get_updated_rows()),
        ):  # fmt: skip
            for row in rows.read_all().to_pylist():
                found[kind].append([version, row["_rowid"], [row[name] for name in COLUMNS]])
        if version > 1:
            gone = delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist()
            found["delete"] += [[version, row_id, None] for row_id in gone]
    return found


def versions(request):
    found = lance.dataset(request["table"])
    if "branch" in request:
        found = found.checkout_version((request["branch"], None))
    return [one["version"] for one in found.versions()]


def answer(request):
    try:
        one = {"versions": versions, "rows": rows, "changes": changes}[request["ask"]]
        return {request["ask"]: one(request)}
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": error_class(str(error)), "message": str(error)}


def error_class(message):
    """The class of an error, by its message: pylance's exceptions do not distinguish these."""
    words = message.lower()
    if "/data/" in words or "/_deletions/" in words:
        return "corrupt"
    if "not found" in words or "does not exist" in words:
        return "not found"
    if any(
        text in words
        for text in ("unsupported", "not supported", "require stable", "unknown lance")
    ):
        return "unsupported"
    return "corrupt"


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
