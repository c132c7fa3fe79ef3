"""Lines, boxes and texts of an SVG picture that is readable on light and on dark pages.

Colours are classes, which the style of the picture gives other values where the reader's system is
dark; the picture brings its own background, so it is readable on any page.
"""

from __future__ import annotations

from html import escape

# Name of the class: fill on light pages, fill on dark pages.
FILLS = {
    "page": ("#ffffff", "#1e2129"),
    "text": ("#24292f", "#e2e4e9"),
    "soft": ("#5f6873", "#a3abb8"),
    "card": ("#f3f4f6", "#2a2e38"),
    "head": ("#e3e6ea", "#363b47"),
    "ours": ("#3f51b5", "#8c9eff"),
    "other1": ("#b4bac4", "#6b7382"),
    "other2": ("#d2a24c", "#c9a05a"),
    "other3": ("#63a7a0", "#5f9d97"),
    "inserted": ("#3a9e5c", "#5fbf80"),
    "updated": ("#3b78c2", "#77a8e8"),
    "deleted": ("#c9423e", "#ef837f"),
    "mark": ("#e8f0fb", "#26364d"),
}
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Picture:
    """An SVG picture, drawn from top to bottom."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._shapes: list[str] = []

    def box(
        self, left: float, top: float, width: float, height: float, fill: str, radius: float = 3
    ) -> None:
        """A filled rectangle."""
        self._shapes.append(
            f'<rect class="{fill}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{radius:g}"/>'
        )

    def text(
        self,
        left: float,
        bottom: float,
        text: str,
        size: float = 12,
        *,
        fill: str = "text",
        bold: bool = False,
        at: str = "start",
        mono: bool = False,
    ) -> None:
        """A line of text; ``at`` says which end of it ``left`` is (start, middle, end)."""
        more = ' font-weight="600"' if bold else ""
        more += f' text-anchor="{at}"' if at != "start" else ""
        more += ' font-family="ui-monospace, monospace"' if mono else ""
        self._shapes.append(
            f'<text class="{fill}" x="{left:.1f}" y="{bottom:.1f}" font-size="{size:g}"{more}>'
            f"{escape(text)}</text>"
        )

    def line(self, points: list[tuple[float, float]], fill: str, *, dashed: bool = False) -> None:
        """A line through the points, with an arrow at its end."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._shapes.append(
            f'<polyline class="line-{fill}" points="{path}"{dashes} marker-end="url(#end-{fill})"/>'
        )

    def svg(self) -> str:
        """The document."""
        used = {name for name in FILLS if any(f'{name}"' in one for one in self._shapes)} | {"page"}
        lines = [name for name in FILLS if any(f'"line-{name}"' in one for one in self._shapes)]
        markers = "".join(
            f'<marker id="end-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path class="{name}" d="M0 0L8 4L0 8z"/></marker>'
            for name in lines
        )

        def style(dark: int) -> str:
            fills = "".join(f".{n}{{fill:{FILLS[n][dark]}}}" for n in FILLS if n in used)
            return fills + "".join(
                f".line-{n}{{stroke:{FILLS[n][dark]};fill:none;stroke-width:1.5}}" for n in lines
            )

        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'width="{self._width}" height="{self._height}" font-family="{escape(_FONT)}" '
            f'role="img">\n<title>{escape(self._title)}</title>\n<style>{style(0)}'
            f"@media(prefers-color-scheme:dark){{{style(1)}}}</style>\n<defs>{markers}</defs>\n"
            f'<rect class="page" width="{self._width}" height="{self._height}" rx="6"/>\n'
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )
