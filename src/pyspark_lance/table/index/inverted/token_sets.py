"""The tokens of a partition: which number each has, and which are near to a word.

They are stored as a table of strings, or as a map of the Rust crate ``fst`` 0.4: states that are
read backwards from their last byte.  Both are only walked as far as a query needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.plain_values import plain_numbers

# The bytes that a state may name by a number of six bits, by how often they are: from 1 on.
_COMMON: Final = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHGW"
_FST_VERSION: Final = 3
# From so many transitions on, a state has a table of them by their bytes.
_INDEXED: Final = 32
_TABLE_BYTES: Final = 256
_MAX_STATES: Final = 1 << 16
_BYTES: Final = tuple(bytes([byte]) for byte in range(256))


class TokenSet(Protocol):
    """The tokens of a partition."""

    def number_of(self, token: str) -> int | None:
        """The number of a token, None if it is not there."""

    def similar(self, word: FuzzyWord) -> Iterator[str]:
        """The tokens near to a word, ascending by their bytes."""

    def in_order(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return all tokens, ascending by their bytes, and their numbers."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""


@dataclass(frozen=True, slots=True)
class FuzzyWord:
    """A word, and the maximum edit distance of tokens."""

    word: str
    edits: int  # Characters inserted, deleted or replaced.
    prefix: str  # What tokens must begin with.

    def first_row(self) -> tuple[int, ...]:
        """Edits between the beginnings of the word and no character."""
        return tuple(range(len(self.word) + 1))

    def next_row(self, row: tuple[int, ...], character: str) -> tuple[int, ...] | None:
        """The edits once another character was read; None if no token can be near any more."""
        found = [row[0] + 1]
        for index, own in enumerate(self.word):
            replaced = row[index] + (own != character)
            found.append(min(replaced, row[index + 1] + 1, found[index] + 1))
        return tuple(found) if min(found) <= self.edits else None


class ArrowTokens:
    """Tokens as strings, ascending by their bytes."""

    def __init__(self, tokens: pa.Array, numbers: pa.Array) -> None:
        self._tokens = tokens.cast(pa.large_string()).cast(pa.large_binary())
        self._numbers = plain_numbers(numbers)
        self._keys = _LazyKeys(self._tokens)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self._tokens.nbytes + self._numbers.nbytes)

    def number_of(self, token: str) -> int | None:
        """The number of a token, None if it is not there."""
        key = token.encode()
        index = bisect_left(self._keys, key)
        if index == len(self._keys) or self._keys[index] != key:
            return None
        return int(self._numbers[index])

    def in_order(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return all tokens, ascending by their bytes, and their numbers."""
        tokens = self._tokens
        if len(tokens) > 1 and not pc.all(pc.less(tokens[:-1], tokens[1:])).as_py():
            raise CorruptFileError("tokens of a full-text index are out of order")
        names = tokens.cast(pa.large_string()).cast(pa.string())
        return names, self._numbers.astype(np.int64)

    def similar(self, word: FuzzyWord) -> Iterator[str]:
        """The tokens near to a word, ascending by their bytes.

        Tokens with a beginning that is too far are passed over together.
        """
        index = bisect_left(self._keys, word.prefix.encode())
        rows = [word.first_row()]
        before = ""
        while index < len(self._keys):
            token = self._keys[index].decode()
            if not token.startswith(word.prefix):
                return
            common = _common_length(before, token)
            del rows[common + 1 :]
            before = token
            for number, character in enumerate(token[common:], common + 1):
                row = word.next_row(rows[-1], character)
                if row is None:
                    before = token[: number - 1]
                    after = _after(token[:number])
                    index = len(self._keys) if after is None else bisect_left(self._keys, after)
                    break
                rows.append(row)
            else:
                if rows[-1][-1] <= word.edits:
                    yield token
                index += 1


class _LazyKeys(Sequence[bytes]):
    """Values of an Arrow array, converted on demand."""

    def __init__(self, values: pa.LargeBinaryArray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]
        found: bytes = self._values[index].as_py()
        return found


def _common_length(left: str, right: str) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _after(prefix: str) -> bytes | None:
    """The least bytes that are behind everything that begins with ``prefix``."""
    content = bytearray(prefix.encode())
    while content and content[-1] == 0xFF:
        content.pop()
    if not content:
        return None
    content[-1] += 1
    return bytes(content)


@dataclass(frozen=True, slots=True)
class _State:
    """A state of an fst."""

    is_final: bool
    output: int  # What a key that ends here adds to its value.
    transitions: tuple[tuple[int, int, int], ...]  # Byte, output, address; ascending by byte.


