"""A picture as PNG, painted here: pixels in an array, letters from a small font of our own."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from pyspark_lance.command_line.drawing import (
    BAND_OPACITY,
    TEXT_COLOUR,
    Band,
    Box,
    Drawing,
    Group,
    Shape,
    Text,
)

_SCALE = 2
"""Pixels of the file for each pixel of the drawing."""
Pixels = npt.NDArray[np.float32]

# Letters of 5 x 7 points: a digit of base 32 for each row, from the top, its bits from the left.
_LETTERS = """
A EHHVHHH B UHHUHHU C EHGGGHE D UHHHHHU E VGGUGGV F VGGUGGG G EHGNHHF H HHHVHHH I E44444E J 72222IC
K HIKOKIH L GGGGGGV M HRLLHHH N HPLJHHH O EHHHHHE P UHHUGGG Q EHHHLID R UHHUKIH S FGGE11U T V444444
U HHHHHHE V HHHHHA4 W HHHLLLA X HHA4AHH Y HHA4444 Z V1248GV a 00E1FHF b GGMPHHU c 00EGGHE d 11DJHHF
e 00EHVGE f 698S888 g 00FHF1E h GGMPHHH i 40C444E j 20622IC k GGIKOKI l C44444E m 00QLLHH n 00MPHHH
o 00EHHHE p 00UHUGG q 00DJF11 r 00MPGGG s 00EGE1U t 88S8896 u 00HHHJD v 00HHHA4 w 00HHLLA x 00HA4AH
y 00HHF1E z 00V248V 0 EHJLPHE 1 4C4444E 2 EH1248V 3 V2421HE 4 26AIV22 5 VGU11HE 6 68GUHHE 7 V124888
8 EHHEHHE 9 EHHF12C . 00000CC , 0000C48 - 000E000 _ 000000V / 01248G0 : 0CC0CC0 ( 2488842 ) 8422248
+ 044V440 $ 4FKE5U4 % OP248J3 = 00V0V00 # AAVAVAA @ EHNLNGE ' 4480000 ? EH12404
"""
_ROWS, _COLUMNS = 7, 5


def _font() -> dict[str, npt.NDArray[np.bool_]]:
    words = _LETTERS.split()
    return {
        letter: np.array(
            [[int(row, 32) >> bit & 1 for bit in range(_COLUMNS - 1, -1, -1)] for row in rows],
            dtype=bool,
        )
        for letter, rows in zip(words[::2], words[1::2], strict=True)
    }


def to_png(drawing: Drawing) -> bytes:
    """The picture as a PNG file, twice as large as the drawing for sharp screens."""
    shape = (drawing.height * _SCALE, drawing.width * _SCALE, 3)
    pixels: Pixels = np.full(shape, 255, np.float32)
    font = _font()
    for drawn in drawing.shapes:
        _paint(pixels, drawn, font)
    return _encoded(pixels.round().astype(np.uint8))


def _paint(pixels: Pixels, shape: Shape, font: dict[str, npt.NDArray[np.bool_]]) -> None:
    match shape:
        case Box():
            _paint_box(pixels, shape)
        case Group():
            for box in shape.boxes:
                _paint_box(pixels, box)
        case Band():
            _paint_band(pixels, shape)
        case Text():
            _paint_text(pixels, shape, font)


def _paint_box(pixels: Pixels, box: Box) -> None:
    top, left = round(box.top * _SCALE), round(box.left * _SCALE)
    bottom = max(top + 1, round((box.top + box.height) * _SCALE))
    right = max(left + 1, round((box.left + box.width) * _SCALE))
    pixels[top:bottom, left:right] = _rgb(box.colour)


def _paint_band(pixels: Pixels, band: Band) -> None:
    """Column by column: each is a stretch of pixels between two curves."""
    (x0, top0, bottom0), (x1, top1, bottom1) = band.left, band.right
    columns = np.arange(round(x0 * _SCALE), round(x1 * _SCALE))
    share = (columns - x0 * _SCALE) / max(1.0, (x1 - x0) * _SCALE)
    smooth = share * share * (3 - 2 * share)
    tops = np.round((top0 + (top1 - top0) * smooth) * _SCALE).astype(int)
    bottoms = np.round((bottom0 + (bottom1 - bottom0) * smooth) * _SCALE).astype(int)
    first = int(tops.min(initial=pixels.shape[0]))
    last = int(max(bottoms.max(initial=0), first) + 1)
    rows = np.arange(first, last)[:, None]
    inside = (rows >= tops) & (rows < np.maximum(bottoms, tops + 1))
    area = pixels[first:last, columns[0] : columns[-1] + 1]
    colour = _rgb(band.colour)
    area[inside] += (colour - area[inside]) * np.float32(BAND_OPACITY)


def _paint_text(pixels: Pixels, text: Text, font: dict[str, npt.NDArray[np.bool_]]) -> None:
    gap = np.zeros((_ROWS, 1), dtype=bool)
    blank = np.zeros((_ROWS, _COLUMNS - 2), dtype=bool)
    letters = [
        part
        for letter in text.text
        for part in (blank if letter == " " else font.get(letter, font["?"]), gap)
    ]
    if not letters:
        return
    size = max(1, round(text.size * _SCALE / 10))
    line = np.concatenate(letters, axis=1).repeat(size, axis=0).repeat(size, axis=1)
    if text.bold:
        line[:, 1:] |= line[:, :-1].copy()
    left, top = round(text.left * _SCALE), round(text.bottom * _SCALE) - line.shape[0]
    if text.upright:
        line = np.rot90(line)
        top = round(text.bottom * _SCALE) - line.shape[0]
        left -= line.shape[1]
    cut = line[max(0, -top) :, max(0, -left) :]
    area = pixels[max(0, top) : max(0, top) + cut.shape[0], max(0, left) :][:, : cut.shape[1]]
    area[cut[: area.shape[0], : area.shape[1]]] = _rgb(TEXT_COLOUR)


def _rgb(colour: str) -> Pixels:
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)], np.float32)


def _encoded(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG file of 8-bit RGB; before each row a zero, for no filter."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
