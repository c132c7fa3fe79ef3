"""Parser of SQL conditions, as after WHERE in Spark, into a typed tree.

Names and types are resolved during parsing, so a wrong column or a malformed number is an error
with its position in the condition, before any file is opened.  No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.plain_values import plain_values
from pyspark_lance.predicate import builder as build
from pyspark_lance.predicate import values
from pyspark_lance.predicate.builder import resolve_column
from pyspark_lance.predicate.tokens import (
    MAX_NESTING,
    Token,
    error_at,
    identifier,
    nesting_error,
    number_literal,
    string_value,
    tokenize,
)
from pyspark_lance.predicate.tree import (
    FALSE,
    TRUE,
    Column,
    Expression,
    Literal,
    Predicate,
    depth_of,
)
from pyspark_lance.predicate.types import (
    BINARY,
    DATE,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    parse_type,
)

_MAX_DEPTH = 100
_SUPPORTED = (
    "supported: AND OR NOT, = <> < <= > >= <=>, IN, BETWEEN, LIKE, ILIKE, RLIKE, IS [NOT] NULL / "
    "TRUE / FALSE / DISTINCT FROM, + - * / % div ||, CAST, literals, and the functions "
)


def parse_predicate(
    text: str, schema: pa.Schema, *, time_zone: str = "UTC", ansi: bool = True
) -> Predicate:
    """Parse ``text`` over the columns of ``schema`` and the lineage columns.

    ``text``: a Spark SQL condition, such as ``id > 5 AND name LIKE 'a%'``; ``time_zone``: zone of
    timestamps without one, and of ``year``, ``CAST(… AS date)``, …; ``ansi``: the session's
    ``spark.sql.ansi.enabled``. Without it, other rules apply to types and values that do not fit.
    """
    return _Parser(text, schema, time_zone, ansi).parse()


def parse_constant(text: str, wanted: pa.DataType, *, time_zone: str = "UTC") -> pa.Scalar:
    """Return the value of a SQL text without columns, such as ``-1`` or ``DATE'2026-11-22'``.

    ``time_zone``: zone of timestamps without one.
    """
    return _Parser(text, pa.schema([]), time_zone).parse_constant(wanted)


_COMPARISONS = {"=": "=", "==": "=", "<=>": "<=>", "<>": "<>", "!=": "<>"} | {
    operator: operator for operator in ("<", "<=", ">", ">=")
}
_PRECEDENCE = (
    dict.fromkeys(_COMPARISONS, 1)
    | dict.fromkeys(("+", "-", "||"), 2)
    | dict.fromkeys(("*", "/", "%", "DIV"), 3)
)
# Keywords that end an expression, so they are columns only in backquotes.
_RESERVED = frozenset(
    {"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "ESCAPE", "AS",
     "FROM", "WHEN", "THEN", "ELSE", "END", "CASE", "SELECT", "EXISTS", "INTERVAL"}
)  # fmt: skip
_TYPED_STRINGS = {
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "TIME": TIME,
}
_ALIASES = {
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "lcase": "lower",
    "ucase": "upper",
    "substr": "substring",
    "dayofmonth": "day",
    "nvl": "coalesce",
    "ifnull": "coalesce",
}
_CASTING_FUNCTIONS = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string",
     "binary", "date", "timestamp"}
)  # fmt: skip
# Time zone of the session, and whether it is in ANSI mode.
_Rules: TypeAlias = tuple[str, bool]
_TESTS: dict[str, Callable[[list[Expression], _Rules], Expression]] = {
    "isnull": lambda given, _: build.is_null(given[0]),
    "isnotnull": lambda given, _: build.negation(build.is_null(given[0])),
    "isnan": lambda given, rules: build.is_nan(given[0], rules[1]),
    "startswith": lambda given, _: build.match("starts_with", given[0], given[1]),
    "endswith": lambda given, _: build.match("ends_with", given[0], given[1]),
    "contains": lambda given, _: build.match("contains", given[0], given[1]),
    "contains_tokens": lambda given, _: build.contains_tokens(given[0], given[1]),
    "mod": lambda given, rules: values.arithmetic("%", given[0], given[1], rules[1]),
    "equal_null": lambda given, rules: build.comparison("<=>", given[0], given[1], *rules),
}
_ONE_ARGUMENT = frozenset(("isnull", "isnotnull", "isnan"))


class _Parser:
    """Recursive-descent parser of one condition, with methods from loose to tight binding."""

    def __init__(self, text: str, schema: pa.Schema, time_zone: str, ansi: bool = True) -> None:
        self._text, self._schema = text, schema
        self._rules: _Rules = (time_zone, ansi)
        self._tokens = tokenize(text)
        self._at = 0
        self._nesting = 0
        self._columns: dict[tuple[str, ...], Column] = {}

    def parse(self) -> Predicate:
        with self._add_position():
            result = self._disjunction()
        if self._token.kind != "end":
            raise self._unexpected_error()
        with self._add_position():
            predicate = build.condition(result, "a filter")
        if depth_of(predicate) > _MAX_DEPTH:
            raise self._too_deep()
        return predicate

    def parse_constant(self, wanted: pa.DataType) -> pa.Scalar:
        with self._add_position():
            result = values.cast(self._disjunction(), wanted, *self._rules)
        if self._token.kind != "end":
            raise self._unexpected_error()
        if not isinstance(result, Literal):
            raise self._error("a constant is expected")
        return result.scalar

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _take(self, *words: str) -> bool:
        """Consume the next tokens if they are ``words``; return whether they are."""
        ahead = self._tokens[self._at : self._at + len(words)]
        if [token.upper for token in ahead] != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected_error(f"expected {word}")

    @contextmanager
    def _add_position(self) -> Iterator[None]:
        """Add the position to errors without one."""
        start = self._token.position
        try:
            yield
        except LanceError as error:
            if error.where:
                raise
            raise error_at(self._text, start, error.what, error.hint) from error

    def _error(self, what: str, hint: str = "") -> InvalidInputError:
        return error_at(self._text, self._token.position, what, hint)

    def _unexpected_error(self, what: str = "") -> InvalidInputError:
        token = self._token
        shown = "the end" if token.kind == "end" else repr(token.text[:40])
        return self._error(f"{what}, found {shown}" if what else f"unexpected {shown}", _hint())

    def _too_deep(self) -> InvalidInputError:
        return nesting_error(self._text, self._token.position)

    # Conditions.

    def _disjunction(self) -> Expression:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._too_deep()
        result = self._chain("OR", self._conjunction, build.disjunction)
        self._nesting -= 1
        return result

    def _conjunction(self) -> Expression:
        return self._chain("AND", self._negation, build.conjunction)

    def _chain(
        self,
        word: str,
        term: Callable[[], Expression],
        join: Callable[[list[Expression]], Expression],
    ) -> Expression:
        with self._add_position():
            terms = [term()]
            while self._take(word):
                terms.append(term())
            return terms[0] if len(terms) == 1 else join(terms)

    def _negation(self) -> Expression:
        negations = 0
        with self._add_position():
            while self._take("NOT") or self._take("!"):
                negations += 1
            result = self._parse_test()
            # A double negation has no effect, but its operand must still be a condition.
            return result if not negations else self._negate_if(result, negations % 2 == 1)

    def _negate_if(self, term: Expression, negate: bool) -> Expression:
        return build.negation(term) if negate else build.condition(term, "NOT")

    def _parse_test(self) -> Expression:
        """Parse a value, followed by at most one of the tests IN, BETWEEN, LIKE, IS …."""
        with self._add_position():
            value = self._value()
            if self._take("IS"):
                return self._is(value)
            start = self._at
            negate = self._take("NOT") or self._take("!")
            word = self._token.upper
            if word not in ("IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP"):
                self._at = start
                if negate:
                    raise self._unexpected_error()
                return value
            self._at += 1
            if word == "IN":
                result = self._membership(value)
            elif word == "BETWEEN":
                result = self._between(value)
            else:
                result = self._like(value, word)
            return build.negation(result) if negate else result

    def _is(self, value: Expression) -> Expression:
        negate = self._take("NOT")
        if self._take("NULL"):
            result = build.is_null(value)
        elif self._take("UNKNOWN"):
            result = build.is_null(build.condition(value, "IS UNKNOWN"))
        elif self._take("TRUE"):
            result = build.comparison("<=>", build.condition(value, "IS TRUE"), TRUE)
        elif self._take("FALSE"):
            result = build.comparison("<=>", build.condition(value, "IS FALSE"), FALSE)
        elif self._take("DISTINCT", "FROM"):
            result = build.comparison("<=>", value, self._value(), *self._rules)
            negate = not negate
        else:
            raise self._unexpected_error("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return build.negation(result) if negate else result

    def _between(self, value: Expression) -> Expression:
        low = self._value()
        self._expect("AND")
        high = self._value()
        return build.conjunction(
            [
                build.comparison(">=", value, low, *self._rules),
                build.comparison("<=", value, high, *self._rules),
            ]
        )

    def _like(self, value: Expression, word: str) -> Expression:
        several = next((word for word in ("ALL", "ANY", "SOME") if self._take(word)), None)
        given = self._list() if several else [self._value()]
        escape = "\\"
        if word in ("LIKE", "ILIKE") and not several and self._take("ESCAPE"):
            escape = self._constant_text(self._value())
            if len(escape) != 1:
                raise self._error("ESCAPE needs a single character")
        patterns = [self._constant_text(pattern) for pattern in given]
        make = {"LIKE": build.like, "ILIKE": build.ilike}
        terms = [
            make[word](value, pattern, escape) if word in make else build.rlike(value, pattern)
            for pattern in patterns
        ]
        return build.conjunction(terms) if several == "ALL" else build.disjunction(terms)

    def _constant_text(self, pattern: Expression) -> str:
        if isinstance(pattern, Literal) and pa.types.is_string(pattern.type):
            value = pattern.value
            if isinstance(value, str):
                return value
        raise self._error("the pattern must be a string literal")

    def _membership(self, value: Expression) -> Expression:
        if self._token.kind == "integers":
            numbers = [int(text) for text in self._next().text.strip()[1:-1].split(",")]
            return build.membership(value, [], values.integer_array(numbers), *self._rules)
        texts = self._list_of_texts()
        if texts is not None:
            return build.membership(value, [], plain_values(texts, STRING), *self._rules)
        return build.membership(value, self._list(), None, *self._rules)

    def _list_of_texts(self) -> list[str] | None:
        """Parse a list of plain strings, which may be very long; None for any other list."""
        tokens, at = self._tokens, self._at
        texts: list[str] = []
        while tokens[at].text == ("," if texts else "(") and tokens[at + 1].kind == "string":
            texts.append(tokens[at + 1].text)
            at += 2
        if not texts or tokens[at].text != ")":
            return None
        self._at = at + 1
        return [string_value(text) for text in texts]

    def _list(self) -> list[Expression]:
        self._expect("(")
        items = [self._disjunction()]
        while self._take(","):
            items.append(self._disjunction())
        self._expect(")")
        return items

    # Values.

    def _value(self, tightness: int = 1) -> Expression:
        """Parse a value whose operators bind at least as tight as ``tightness``."""
        with self._add_position():
            left = self._operand()
            for _ in range(_MAX_DEPTH):
                operator = self._token.upper
                precedence = _PRECEDENCE.get(operator, 0)
                if precedence < tightness:
                    return left
                self._at += 1
                left = self._binary(operator, left, self._value(precedence + 1))
            raise self._too_deep()

    def _binary(self, operator: str, left: Expression, right: Expression) -> Expression:
        if operator in _COMPARISONS:
            return build.comparison(_COMPARISONS[operator], left, right, *self._rules)
        if operator == "||":
            return values.call("concat", [left, right])
        return values.arithmetic(operator.lower(), left, right, self._rules[1])

    def _operand(self) -> Expression:
        signs = 0
        while self._token.text in ("-", "+") and self._token.kind == "operator":
            # A minus before a number is part of it: -2147483648 is an int.
            if self._token.text == "-" and self._tokens[self._at + 1].kind == "number":
                break
            signs += self._next().text == "-"
        if self._take("-"):
            result: Expression = number_literal("-" + self._next().text)
        else:
            result = self._primary()
        while self._take("::"):
            result = values.cast(result, self._type(), *self._rules)
        if signs > MAX_NESTING:
            raise self._too_deep()
        for _ in range(signs):
            result = values.call("negative", [result], *self._rules)
        return result

    def _primary(self) -> Expression:
        token = self._token
        if self._take("("):
            result = self._disjunction()
            self._expect(")")
            return result
        if token.kind == "number":
            return number_literal(self._next().text)
        if token.kind == "string":
            return self._string()
        if token.kind == "quoted":
            return self._column()
        if token.kind == "word":
            return self._word(token)
        raise self._unexpected_error("expected a value")

    def _word(self, token: Token) -> Expression:
        word, following = token.upper, self._tokens[self._at + 1]
        if word in ("TRUE", "FALSE"):
            self._at += 1
            return TRUE if word == "TRUE" else FALSE
        if word == "NULL":
            self._at += 1
            return values.literal(None, NULL)
        if following.kind == "string" and word in _TYPED_STRINGS:
            self._at += 1
            return values.cast(self._string(), _TYPED_STRINGS[word], self._rules[0])
        if following.kind == "string" and word == "X":
            self._at += 1
            return self._hexadecimal()
        if word in _RESERVED:
            raise self._unexpected_error("expected a value")
        if following.text == "(" and following.kind == "operator":
            return self._function()
        return self._column()

    def _string(self) -> Literal:
        parts = []
        while self._token.kind == "string":
            parts.append(string_value(self._next().text))
        return values.literal("".join(parts), STRING)

    def _hexadecimal(self) -> Literal:
        digits = string_value(self._next().text)
        try:
            return values.literal(bytes.fromhex("0" * (len(digits) % 2) + digits), BINARY)
        except ValueError as error:
            raise self._error(f"{digits!r} is not hexadecimal") from error

    def _column(self) -> Column:
        start = self._at
        path = [identifier(self._next())]
        while self._take("."):
            if self._token.kind not in ("word", "quoted"):
                raise self._unexpected_error("expected a name")
            path.append(identifier(self._next()))
        known = self._columns.get(tuple(path))
        if known is None:
            end, self._at = self._at, start
            with self._add_position():
                known = resolve_column(tuple(path), self._schema)
            self._columns[tuple(path)], self._at = known, end
        return known

    def _type(self) -> pa.DataType:
        with self._add_position():
            name = self._next().text
            if self._take("("):
                numbers = [self._next().text]
                while self._take(","):
                    numbers.append(self._next().text)
                self._expect(")")
                name += f"({','.join(numbers)})"
            return parse_type(name)

    def _function(self) -> Expression:
        token = self._token
        name = token.text.lower()
        with self._add_position():
            self._at += 2
            if name == "cast":
                value = self._disjunction()
                self._expect("AS")
                data_type = self._type()
                self._expect(")")
                return values.cast(value, data_type, *self._rules)
            arguments = [] if self._token.text == ")" else [self._disjunction()]
            while self._take(","):
                arguments.append(self._disjunction())
            self._expect(")")
            return self._build_call(name, arguments)

    def _build_call(self, name: str, arguments: list[Expression]) -> Expression:
        count = len(arguments)
        if name in _CASTING_FUNCTIONS and count == 1:
            return values.cast(arguments[0], parse_type(name), *self._rules)
        if name in _TESTS:
            if count != (1 if name in _ONE_ARGUMENT else 2):
                raise InvalidInputError(f"{name} does not accept {count} arguments")
            return _TESTS[name](arguments, self._rules)
        name = _ALIASES.get(name, name)
        if name not in values.FUNCTION_NAMES:
            raise InvalidInputError(f"the function {name} is not supported here", hint=_hint())
        return values.call(name, arguments, *self._rules)


def _hint() -> str:
    functions = ", ".join(sorted((*values.FUNCTION_NAMES, *_TESTS)))
    return f"{_SUPPORTED}{functions}; otherwise let Spark filter: df.where(…)"
