"""Distances between vectors, as Lance defines them."""

from __future__ import annotations

from enum import StrEnum

from pyspark_lance.errors import InvalidInputError


class Metric(StrEnum):
    """The metric of ``_distance``; less is nearer."""

    L2 = "l2"
    """The sum of squared differences."""
    COSINE = "cosine"
    """1 - x·q / (‖x‖ ‖q‖)."""
    DOT = "dot"
    """1 - x·q."""

    @classmethod
    def parse(cls, name: str) -> Metric:
        """Parse the name of a metric, ignoring case."""
        word = str(name).strip().lower()
        try:
            return cls(_OTHER_NAMES.get(word, word))
        except ValueError:
            raise InvalidInputError(
                f"{name!r} is not a vector metric", hint=f"the metrics are {', '.join(cls)}"
            ) from None


_OTHER_NAMES = {"euclidean": "l2"}
