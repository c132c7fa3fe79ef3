"""Keeps storage options out of what Spark shows: event log, SQL tab, EXPLAIN, DESCRIBE.

Spark hides options by their names, and knows few of them; every ``storage.*`` may be a secret.
``plugin.enable`` calls this; ``spark_conf`` has the same settings for sessions about to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark looks for this in the names, and in the values, of options and properties.
OPTIONS = r"(?i)^[\w.]*\bstorage\.[\w.]+$"
# And for this in texts of plans and statements. There a value has no end that could be told, so all
# goes up to the next node or section of the plan; but nothing where Spark hid the value already.
STRINGS = (
    r"""(?is)\bstorage\.[\w.]+(?: ?(?:->|=) ?(?![*]{9})|,(?! )|\\*['"`]\s+=?\s*\\*['"]"""
    r"""|['"]\s+value:).*?(?=\n\n(?:[(]\d+[)] |== )|\z)"""
)
# And for this in settings of the application, and in the command line that started it; a word more
# would hide settings of Spark's own block storage.
SETTINGS = r"(?i)\bspark[.]sql[.]catalog[.].*[.]storage[.]"
# Setting, the one that counts when it is not set, what counts when both are not, and ours.
_SETTINGS = (
    ("spark.sql.redaction.options.regex", None, "(?i)url", OPTIONS),
    ("spark.sql.redaction.string.regex", "spark.redaction.string.regex", None, STRINGS),
)
_APPLICATION = "spark.redaction.regex"


def hide_storage_options(spark: SparkSession) -> None:
    """Makes Spark hide the values of ``storage.*`` options in this session, besides what it hides.

    Without it they stand in clear in the event log and the SQL tab when a table is saved with the
    plugin, and when a view is created with ``OPTIONS``. Those of ``CREATE TABLE`` are hidden by
    the plugin itself: there Spark follows no setting.
    """
    for setting, fallback, default, ours in _SETTINGS:
        theirs = spark.conf.get(setting, None)
        if theirs is None and fallback is not None:
            theirs = spark.conf.get(fallback, None)
        spark.conf.set(setting, _joined(theirs or default, ours))
    if hasattr(spark, "_jsparkSession"):
        application = spark._jsparkSession.sparkContext().conf()
        theirs = application.get(_APPLICATION, "(?i)secret|password|token|access[.]?key")
        application.set(_APPLICATION, _joined(theirs, SETTINGS))


def _joined(theirs: str | None, ours: str) -> str:
    if theirs is None:
        return ours
    return theirs if ours in theirs else f"(?:{theirs})|(?:{ours})"
