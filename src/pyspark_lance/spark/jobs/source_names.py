"""What a name means in a DataFrame, found without asking Spark for a column that may not be there.

An analysis that fails costs tens of milliseconds, and a Connect server prints pages of Java of it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from pyspark_lance.predicate.name_parts import NameParts

# All columns, also those whose names have line breaks.
_EVERY_NAME = "`(?s).*`"
# Those of the same name, in lower case, together.
_Fields = dict[str, list[StructField]]


class SourceNames:
    """The columns of a DataFrame by the names that expressions give them."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._fields = _by_name(frame.schema.fields)
        self._under: dict[str, _Fields] = {}

    def has_alias(self, alias: str) -> bool:
        """Whether ``alias.*`` means something: an alias of columns, or a struct."""
        own = _only(self._fields, alias)
        is_struct = own is not None and isinstance(own.dataType, StructType)
        return is_struct or bool(self._columns_under(alias))

    def named(self, parts: NameParts) -> StructField | None:
        """The column, or the part of one, that a name surely means; None if it is not seen.

        What is under an alias goes before the members of a struct, as in Spark.
        """
        first, *others = parts
        if others and (column := _only(self._columns_under(first), others[0])) is not None:
            return _member(column, others[1:])
        column = _only(self._fields, first)
        return None if column is None else _member(column, others)

    def _columns_under(self, alias: str) -> _Fields:
        """A pattern that matches nothing gives no column, and no error."""
        key = alias.lower()
        if key not in self._under:
            pattern = self._frame.colRegex(f"{alias}.{_EVERY_NAME}")
            self._under[key] = _by_name(self._frame.select(pattern).schema.fields)
        return self._under[key]


def _by_name(fields: list[StructField]) -> _Fields:
    by_name: _Fields = {}
    for field in fields:
        by_name.setdefault(field.name.lower(), []).append(field)
    return by_name


def _only(fields: _Fields, name: str) -> StructField | None:
    """The field of this name; None if there is none or more than one."""
    alike = fields.get(name.lower(), [])
    return alike[0] if len(alike) == 1 else None


def _member(field: StructField, names: list[str]) -> StructField | None:
    """What is below a field by the names of members; None below anything but structs."""
    for name in names:
        members = field.dataType.fields if isinstance(field.dataType, StructType) else []
        found = _only(_by_name(members), name)
        if found is None:
            return None
        field = found
    return field
