"""Parse the conditions of merges as far as possible without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conjunct_texts import on_one_table
from pyspark_lance.spark.expressions.column_expressions import Expression, Kind, conjuncts
from pyspark_lance.spark.expressions.expressions import pushable_filter, readable_columns
from pyspark_lance.spark.jobs.semi_join import KeyPair, equal_sides


@dataclass(frozen=True, slots=True)
class MergeCondition:
    """The known conjuncts of a condition."""

    pairs: tuple[KeyPair, ...]  # Columns that must be equal.
    # The conjuncts on the target alone, as a filter of our scan, if any.
    target_filter: str | None
    is_whole: bool


def parse_merge_condition(condition: Expression, alias: str, schema: LanceSchema) -> MergeCondition:
    """Parse the condition of a merge."""
    names = [field.name for field in schema.fields]
    pairs, filters, others = [], [], 0
    for conjunct in conjuncts(condition):
        pair = equal_sides(conjunct, alias, names)
        if pair is not None:
            pairs.append(pair)
            continue
        text = None
        if conjunct.kind is Kind.TEXT:
            alone = on_one_table(conjunct.words[0], alias, readable_columns(schema))
            text = None if alone is None else pushable_filter(alone, schema)
        if text is None:
            others += 1
        else:
            filters.append(text)
    wanted = " AND ".join(f"({text})" for text in filters) or None
    return MergeCondition(tuple(pairs), wanted, not others)
