"""Repetition and definition levels: which entries start a row or a list, which are null or empty.

Definition 0 is a valid leaf value; higher values belong to the layers of the column, innermost
first. Repetition 0 continues the innermost list, k starts an element of the k-th list from the
inside, and the number of lists starts a row (the reverse of Parquet).

Source: docs/format/file-format.md, sections 6.1 and 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import (
    BLOCK_VALUES,
    block_words,
    unpack_blocks,
    unpack_one_bit_blocks,
)
from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.leaf_column import (
    ALL_VALID_ITEM,
    DEFINITIONS_OWNED,
    LIST_LAYERS,
    NULL_AND_EMPTY_LIST,
    NULLABLE_LIST,
)

LEVEL_BITS = 16
LevelArray = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a page, innermost first.

    ``kinds``: numbers of enum RepDefLayer.
    """

    kinds: tuple[int, ...]

    @classmethod
    def from_message(cls, layers: Sequence[int]) -> Layers:
        """Check the numbers."""
        for layer in layers:
            require(layer in DEFINITIONS_OWNED, f"layer {layer} does not exist")
        return cls(tuple(layers))

    @property
    def num_lists(self) -> int:
        """Lists on the way to the root; the repetition level that starts a row."""
        return sum(kind in LIST_LAYERS for kind in self.kinds)

    @property
    def max_definition(self) -> int:
        """The highest definition level."""
        return sum(DEFINITIONS_OWNED[kind] for kind in self.kinds)

    @property
    def max_visible(self) -> int:
        """The highest definition level of an entry that has a value slot."""
        if self.num_lists == 0:
            return self.max_definition
        inner = takewhile(lambda kind: kind not in LIST_LAYERS, self.kinds)
        return sum(DEFINITIONS_OWNED[kind] for kind in inner)


def check_levels(
    repetition: LevelArray | None, definition: LevelArray | None, layers: Layers
) -> None:
    """Raise unless the levels are possible for the layers."""
    if definition is not None and len(definition):
        highest, allowed = int(definition.max()), layers.max_definition
        require(highest <= allowed, f"a definition level is {highest}, {allowed} is the highest")
    if repetition is not None:
        require(layers.num_lists > 0, "repetition levels without a list")
        if len(repetition):
            highest, allowed = int(repetition.max()), layers.num_lists
            require(highest <= allowed, f"a repetition level is {highest}, there are {allowed}")
    elif layers.num_lists:
        require(False, "a list without repetition levels")
    if repetition is not None and definition is not None:
        require(len(repetition) == len(definition), "unequally many levels of both kinds")


def decode_packed_level_chunks(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    packed_bits: int,
) -> LevelArray:
    """OutOfLineBitpacking of 16-bit levels, one block of levels per chunk.

    A block is full packed blocks of 1024 levels and a tail, which is raw exactly if that explains
    the size.

    ``data``: the bytes of the chunks; ``starts``: position of each chunk's levels; ``sizes``: their
    bytes; ``packed_bits``: bits per level.
    """
    require(packed_bits <= LEVEL_BITS, f"levels packed in {packed_bits} bits")
    if packed_bits == 0:
        return np.zeros(int(counts.sum()), np.uint8)
    block_bytes = block_words(LEVEL_BITS, packed_bits) * 2
    full, tails = np.divmod(counts, BLOCK_VALUES)
    raw = (tails > 0) & (sizes == full * block_bytes + 2 * tails)
    blocks = full + ((tails > 0) & ~raw)
    needed = blocks * block_bytes + np.where(raw, 2 * tails, 0)
    require(bool((sizes >= needed).all()), "a chunk is too small for its levels")
    packed = gather(data, starts, blocks * block_bytes).view("<u2")
    packed = packed.reshape(-1, block_words(LEVEL_BITS, packed_bits))
    levels = _unpack_levels(packed, packed_bits).reshape(-1)
    lengths = np.full(len(packed), BLOCK_VALUES)
    last_blocks = blocks.cumsum() - 1
    padded = (tails > 0) & ~raw
    lengths[last_blocks[padded]] = tails[padded]
    levels = gather(levels, np.arange(len(lengths)) * BLOCK_VALUES, lengths)
    if not raw.any():
        return levels
    return _insert_raw_tails(levels, data, starts + full * block_bytes, raw, counts, tails)


def _unpack_levels(packed: NDArray[np.uint16], packed_bits: int) -> NDArray[np.uint8]:
    """Levels of many blocks; more than 255 of them do not exist."""
    if packed_bits == 1:
        return unpack_one_bit_blocks(packed)
    unpacked = np.empty((len(packed), BLOCK_VALUES), np.uint16)
    unpack_blocks(packed, packed_bits, unpacked)
    if packed_bits > 8:
        require(not len(unpacked) or int(unpacked.max()) < 256, "a level is higher than 255")
    return unpacked.astype(np.uint8)


def _insert_raw_tails(
    levels: NDArray[np.uint8],
    data: NDArray[np.uint8],
    tail_starts: NDArray[np.int64],
    raw: NDArray[np.bool_],
    counts: NDArray[np.int64],
    tails: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """Put each raw tail behind the packed levels of its chunk."""
    chosen = raw.nonzero()[0]
    raw_levels = gather(data, tail_starts[chosen], 2 * tails[chosen]).view("<u2")
    require(int(raw_levels.max()) < 256, "a level is higher than 255")
    narrow = raw_levels.astype(np.uint8)
    packed_ends = (counts - tails * raw).cumsum()[chosen]
    tail_ends = tails[chosen].cumsum()
    # Slices of memoryviews cost a fraction of numpy's.
    whole, tail = levels.data, narrow.data
    pieces = []
    before = tail_before = 0
    for end, tail_end in zip(packed_ends.tolist(), tail_ends.tolist(), strict=True):
        pieces += [whole[before:end], tail[tail_before:tail_end]]
        before, tail_before = end, tail_end
    return np.frombuffer(b"".join([*pieces, whole[before:]]), np.uint8)


class Unraveler:
    """Conversion of levels to validity and list offsets, one layer after the other, leaf first.

    ``repetition``: levels, or None without lists; ``definition``: levels, or None if all are 0.
    """

    def __init__(
        self,
        repetition: LevelArray | None,
        definition: LevelArray | None,
        layers: Layers,
        num_slots: int,
    ) -> None:
        self._repetition = repetition
        self._definition = definition
        self._layers = layers
        self._num_slots = num_slots
        self._passed = 0  # layers
        self._consumed = 0  # definition levels of the layers passed
        self._depth = 0  # lists passed

    def _next_layer(self, *, is_list: bool) -> int:
        kinds = self._layers.kinds
        fits = self._passed < len(kinds) and (kinds[self._passed] in LIST_LAYERS) == is_list
        require(fits, f"the layers {list(kinds)} of a page do not fit the schema")
        self._passed += 1
        return kinds[self._passed - 1]

    def require_done(self) -> None:
        """Raise if the page has more layers than the schema."""
        kinds = self._layers.kinds
        require(self._passed == len(kinds), f"the layers {list(kinds)} do not fit the schema")

    @property
    def num_slots(self) -> int:
        """Slots of the current layer."""
        return self._num_slots

    def skip_item(self) -> None:
        """Consume the leaf's item layer without decoding it."""
        if self._next_layer(is_list=False) != ALL_VALID_ITEM and self._definition is not None:
            self._consumed += 1

    def item_validity(self) -> NDArray[np.bool_] | None:
        """Consume an item layer and return which of its slots are valid; None for all."""
        layer = self._next_layer(is_list=False)
        definition = self._definition
        if layer == ALL_VALID_ITEM or definition is None:
            return None
        limit = self._consumed
        self._consumed += 1
        valid = definition <= limit
        if self._repetition is None or self._layers.num_lists == 0:
            return valid
        if self._layers.max_definition <= self._max_slot_definition():
            return valid
        visible = definition <= self._max_slot_definition()
        return valid if visible.all() else valid[visible]

    def _max_slot_definition(self) -> int:
        """Entries above this have no slot in the current layer: an outer list owns it."""
        kinds = self._layers.kinds
        highest = 0
        depth = 0
        for kind in kinds:
            depth += kind in LIST_LAYERS
            if depth > self._depth:
                break
            highest += DEFINITIONS_OWNED[kind]
        return highest

    def list_offsets(self) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Consume a list layer and return the offsets of its lists, and which are valid.

        There is one offset more than there are lists; validity is None for all.
        """
        layer = self._next_layer(is_list=True)
        limit = self._consumed
        null = limit + 1 if layer in (NULLABLE_LIST, NULL_AND_EMPTY_LIST) else None
        self._consumed += DEFINITIONS_OWNED[layer]
        upper = self._consumed
        self._depth += 1
        highest = self._max_slot_definition()
        repetition = self._repetition
        if repetition is None:
            raise AssertionError("check_levels lets no list pass without repetition levels")
        opens = np.flatnonzero(repetition != 0)  # much faster on booleans
        definition = self._definition
        self._repetition = repetition[opens] - repetition.dtype.type(1)
        if definition is None:
            self._num_slots = len(opens)
            return np.append(opens, len(repetition)), None
        opened = definition[opens]
        self._definition = opened
        # Only entries that open a list can be without a child item.
        is_empty = opened > limit
        before = is_empty.cumsum()
        total = len(repetition) - (int(before[-1]) if len(before) else 0)
        starts = opens - before
        starts += is_empty
        valid: NDArray[np.bool_] | None = None
        if null is not None or highest > upper:
            valid = opened <= upper
            if null is not None:
                valid &= opened != null
        if self._layers.max_definition > highest:
            visible = opened <= highest
            if not visible.all():
                starts = starts[visible]
                valid = None if valid is None else valid[visible]
        self._num_slots = len(starts)
        return np.append(starts, total), valid

    def keep_every(self, dimension: int) -> None:
        """Step from the items of fixed-size lists of structs to the lists."""
        if self._repetition is not None:
            reject_unsupported("fixed-size lists of structs together with lists")
        require(self._num_slots % dimension == 0, "a fixed-size list is cut short")
        self._num_slots //= dimension
        if self._definition is not None:
            self._definition = self._definition[::dimension]
