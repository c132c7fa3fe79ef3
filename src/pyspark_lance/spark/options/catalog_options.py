"""The options of catalog tables, which Spark forgets, are kept in the table's schema.

``CREATE TABLE t USING lance OPTIONS (path …)`` asks the source for a schema and stores it; a later
``SELECT`` passes on that schema, but no options.  So the options travel in the metadata of the
first column.  Only for reading: a write carries the metadata of the columns that are read, which
would name the wrong table.  Storage options are left out: a catalog is no place for secrets.
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
    """Whether Spark asks for a schema to keep it in its catalog."""
    return any(word.lower() in _CATALOG_WORDS for word in options)


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """``schema`` with the options in it, when it is asked for on behalf of a catalog."""
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
    """The options that ``keep_options`` put into a schema; none when it did not."""
    for column in schema.fields:
        text = (column.metadata or {}).get(OPTIONS_KEY)
        if text is not None:
            return {str(word): str(value) for word, value in json.loads(text).items()}
    return {}
