"""When rows of a merge match, as far as we understand the condition without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conjunct_texts import on_one_table, split_conjuncts
from pyspark_lance.spark.expressions import Expression, pushable_filter, readable_columns
from pyspark_lance.spark.jobs.semi_join import KeyPair, equal_columns


@dataclass(frozen=True, slots=True)
class MergeCondition:
    """What is known of a condition; all of it is demanded.

    Attributes:
        pairs: Columns that must be equal.
        target_filter: What the target row must fulfil whatever the source says, as our own scan
            understands it; None for nothing.
        is_whole: There is nothing else in the condition.
    """

    pairs: tuple[KeyPair, ...]
    target_filter: str | None
    is_whole: bool


def understood(condition: Expression, alias: str, schema: LanceSchema) -> MergeCondition:
    """What the condition of a merge demands.

    Args:
        condition: Over both sides.
        alias: Of the target.
        schema: Of the target.
    """
    names = [field.name for field in schema.fields]
    if not isinstance(condition, str):
        pairs = equal_columns(condition, alias, names)
        return MergeCondition(pairs, None, bool(pairs))
    pairs, filters, others = (), [], 0
    for conjunct in split_conjuncts(condition):
        found = equal_columns(conjunct, alias, names)
        if found:
            pairs += found
            continue
        alone = on_one_table(conjunct, alias, readable_columns(schema))
        text = None if alone is None else pushable_filter(alone, schema)
        if text is None:
            others += 1
        else:
            filters.append(text)
    return MergeCondition(pairs, " AND ".join(f"({text})" for text in filters) or None, not others)
