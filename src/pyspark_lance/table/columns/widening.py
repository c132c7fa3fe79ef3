"""Type widening: only to types that represent all values."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema

# Maximum bits of integers that a float represents exactly.
_EXACT_BITS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}


def widened_field(field: Field, new_type: pa.DataType, first_id: int) -> Field | None:
    """Return the column with a wider type and new ids; None if it already has the type."""
    old_type = field.to_arrow().type
    # Spark has no fixed-size lists, so a list matches the fixed-size list of the column.
    if pa.types.is_fixed_size_list(old_type) and pa.types.is_list(new_type):
        new_type = pa.list_(new_type.value_type, old_type.list_size)
    if old_type.equals(new_type) or _same_shape(old_type, new_type):
        return None
    if field.extension_name or field.is_blob or field.is_packed or not is_wider(old_type, new_type):
        raise InvalidInputError(
            f"the column {field.name!r} cannot change from {old_type} to {new_type}",
            hint="only to a type that holds all its values; otherwise add a column with an "
            "expression, and drop this one",
        )
    arrow = pa.field(field.name, new_type, field.nullable)
    (new,) = LanceSchema.from_arrow(pa.schema([arrow]), first_id).fields
    return replace(
        new,
        metadata={**new.metadata, **field.metadata},
        unenforced_primary_key=field.unenforced_primary_key,
        unenforced_primary_key_position=field.unenforced_primary_key_position,
        unenforced_clustering_key_position=field.unenforced_clustering_key_position,
    )


def _same_shape(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether types are equal except for the names of list items."""
    if pa.types.is_list(left) and pa.types.is_list(right):
        return _same_shape(left.value_type, right.value_type)
    return left.equals(right)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of ``old`` is a value of ``new``."""
    types = pa.types
    if old.equals(new) or types.is_null(old):
        return True
    if types.is_integer(old):
        return _holds_integers(old, new)
    if types.is_floating(old):
        return types.is_floating(new) and new.bit_width > old.bit_width
    if types.is_decimal(old) and types.is_decimal(new):
        whole = new.precision - new.scale >= old.precision - old.scale
        return whole and new.scale >= old.scale
    if types.is_string(old) or types.is_binary(old):
        wide = pa.large_string() if types.is_string(old) else pa.large_binary()
        return new.equals(wide)
    if types.is_fixed_size_list(old):
        same_size = types.is_fixed_size_list(new) and new.list_size == old.list_size
        return same_size and is_wider(old.value_type, new.value_type)
    if types.is_list(old) or types.is_large_list(old):
        list_like = types.is_large_list(new) or (types.is_list(new) and types.is_list(old))
        return list_like and is_wider(old.value_type, new.value_type)
    return False


def _holds_integers(old: pa.DataType, new: pa.DataType) -> bool:
    types = pa.types
    signed = types.is_signed_integer(old)
    bits = old.bit_width - (1 if signed else 0)
    if types.is_integer(new):
        if types.is_signed_integer(new):
            return new.bit_width - 1 >= bits
        return not signed and new.bit_width >= bits
    if types.is_floating(new):
        return _EXACT_BITS[new] >= bits
    if types.is_decimal(new):
        return 10 ** (new.precision - new.scale) > 2**bits
    return False
