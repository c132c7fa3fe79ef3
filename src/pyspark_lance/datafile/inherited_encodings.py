"""Encodings that are asked for on a list, struct or map: they are meant for what is in it.

pylance passes over such keys; here every leaf below honours those that fit its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyspark_lance.codec.encoding_requests import asks_for_encoding, fits_type
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema


def with_inherited_encodings(schema: LanceSchema) -> LanceSchema:
    """The schema with the keys of nested columns on their leaves, where those have none."""
    fields = tuple(_inherit(field, field.name, {}) for field in schema.fields)
    return replace(schema, fields=fields)


def _inherit(field: Field, path: str, outer: Mapping[str, bytes]) -> Field:
    if not field.children or field.is_packed or field.is_blob:
        if not outer or field.is_packed or field.is_blob:
            return field
        data_type = field.to_arrow().type
        kept = {
            key: value
            for key, value in outer.items()
            if fits_type(key, value.decode("utf-8", "replace"), data_type)
        }
        return replace(field, metadata={**kept, **field.metadata})
    own = {key: value for key, value in field.metadata.items() if asks_for_encoding(key)}
    passed_on = {**outer, **own}
    if not passed_on:
        children = tuple(_inherit(child, f"{path}.{child.name}", {}) for child in field.children)
        return field if children == field.children else replace(field, children=children)
    made = replace(
        field,
        children=tuple(
            _inherit(child, f"{path}.{child.name}", passed_on) for child in field.children
        ),
    )
    for key, value in own.items():
        if not any(key in leaf.metadata for leaf in _leaves(made)):
            raise UnsupportedFeatureError(
                f"column {path}: {key}={value.decode('utf-8', 'replace')} fits nothing in it",
                hint=f"remove {key} from the column's metadata",
            )
    return made


def _leaves(field: Field) -> Iterator[Field]:
    for part in field.walk():
        if not part.children:
            yield part
