"""Clean up after a commit, if the table is configured to: ``lance.auto_cleanup.*``.

As in Lance: runs after every n-th version, keeps tagged versions and never fails the commit. The
committed version and its predecessor stay.

Source: docs/format/table-format.md, section 11.3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_lance.commit.manifest_committer import CommitResult
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.version.table import Table

# Imported lazily: most commits clean up nothing.
if TYPE_CHECKING:
    from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, CleanupResult

logger = logging.getLogger(__name__)

PREFIX: Final = "lance.auto_cleanup."

_DAY_S: Final = 86400.0
_UNITS_S: Final = {
    unit: seconds
    for units, seconds in (
        ("nanos nsec ns", 1e-9),
        ("micros usec us", 1e-6),
        ("millis msec ms", 1e-3),
        ("seconds second secs sec s", 1.0),
        ("minutes minute mins min m", 60.0),
        ("hours hour hrs hr h", 3600.0),
        ("days day d", _DAY_S),
        ("weeks week wks wk w", 7 * _DAY_S),
        ("months month M", 30.44 * _DAY_S),
        ("years year yrs yr y", 365.25 * _DAY_S),
    )
    for unit in units.split()
}
_PART: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")


def parse_duration(text: str) -> float:
    """Return the seconds of ``14days`` or ``1day 2h 3m``."""
    seconds, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2] not in _UNITS_S:
            break
        seconds += int(part[1]) * _UNITS_S[part[2]]
        position = part.end()
    if not text.strip() or position < len(text):
        raise InvalidInputError(f"{text!r} is not a duration", hint="such as 14days or 1day 12h")
    return seconds


def auto_policy(config: Mapping[str, str], version: int) -> CleanupPolicy | None:
    """Return the policy of the cleanup after ``version``; None for no cleanup."""
    interval = config.get(f"{PREFIX}interval")
    if interval is None:
        return None
    every = _number("interval", interval)
    if every and version % every:
        return None
    from pyspark_lance.table.cleanup.cleanup import CleanupPolicy  # noqa: PLC0415

    older_than = config.get(f"{PREFIX}older_than")
    retain = config.get(f"{PREFIX}retain_versions")
    return CleanupPolicy(
        older_than_s=None if older_than is None else _age(older_than),
        # Without an age and a count, all removable versions are removed.
        before_version=version if older_than is None and retain is None else None,
        retain_versions=None if retain is None else _number("retain_versions", retain),
        error_if_tagged=False,
    )


def clean_up_after(table: Table, result: CommitResult) -> CleanupResult | None:
    """Clean up after a commit, if the table is configured to; never fails."""
    manifest = result.manifest
    try:
        policy = auto_policy(manifest.config, manifest.version)
        if policy is None:
            return None
        from pyspark_lance.table.cleanup.cleanup import cleanup_old_versions  # noqa: PLC0415

        return cleanup_old_versions(table, policy, newest=manifest.version - 1)
    except Exception as error:  # noqa: BLE001 - the version is already committed
        logger.warning("the cleanup after version %d failed: %s", manifest.version, error)
        return None


def _age(text: str) -> float:
    try:
        return parse_duration(text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"the property {PREFIX}older_than = {text!r} is not a duration", hint=error.hint
        ) from error


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidInputError(f"the property {PREFIX}{name} = {text!r} is not a whole number")
    return int(text)
