"""XXH64, the hash of bloom filters, of a few short values.

Source: docs/format/table-format.md, section 10.6; https://xxhash.com, algorithm XXH64.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_STRIPE: Final = 32


def xxh64(data: bytes) -> int:
    """The hash of ``data`` with the seed 0."""
    at = len(data) - len(data) % _STRIPE
    mixed = (_mixed_stripes(data, at) if at else _P5) + len(data) & _MASK
    while at + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, at)
        mixed = (_turned(mixed ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        (half,) = struct.unpack_from("<I", data, at)
        mixed = (_turned(mixed ^ half * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        mixed = _turned(mixed ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    mixed = (mixed ^ mixed >> 33) * _P2 & _MASK
    mixed = (mixed ^ mixed >> 29) * _P3 & _MASK
    return mixed ^ mixed >> 32


def _mixed_stripes(data: bytes, end: int) -> int:
    lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
    for stripe in struct.iter_unpack("<4Q", data[:end]):
        lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
    mixed = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        mixed = ((mixed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return mixed


def _round(lane: int, word: int) -> int:
    return _turned((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK
