"""The methods that the JVM plugin calls, by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.service.frames import Message
from pyspark_lance.spark.service.reads_and_writes import abort, commit, plan_read, plan_write
from pyspark_lance.spark.service.server import Method
from pyspark_lance.spark.source.plugin_state import check_plugin
from pyspark_lance.spark.sql import catalog_calls, plugin_calls


@functools.cache
def methods() -> Mapping[str, Method]:
    """Return all methods by name."""
    by_options = (*plugin_calls.HANDLERS, *catalog_calls.HANDLERS)
    return {
        **{name: functools.partial(_with_options, name) for name in by_options},
        "plan_read": plan_read,
        "plan_write": plan_write,
        "commit": commit,
        "abort": abort,
    }


def _with_options(name: str, request: Message) -> Message:
    options: Any = CaseInsensitiveDict(request["options"])
    check_plugin(options.get(keys.PLUGIN, ""))
    return plugin_calls.handle(name, options)
