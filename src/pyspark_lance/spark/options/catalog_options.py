"""Options of catalog tables, stored in the table's schema, as Spark does not pass them on.

``CREATE TABLE t USING lance OPTIONS (path …)`` gets a schema from the source and stores it; a later
``SELECT`` passes the schema to the source, but no options.  So the metadata of the first column
contains the options.  They only apply to reads: in a write, the metadata is that of the columns
that the query reads, maybe of another table.  Storage options are left out, as they are secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.option_table import STORAGE_PREFIX

OPTIONS_KEY = "lance.options"

# Spark passes these only when it creates a catalog table.
_CATALOG_WORDS = ("provider", "owner")
_LEFT_OUT = ("location", "is_managed_location", "external", "comment", *_CATALOG_WORDS)


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Return whether Spark requests a schema to store in its catalog."""
    return any(word.lower() in _CATALOG_WORDS for word in options)


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return ``schema`` with the options in its metadata, if it is for a catalog."""
    if not is_for_catalog(options):
        return schema
    words = {word.lower(): value for word, value in options.items()}
    kept = {
        word: value
        for word, value in words.items()
        if word not in _LEFT_OUT and not word.startswith((STORAGE_PREFIX, "option.", keys.PREFIX))
    }
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), OPTIONS_KEY: json.dumps(kept)}
    changed = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([changed, *others])


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that ``keep_options`` added to a schema, if any."""
    for column in schema.fields:
        text = (column.metadata or {}).get(OPTIONS_KEY)
        if text is not None:
            return {str(word): str(value) for word, value in json.loads(text).items()}
    return {}
