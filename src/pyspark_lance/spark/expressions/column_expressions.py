"""Expression trees of conditions and values, from SQL texts and Columns.

A Column of a classic session is a tree in the JVM (``org.apache.spark.sql.internal.ColumnNode``),
one of Connect a message (``spark.connect.Expression``); ``sf.expr`` keeps the text in both.
Unknown nodes are opaque, and left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column

from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.name_parts import NameParts, name_parts
from pyspark_lance.predicate.text_names import MentionedNames, find_names
from pyspark_lance.predicate.text_names import equation as equation_of_text
from pyspark_lance.predicate.text_names import reference as reference_of_text
from pyspark_lance.predicate.tokens import split_conjuncts

Expression = str | Column
"""A SQL text or a Column."""

# Each node of a classic Column takes several calls to the JVM.
_MAX_NODES = 10_000


class Kind(StrEnum):
    """The kinds of nodes."""

    NAME = "name"
    COLUMN = "column"  # bound to one DataFrame
    TEXT = "text"
    CALL = "call"
    OTHER = "other"  # has no names except those of its children
    OPAQUE = "opaque"


def _no_children() -> Iterable[Node]:
    return ()


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an expression.

    ``words``: the parts of a name, a SQL text, or the name of a function.
    """

    kind: Kind
    words: NameParts = ()
    children: Callable[[], Iterable[Node]] = _no_children

    def __post_init__(self) -> None:
        """Check that the kind is an enum value."""
        check_enum(self.kind, Kind)


_OPAQUE = Node(Kind.OPAQUE)
_ANY = MentionedNames(may_be_any=True)


def node_of(expression: Expression) -> Node:
    """Return the root node of an expression."""
    if isinstance(expression, str):
        return Node(Kind.TEXT, (expression,))
    try:
        java = getattr(expression, "_jc", None)
        if java is not None:
            return _classic(java.node())
        # Only expressions with subqueries need the session, and those are opaque.
        return _message(cast("Any", expression).to_plan(None))
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return _OPAQUE


def sql_text(expression: Expression) -> str | None:
    """Return the SQL text of a string or of ``sf.expr``; None if there is none."""
    node = node_of(expression)
    return node.words[0] if node.kind is Kind.TEXT else None


def conjuncts(expression: Expression) -> tuple[Node, ...]:
    """Return the conjuncts of an expression, as far as they are known."""
    return tuple(_conjuncts(node_of(expression)))


def _conjuncts(node: Node) -> Iterator[Node]:
    if node.kind is Kind.TEXT:
        yield from (Node(Kind.TEXT, (text,)) for text in split_conjuncts(node.words[0]))
    elif node.kind is Kind.CALL and node.words == ("and",):
        for child in node.children():
            yield from _conjuncts(child)
    else:
        yield node


def equation(node: Node) -> tuple[NameParts, NameParts] | None:
    """Return the two names of an equality; None for other nodes."""
    if node.kind is Kind.TEXT:
        return equation_of_text(node.words[0])
    if node.kind is not Kind.CALL or node.words[0] not in ("=", "=="):
        return None
    sides = [reference(child) for child in node.children()]
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    return sides[0], sides[1]


def reference(node: Node) -> NameParts | None:
    """Return the parts of a name; None for other nodes."""
    if node.kind is Kind.TEXT:
        return reference_of_text(node.words[0])
    return node.words if node.kind is Kind.NAME else None


def names_in(expressions: Iterable[Expression]) -> MentionedNames:
    """The names that expressions mention, perhaps some more."""
    names = MentionedNames()
    waiting = [node_of(expression) for expression in expressions]
    for _ in range(_MAX_NODES):
        if not waiting:
            return names
        node = waiting.pop()
        names |= _own_names(node)
        try:
            waiting += node.children()
        except Py4JError:
            break
    return names | _ANY


def _own_names(node: Node) -> MentionedNames:
    if node.kind is Kind.TEXT:
        return find_names(node.words[0])
    if node.kind in (Kind.NAME, Kind.COLUMN):
        return MentionedNames.of(node.words)
    return _ANY if node.kind is Kind.OPAQUE else MentionedNames()


# Classic ------------------------------------------------------------------------------------

_CLASSIC_PLAIN = {
    "Alias", "Ascending$", "CaseWhenOtherwise", "Cast", "Descending$",
    "InvokeInlineUserDefinedFunction", "LambdaFunction", "Literal", "NullsFirst$", "NullsLast$",
    "SortOrder", "UnresolvedExtractValue", "UnresolvedNamedLambdaVariable", "UpdateFields",
    "Window", "WindowSpec",
}  # fmt: skip
# Catalyst nodes that a Column of a DataFrame or a Python function adds to the tree.
_CATALYST_PLAIN = {"Alias", "Cast", "GetStructField", "Literal", "PythonUDF"}


def _classic(node: Any) -> Node:
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedAttribute":
        is_bound = node.planId().isDefined() or node.isMetadataColumn()
        return Node(Kind.COLUMN if is_bound else Kind.NAME, tuple(_elements(node.nameParts())))
    if kind == "SqlExpression":
        return Node(Kind.TEXT, (node.expression(),))
    if kind == "ExpressionColumnNode":
        return _catalyst(node.expression())

    def children() -> Iterable[Node]:
        return map(_classic, _elements(node.children()))

    if kind == "UnresolvedFunction":
        return Node(Kind.CALL, (node.functionName().lower(),), children)
    return Node(Kind.OTHER, (), children) if kind in _CLASSIC_PLAIN else _OPAQUE


def _catalyst(expression: Any) -> Node:
    kind = expression.getClass().getSimpleName()
    if kind == "AttributeReference":
        return Node(Kind.COLUMN, (expression.name(),))
    if kind == "ColumnNodeExpression":
        return _classic(expression.node())
    if kind not in _CATALYST_PLAIN:
        return _OPAQUE
    return Node(Kind.OTHER, (), lambda: map(_catalyst, _elements(expression.children())))


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


# Connect ------------------------------------------------------------------------------------

_MESSAGE = "spark.connect.Expression"
_CONNECT_PLAIN = {
    "alias", "call_function", "cast", "common_inline_user_defined_function", "lambda_function",
    "literal", "named_argument_expression", "sort_order", "unresolved_extract_value",
    "unresolved_named_lambda_variable", "update_fields", "window",
}  # fmt: skip


def _message(message: Any) -> Node:
    expression_type = message.WhichOneof("expr_type")
    if expression_type == "unresolved_attribute":
        name = message.unresolved_attribute
        is_bound = name.HasField("plan_id") or name.is_metadata_column
        parts = name_parts(name.unparsed_identifier)
        return Node(Kind.COLUMN if is_bound else Kind.NAME, parts)
    if expression_type == "expression_string":
        return Node(Kind.TEXT, (message.expression_string.expression,))

    def children() -> Iterable[Node]:
        return map(_message, _messages_in(getattr(message, expression_type)))

    if expression_type == "unresolved_function":
        return Node(Kind.CALL, (message.unresolved_function.function_name.lower(),), children)
    return Node(Kind.OTHER, (), children) if expression_type in _CONNECT_PLAIN else _OPAQUE


def _messages_in(message: Any) -> Iterator[Any]:
    """Yield the outermost expressions in a message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in [value] if hasattr(value, "DESCRIPTOR") else value:
            if part.DESCRIPTOR.full_name == _MESSAGE:
                yield part
            else:
                yield from _messages_in(part)
