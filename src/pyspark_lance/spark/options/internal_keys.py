"""The hidden options by which the JVM plugin and this package talk: all of them, once.

Users never set them. The plugin names the same ones; a test compares both lists. What is said
of a key here is what its value means.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "_lance."

# What is asked, and by whom.
APPLICATION: Final = "_lance.application"
"""The id of the Spark application; also set by ``LanceTable``."""
PLUGIN: Final = "_lance.plugin"
"""Version, digest and place of the jar that asks; absent where Spark asks by itself."""
TIME_ZONE: Final = "_lance.time_zone"
"""The session's, for times that say none."""
ANSI: Final = "_lance.ansi"
"""The session's ``spark.sql.ansi.enabled``, for conditions; also set by ``LanceTable``."""
CASE_SENSITIVE: Final = "_lance.case_sensitive"
"""``true`` where names of columns differ by case; also set by ``LanceTable``."""
HADOOP: Final = "_lance.hadoop_secrets"
"""Hadoop's settings of the session for stores, as JSON; also set by ``LanceTable``. The name is one
that Spark hides by default."""
REFRESH: Final = "_lance.refresh"
"""Nothing is read: what is cached of the table is made anew. Set by this package."""
SAVE: Final = "_lance.save"
"""The plugin's own: the write comes from its ``createRelation``."""

# A scan.
ROOT: Final = "_lance.root"
VERSION: Final = "_lance.version"
BASE: Final = "_lance.base"
"""The stamp of that version, by which a table that took the place of this one is noticed."""
FILTER: Final = "_lance.filter"
"""A condition as JSON."""
LIMIT: Final = "_lance.limit"
TOP: Final = "_lance.top"
"""The first rows of an order that are wanted, as JSON."""
KEY_COLUMNS: Final = "_lance.key_columns"
"""The columns of the key of which each task has one value, as JSON."""
KEY_TASKS: Final = "_lance.key_tasks"
"""A digest of these tasks, by which the keys were told."""
BATCHES_OF: Final = "_lance.batches_of"
"""The columns that a scan gives in batches."""
WAY: Final = "_lance.way"
"""How batches are handed over."""
SMALL_BYTES: Final = "_lance.small_bytes"
"""Rows of up to so many bytes are read while the scan is planned."""
COLUMN: Final = "_lance.column"
ROWS: Final = "_lance.rows"
DESCENDING: Final = "_lance.descending"
"""With the two above: the first rows in the order of a column."""
AFTER: Final = "_lance.after"
UNTIL: Final = "_lance.until"
"""The version that bounds a change feed is itself left out."""
NEAREST_PARTS: Final = "_lance.nearest_parts"
"""The columns of the table, and of the answer to a search for nearest rows."""

# A write.
SCHEMA: Final = "_lance.schema"
CREATE: Final = "_lance.create"
"""There must be no table yet."""
REPLACE: Final = "_lance.replace"
"""The table takes the place of another one."""
REPLACE_WHERE: Final = "_lance.replace_where"
PROPERTIES: Final = "_lance.properties"
SPLIT_BY: Final = "_lance.split_by"
"""The columns by which rows come sorted, and whose values get files of their own, as JSON."""
CLUSTER_BY: Final = "_lance.cluster_by"
"""The columns that a table is to be clustered by, as JSON; none to end it."""
SOURCES: Final = "_lance.sources"
"""By root, the oldest version that the query reads, and its stamp."""
CHANGE: Final = "_lance.change"
"""DELETE, UPDATE or MERGE."""
RETRIES: Final = "_lance.retries"
"""The attempts that earlier runs of the command have spent."""
TEXT: Final = "_lance.text"
"""A condition for people."""
CHANGES: Final = "_lance.changes"
"""What ALTER TABLE changes, as JSON."""

# Catalogs.
CATALOG: Final = "_lance.catalog"
NAME: Final = "_lance.name"
NAMESPACE: Final = "_lance.namespace"
NEW_NAME: Final = "_lance.new_name"
LOCATION: Final = "_lance.location"
CASCADE: Final = "_lance.cascade"

# Statements, and procedures.
STATEMENT: Final = "_lance.statement"
"""What Spark has refused to parse."""
PROCEDURE: Final = "_lance.procedure"
ARGUMENTS: Final = "_lance.arguments"
STATE: Final = "_lance.state"
"""Of a procedure whose tasks are run; the plugin hands it back as it is."""
DONE: Final = "_lance.done"
"""What the tasks gave."""

ALL: Final = frozenset(
    value for name, value in globals().items() if name.isupper() and name not in ("PREFIX", "ALL")
)
