"""Filter of the keys that a merge inserted, as recorded in an Update.

A split block bloom filter over the hashes of the keys, always of the same size: Lance sizes it for
8,192 keys, and adds more keys to the same filter.

Source: docs/format/table-format.md, section 8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark_lance.codec.value_hashes import BLOCK_BYTES, may_intersect
from pyspark_lance.format.wire import parse_message
from pyspark_lance.proto import transaction_pb2

ROW_KEYS_PROPERTY: Final = "pyspark_lance.row_keys"
"""Property of a transaction: version, ids of the key columns, and hashes of all new rows."""

NUM_BLOCKS: Final = 1024
NUM_BYTES: Final = NUM_BLOCKS * BLOCK_BYTES
_NUM_KEYS: Final = 8192
_PROBABILITY: Final = 0.00057
_KeyFilter = transaction_pb2.Transaction.KeyFilter


def key_filter_message(field_ids: Sequence[int], bitmap: bytes) -> bytes:
    """Return the message for the keys in ``bitmap``; ``field_ids`` in the order of the key."""
    message = _KeyFilter(field_ids=field_ids)
    message.bloom.bitmap = bitmap
    message.bloom.num_bits = NUM_BYTES * 8
    message.bloom.number_of_items = _NUM_KEYS
    message.bloom.probability = _PROBABILITY
    return message.SerializeToString()


def may_share_keys(ours: bytes, theirs: bytes) -> bool:
    """Return whether two messages may have a key in common; filters of different kinds may."""
    one, other = parse_message(_KeyFilter, ours), parse_message(_KeyFilter, theirs)
    if _kind(one) != _kind(other) or not one.HasField("bloom"):
        return True
    return len(one.bloom.bitmap) != NUM_BYTES or may_intersect(one.bloom.bitmap, other.bloom.bitmap)


def _kind(message: _KeyFilter) -> tuple[object, ...]:
    """Return the parameters that comparable filters share; in Lance, 0 means the default."""
    bloom = message.bloom
    return (
        tuple(message.field_ids),
        message.WhichOneof("filter"),
        len(bloom.bitmap),
        bloom.number_of_items or _NUM_KEYS,
        bloom.probability or _PROBABILITY,
    )
