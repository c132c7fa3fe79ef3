"""Transaction: an operation, and the version it was planned on.

Source: docs/format/table-format.md, section 8.1; protos/transaction.proto.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.operation import Operation, UnknownOperation
from pyspark_lance.format.operation_proto import operation_from_proto, write_operation
from pyspark_lance.format.wire import drop_unknown_fields, parse_message, wire_fields
from pyspark_lance.proto import transaction_pb2

_FIRST_OPERATION: Final = 100


MESSAGE_PROPERTY = "__lance_commit_message"
"""Transaction property: the user's comment, under the same key as in pylance."""
APPLICATION_PROPERTY = "pyspark_lance.spark_application_id"
"""Transaction property: id of the Spark application."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes of one commit."""

    read_version: int  # Version the work is based on; 0 for creating a table.
    uuid: str  # Hyphenated, lower case.
    operation: Operation  # The changes.
    tag: str = ""  # Copied into the manifest; unused in practice.
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)  # Free key/value pairs.
    # Whether the message has unknown fields, at any depth, which would be lost by writing it again.
    has_unknown_fields: bool = False

    @classmethod
    def from_bytes(cls, data: Any, where: str = "") -> Transaction:
        """Decode a serialized Transaction message.

        An unknown operation becomes an ``UnknownOperation``.

        ``data``: bytes-like; ``where``: file and byte range, for errors.
        """
        data = bytes(data)
        message = parse_message(transaction_pb2.Transaction, data, where)
        try:
            operation = operation_from_proto(message) or _unknown_operation(data)
        except (CorruptFileError, UnsupportedFeatureError) as error:
            raise type(error)(error.what, error.where or where, error.hint) from error
        return cls(
            read_version=message.read_version,
            uuid=message.uuid,
            operation=operation,
            tag=message.tag,
            properties=dict(message.transaction_properties),
            # Last: it modifies the message.
            has_unknown_fields=drop_unknown_fields(message),
        )

    def to_bytes(self) -> bytes:
        """The serialized message."""
        message = transaction_pb2.Transaction(
            read_version=self.read_version,
            uuid=self.uuid,
            tag=self.tag,
            transaction_properties=self.properties,
        )
        write_operation(self.operation, message)
        return message.SerializeToString(deterministic=True)


def _unknown_operation(data: bytes) -> UnknownOperation:
    """Return the unknown operation with the number of its field."""
    numbers = [field.number for field in wire_fields(data) if field.number >= _FIRST_OPERATION]
    return UnknownOperation(numbers[0] if numbers else 0, data)
