"""Hidden options of the session, which the JVM plugin and ``LanceTable`` set.

Users never set them. The plugin has the same list; a test compares the two. The text below a key
describes its value. Requests of the plugin have parameters instead: ``plugin_requests``.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "_lance."

# The session that sends a request.
APPLICATION: Final = "_lance.application"
"""The id of the Spark application; also set by ``LanceTable``."""
PLUGIN: Final = "_lance.plugin"
"""Version, digest and location of the plugin's jar; absent without the plugin."""
TIME_ZONE: Final = "_lance.time_zone"
"""The session's time zone, for times without one."""
ANSI: Final = "_lance.ansi"
"""The session's ``spark.sql.ansi.enabled``, for conditions; also set by ``LanceTable``."""
CASE_SENSITIVE: Final = "_lance.case_sensitive"
"""``true`` where names of columns differ by case; also set by ``LanceTable``."""
HADOOP: Final = "_lance.hadoop_secrets"
"""Hadoop's settings of the session for stores, as JSON; also set by ``LanceTable``. The name is one
that Spark hides by default."""
REFRESH: Final = "_lance.refresh"
"""The read only refreshes cached relations of the table. Set by this package."""
SAVE: Final = "_lance.save"
"""The plugin's own: the write comes from its ``createRelation``."""
OF_VIEW: Final = "_lance.of_view"
"""The plugin's own: the table is that of a temporary view."""

SPLIT_BY: Final = "_lance.split_by"
"""The columns of a stream's rows that are sorted by, and whose values get separate files, as JSON:
Spark creates the source of a stream with options only."""

# Spark carries these in its plans from one call of the plugin to another, as nothing but options;
# they reach Python as parameters of the same names.
_CARRIED: Final = (
    "after", "until",  # A stream or a scan of changes is rebuilt from the options of its relation.
    "of_sql",  # A table function builds its relation by ``spark.read``.
    "create", "cluster_by",  # ``save`` builds its relation by ``DataFrame.write``.
    "state",  # The tasks of a procedure are a relation of ``spark.read``.
)  # fmt: skip

ALL: Final = frozenset(
    value
    for name, value in globals().items()
    if name.isupper() and name not in ("PREFIX", "ALL", "_CARRIED")
) | {PREFIX + name for name in _CARRIED}
