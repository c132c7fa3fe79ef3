"""Shapes of a picture, and their SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, in pixels from the upper left corner."""

    left: float
    top: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Band:
    """A filled, curved, translucent strip between two vertical edges."""

    left: tuple[float, float, float]  # Its left edge: x, top, bottom.
    right: tuple[float, float, float]  # Its right edge: x, top, bottom.
    colour: str  # Of the strip.


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, whose base line begins at (``left``, ``bottom``)."""

    left: float  # Where it begins.
    bottom: float  # Its base line.
    text: str  # The text.
    size: int = 10  # Height of the letters in pixels.
    upright: bool = False  # Read from bottom to top.
    bold: bool = False  # In bold letters.


@dataclass(frozen=True, slots=True)
class Group:
    """A group of boxes with a tooltip."""

    title: str
    boxes: tuple[Box, ...]


Shape = Box | Band | Text | Group
BAND_OPACITY = 0.35
TEXT_COLOUR = "#333333"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture: its size in pixels, and its shapes, later ones over earlier ones."""

    width: int
    height: int
    shapes: Sequence[Shape]


def to_svg(drawing: Drawing) -> str:
    """Return the picture as an SVG document."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width}" '
        f'height="{drawing.height}" font-family="sans-serif" fill="{TEXT_COLOUR}">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(_svg(shape) for shape in drawing.shapes)
        + "\n</svg>\n"
    )


def _svg(shape: Shape) -> str:
    match shape:
        case Box():
            return (
                f'<rect x="{shape.left:.1f}" y="{shape.top:.1f}" width="{shape.width:.1f}" '
                f'height="{shape.height:.1f}" fill="{shape.colour}"/>'
            )
        case Group():
            boxes = "".join(map(_svg, shape.boxes))
            return f"<g><title>{escape(shape.title)}</title>{boxes}</g>"
        case Band():
            return _svg_band(shape)
        case Text():
            weight = ' font-weight="bold"' if shape.bold else ""
            turned = (
                f' transform="rotate(-90 {shape.left:.1f} {shape.bottom:.1f})"'
                if shape.upright
                else ""
            )
            return (
                f'<text x="{shape.left:.1f}" y="{shape.bottom:.1f}" font-size="{shape.size}"'
                f"{weight}{turned}>{escape(shape.text)}</text>"
            )


def _svg_band(band: Band) -> str:
    (x0, top0, bottom0), (x1, top1, bottom1) = band.left, band.right
    middle = (x0 + x1) / 2
    return (
        f'<path d="M{x0:.1f} {top0:.1f}C{middle:.1f} {top0:.1f} {middle:.1f} {top1:.1f} '
        f"{x1:.1f} {top1:.1f}V{bottom1:.1f}C{middle:.1f} {bottom1:.1f} {middle:.1f} "
        f'{bottom0:.1f} {x0:.1f} {bottom0:.1f}Z" fill="{band.colour}" '
        f'fill-opacity="{BAND_OPACITY}"/>'
    )
