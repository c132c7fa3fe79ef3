"""How the JVM companion gets an answer: as metadata of the only column of a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

_REPLY = "_lance"


def reply(facts: Mapping[str, Any]) -> StructType:
    """The schema whose metadata hold ``facts``, a JSON object."""
    return StructType([StructField("answer", LongType(), metadata={_REPLY: json.dumps(facts)})])
