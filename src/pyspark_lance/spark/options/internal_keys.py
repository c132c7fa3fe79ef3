"""The hidden options of requests from the JVM plugin.

Users never set them. The plugin has the same list; a test compares the two. The text below a key
describes its value.
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

# A scan.
ROOT: Final = "_lance.root"
VERSION: Final = "_lance.version"
BASE: Final = "_lance.base"
"""The stamp of that version, which detects a replaced table."""
FILTER: Final = "_lance.filter"
"""A condition as JSON."""
LIMIT: Final = "_lance.limit"
TOP: Final = "_lance.top"
"""The order and the number of its first rows to return, as JSON."""
KEY_COLUMNS: Final = "_lance.key_columns"
"""The columns of the key of which each task has one value, as JSON."""
KEY_TASKS: Final = "_lance.key_tasks"
"""A digest of the tasks whose keys were reported to Spark."""
BATCHES_OF: Final = "_lance.batches_of"
"""The columns of a scan that returns Arrow batches."""
WAY: Final = "_lance.way"
"""The transfer mode of batches."""
SMALL_BYTES: Final = "_lance.small_bytes"
"""A scan of at most this many bytes is read while it is planned."""
COLUMN: Final = "_lance.column"
ROWS: Final = "_lance.rows"
DESCENDING: Final = "_lance.descending"
"""With the two above: the first rows in the order of a column."""
AFTER: Final = "_lance.after"
UNTIL: Final = "_lance.until"
"""The version that bounds a change feed, exclusive."""
NEAREST_PARTS: Final = "_lance.nearest_parts"
"""The columns of the table, and of the result of a vector search."""

# A write.
SCHEMA: Final = "_lance.schema"
CREATE: Final = "_lance.create"
"""The table must not exist yet."""
REPLACE: Final = "_lance.replace"
"""The table replaces an existing one."""
REPLACE_WHERE: Final = "_lance.replace_where"
PROPERTIES: Final = "_lance.properties"
SPLIT_BY: Final = "_lance.split_by"
"""The columns that rows are sorted by, and whose values get separate files, as JSON."""
CLUSTER_BY: Final = "_lance.cluster_by"
"""The clustering columns, as JSON; an empty list removes them."""
SOURCES: Final = "_lance.sources"
"""By root, the oldest version that the query reads, and its stamp."""
CHANGE: Final = "_lance.change"
"""DELETE, UPDATE or MERGE."""
RETRIES: Final = "_lance.retries"
"""The attempts of earlier runs of the command."""
TEXT: Final = "_lance.text"
"""A condition as text, for the history."""
CHANGES: Final = "_lance.changes"
"""The changes of ALTER TABLE, as JSON."""

# Catalogs.
CATALOG: Final = "_lance.catalog"
NAME: Final = "_lance.name"
NAMESPACE: Final = "_lance.namespace"
NEW_NAME: Final = "_lance.new_name"
LOCATION: Final = "_lance.location"
CASCADE: Final = "_lance.cascade"

# Statements, and procedures.
STATEMENT: Final = "_lance.statement"
"""A statement that Spark cannot parse."""
PROCEDURE: Final = "_lance.procedure"
ARGUMENTS: Final = "_lance.arguments"
STATE: Final = "_lance.state"
"""The state of a procedure whose tasks run; the plugin returns it unchanged."""
DONE: Final = "_lance.done"
"""The results of the tasks."""

ALL: Final = frozenset(
    value for name, value in globals().items() if name.isupper() and name not in ("PREFIX", "ALL")
)
