"""Damage for fuzzing: bytes that are almost right, and messages that are valid but wrong."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = [0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 1023, 1024, 4095, 4096, 65_535]
NUMBERS += [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1]
_DEPTH = 3


def mutate_bytes(data: bytes, rng: random.Random, places: list[range] | None = None) -> bytes:
    """``data`` with one to three pieces of damage, in ``places`` if there are any."""
    copy = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not copy:
            return rng.randbytes(rng.randrange(12))
        place = rng.choice(places) if places else range(len(copy))
        at = min(rng.choice(place) if len(place) else 0, len(copy) - 1)
        match rng.randrange(8):
            case 0 | 1:
                copy[at] ^= 1 << rng.randrange(8)
            case 2:
                copy[at] = rng.choice((0, 1, 127, 128, 254, 255, rng.randrange(256)))
            case 3:  # a number of some width becomes a notable one
                width = rng.choice((2, 4, 8))
                number = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
                copy[at : at + width] = number.to_bytes(width, "little")
            case 4:
                del copy[at : at + rng.randrange(1, 9)]
            case 5:
                copy[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 6:  # a piece of the same data elsewhere
                start, size = rng.randrange(len(copy)), rng.randrange(1, 33)
                piece = copy[start : start + size]
                copy[at : at + len(piece)] = piece
            case _:
                if rng.random() < 0.2:
                    del copy[at:]
                else:
                    end = at + rng.randrange(1, 17)
                    copy[at:end] = bytes([rng.choice((0, 255))]) * (min(end, len(copy)) - at)
    return bytes(copy)


def mutate_text(text: str, others: list[str], rng: random.Random) -> str:
    """A text with pieces of other texts, repeated, dropped or odd pieces."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 1, 3, 10)))
        other = rng.choice(others)
        other_start = rng.randrange(len(other) + 1)
        piece = other[other_start : other_start + rng.choice((1, 4, 12, 40))]
        match rng.randrange(12):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + piece + text[end:]
            case 2:
                text = (
                    text[:start]
                    + rng.choice("()'\"`\\[]{},.:;-+*/%=<>0９eE_ \n\0é\ud800")
                    + text[end:]
                )
            case 3:
                text = text[:start] + str(rng.choice(NUMBERS)) + text[end:]
            case 4:
                text = text[:start] + text[start:end] * rng.choice((2, 2, 3, 200)) + text[end:]
            case 5:
                text = f"({text}) {rng.choice(('AND', 'OR', '=', '+', '<=>'))} ({other})"
            case _:
                words = text.split(" ")
                words[rng.randrange(len(words))] = rng.choice(other.split(" "))
                text = " ".join(words)
        text = text[:4000]
    return text


def mutate_message(message: Message, rng: random.Random) -> None:
    """Change one to three places of a message, at any depth; it stays valid."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change(rng.choice(_parts(message)), rng)


def _parts(message: Message) -> list[Message]:
    """The message and all messages in it."""
    found = [message]
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE or _is_map(field):
            continue
        for part in value if _is_repeated(field) else [value]:
            found += _parts(part)
    return found


def _change(message: Message, rng: random.Random) -> None:
    fields = list(message.DESCRIPTOR.fields)
    present = [field for field, _ in message.ListFields()]
    if not fields:
        return
    # Mostly what is there: what is not belongs to other cases of the format.
    field = rng.choice(present if present and rng.random() < 0.75 else fields)
    if _is_map(field):
        return
    if _is_repeated(field):
        _change_repeated(getattr(message, field.name), field, rng)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if rng.random() < 0.3:
            message.ClearField(field.name)
        else:
            _nest(message, field, rng)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        _set(message, field, _value(field, getattr(message, field.name), rng))


def _nest(message: Message, field: FieldDescriptor, rng: random.Random) -> None:
    """A new part; if it has a place for one of the old kind, sometimes with the old one in it."""
    old = type(message)()
    old.CopyFrom(message)
    part = getattr(message, field.name)
    fill(part, rng)
    part.SetInParent()
    places = [f for f in part.DESCRIPTOR.fields if f.message_type is message.DESCRIPTOR]
    places = [f for f in places if not _is_repeated(f)]
    if places and rng.random() < 0.7:
        getattr(part, rng.choice(places).name).CopyFrom(old)


def fill(message: Message, rng: random.Random, depth: int = 0) -> None:
    """Random values for some of the fields."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.5 or _is_map(field):
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth < _DEPTH:
                part = getattr(message, field.name)
                part = part.add() if _is_repeated(field) else part
                part.SetInParent()
                fill(part, rng, depth + 1)
        elif _is_repeated(field):
            values = [_value(field, field_default(field), rng) for _ in range(rng.randrange(3))]
            getattr(message, field.name).extend(v for v in values if v is not None)
        else:
            _set(message, field, _value(field, field_default(field), rng))


def field_default(field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return b"" if field.type == FieldDescriptor.TYPE_BYTES else ""
    return 0


def _change_repeated(values: Any, field: FieldDescriptor, rng: random.Random) -> None:
    at = rng.randrange(len(values)) if len(values) else 0
    action = rng.randrange(5)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if action == 0 or not len(values):
            fill(values.add(), rng)
        elif action == 1:
            del values[at]
        elif action == 2:
            values.add().CopyFrom(values[at])
        elif action == 3:
            values[at].CopyFrom(values[rng.randrange(len(values))])
        else:
            del values[at:]
    elif action == 0 or not len(values):
        value = _value(field, field_default(field), rng)
        if value is not None:
            values.append(value)
    elif action == 1:
        del values[at]
    elif action == 2:
        values.append(values[at])
    else:
        value = _value(field, values[at], rng)
        if value is not None:
            values[at] = value


def _value(field: FieldDescriptor, old: Any, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not old
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([*(v.number for v in field.enum_type.values), 99])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return mutate_bytes(bytes(old), rng)
    if field.type == FieldDescriptor.TYPE_STRING:
        raw = mutate_bytes(str(old).encode(), rng)
        return raw.decode("utf-8", "replace")
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e300))
    bits = 32 if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
    signed = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
    near = (int(old) + rng.choice((-8, -1, 1, 8)), int(old) * 2, int(old) // 2)
    number = rng.choice((*near, rng.choice(NUMBERS))) & ((1 << bits) - 1)
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    setattr(message, field.name, value)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(
        field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry
    )