class FstTokens:
    """Tokens as an fst map from keys to numbers."""

    def __init__(self, content: bytes, where: str = "") -> None:
        if len(content) < 36:
            raise CorruptFileError("a set of tokens is too short", where)
        version = int.from_bytes(content[:8], "little")
        if version != _FST_VERSION:
            raise UnsupportedFeatureError(f"sets of tokens of version {version}", where)
        self._content, self._where = content, where
        self._root = int.from_bytes(content[-12:-4], "little")

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return len(self._content)

    def number_of(self, token: str) -> int | None:
        """The number of a token, None if it is not there."""
        state, number = self._state(self._root), 0
        for byte in token.encode():
            for own, output, address in state.transitions:
                if own == byte:
                    state, number = self._state(address), number + output
                    break
            else:
                return None
        return number + state.output if state.is_final else None

    def in_order(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return all tokens, ascending by their bytes, and their numbers."""
        names: list[bytes] = []
        numbers: list[int] = []
        states: dict[int, _State] = {}  # Many keys end by the same states.
        stack = [(self._root, b"", 0)]
        while stack:
            address, key, number = stack.pop()
            state = states.get(address)
            if state is None:
                state = self._state(address)
                if len(states) < _MAX_STATES:
                    states[address] = state
            if state.is_final:
                names.append(key)
                numbers.append(number + state.output)
            for byte, output, target in reversed(state.transitions):
                stack.append((target, key + _BYTES[byte], number + output))
        tokens = pa.array(names, pa.large_binary()).cast(pa.large_string()).cast(pa.string())
        return tokens, np.array(numbers, np.int64)

    def similar(self, word: FuzzyWord) -> Iterator[str]:
        """The tokens near to a word, ascending by their bytes."""
        prefix = word.prefix.encode()
        # Of a character whose last bytes are to come, the bytes so far.
        stack: list[tuple[int, bytes, int, tuple[int, ...]]] = [
            (self._root, b"", 0, word.first_row())
        ]
        while stack:
            address, key, whole, row = stack.pop()
            state = self._state(address)
            is_token = state.is_final and whole == len(key) >= len(prefix)
            if is_token and row[-1] <= word.edits:
                yield key.decode()
            for byte, _, target in reversed(state.transitions):
                longer = key + bytes([byte])
                if longer[: len(prefix)] != prefix[: len(longer)]:
                    continue
                if len(longer) - whole < _utf8_length(longer[whole]):
                    stack.append((target, longer, whole, row))
                    continue
                following = word.next_row(row, longer[whole:].decode())
                if following is not None:
                    stack.append((target, longer, len(longer), following))

    def _state(self, address: int) -> _State:
        if address == 0:
            return _State(True, 0, ())
        if not 0 < address < len(self._content):
            raise CorruptFileError(f"a set of tokens refers to byte {address}", self._where)
        kind = self._content[address] >> 6
        if kind == 3:
            byte, at = self._common(address)
            return _State(False, 0, ((byte, 0, at - 1),))
        if kind == 2:
            return self._one_transition(address)
        return self._transitions(address)

    def _common(self, address: int) -> tuple[int, int]:
        """The byte of the only transition of a state, and the end of the bytes before it."""
        number = self._content[address] & 63
        if number:
            return _COMMON[number - 1], address
        return self._content[address - 1], address - 1

    def _one_transition(self, address: int) -> _State:
        byte, at = self._common(address)
        sizes = self._content[at - 1]
        of_address, of_output = sizes >> 4, sizes & 15
        at -= 1 + of_address
        distance = self._number(at, of_address)
        output = self._number(at - of_output, of_output)
        end = at - of_output
        return _State(False, 0, ((byte, output, end - distance if distance else 0),))

    def _transitions(self, address: int) -> _State:
        content = self._content
        is_final, count = bool(content[address] & 64), content[address] & 63
        at = address
        if not count:
            at -= 1
            count = content[at]
            count = 256 if count == 1 else count
        at -= 1
        of_address, of_output = content[at] >> 4, content[at] & 15
        top = at - (_TABLE_BYTES if count > _INDEXED else 0)
        outputs = top - count - count * of_address
        final_bytes = of_output if is_final else 0
        end = outputs - count * of_output - final_bytes
        transitions = []
        for number in range(count):
            distance = self._number(top - count - (number + 1) * of_address, of_address)
            output = self._number(outputs - (number + 1) * of_output, of_output)
            target = end - distance if distance else 0
            transitions.append((content[top - number - 1], output, target))
        final = self._number(end, final_bytes) if final_bytes else 0
        return _State(is_final, final, tuple(transitions))

    def _number(self, start: int, size: int) -> int:
        return int.from_bytes(self._content[start : start + size], "little")


def _utf8_length(first: int) -> int:
    """Bytes of a character, by its first."""
    return 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
