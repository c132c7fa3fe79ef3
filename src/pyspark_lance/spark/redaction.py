"""Redact storage options in Spark's event log, SQL tab, EXPLAIN and DESCRIBE.

Spark redacts options by their names, by default few of them; every ``storage.*`` may be a secret.
The plugin has the same settings (``StorageRedaction.java``), and ``spark_conf`` for new sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark matches this with the names and the values of options and properties.
OPTIONS = r"(?i)^[\w.]*\bstorage\.[\w.]+$"
# Spark matches this with texts of plans and statements. The end of a value cannot be recognised
# there, so the text up to the next node or section of the plan is redacted, unless Spark has
# already redacted the value.
STRINGS = (
    r"""(?is)\bstorage\.[\w.]+(?: ?(?:->|=) ?(?![*]{9})|,(?! )|\\*['"`]\s+=?\s*\\*['"]"""
    r"""|['"]\s+value:).*?(?=\n\n(?:[(]\d+[)] |== )|\z)"""
)
# Spark matches this with settings of the application, and with its command line. It excludes
# settings of Spark's own block storage.
SETTINGS = r"(?i)\bspark[.]sql[.]catalog[.].*[.]storage[.]"
# Setting, its fallback, the default of both, and our pattern.
_SETTINGS = (
    ("spark.sql.redaction.options.regex", None, "(?i)url", OPTIONS),
    ("spark.sql.redaction.string.regex", "spark.redaction.string.regex", None, STRINGS),
)
_APPLICATION = "spark.redaction.regex"


def hide_storage_options(spark: SparkSession) -> None:
    """Make Spark also redact the values of ``storage.*`` options in this session.

    Otherwise the event log and the SQL tab show them when the plugin saves a table, and when a view
    is created with ``OPTIONS``. The plugin itself redacts those of ``CREATE TABLE``, for which
    Spark has no setting.
    """
    for setting, fallback, default, added in _SETTINGS:
        existing = spark.conf.get(setting, None)
        if existing is None and fallback is not None:
            existing = spark.conf.get(fallback, None)
        spark.conf.set(setting, _alternation(existing or default, added))
    if hasattr(spark, "_jsparkSession"):
        application = spark._jsparkSession.sparkContext().conf()
        existing = application.get(_APPLICATION, "(?i)secret|password|token|access[.]?key")
        application.set(_APPLICATION, _alternation(existing, SETTINGS))


def _alternation(existing: str | None, added: str) -> str:
    if existing is None:
        return added
    return existing if added in existing else f"(?:{existing})|(?:{added})"
