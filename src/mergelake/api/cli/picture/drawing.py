"""Elements of all drawings here: round ticks, texts of known size, SVG marks. Pure.

Colours are those of Okabe and Ito that stand out from white and from near-black (3 to 1 at least), and no meaning
rests on them alone. Texts take the ink of the theme; none is smaller than `SMALL`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE)
SMALL, BODY, HEAD = 11, 12, 15
"""Sizes of texts, in pixels."""
MONO = "mono"
SOLID = "solid"
_WIDTHS = {"bold": 0.7, MONO: 0.61}
"""Width of an average character over the font size, in a wide font (DejaVu Sans), so that narrower ones fit too."""
STYLE = """
text{font-family:system-ui,"Segoe UI","Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#16202a}
.paper{fill:#ffffff}.quiet{fill:#4a5661}.bold{font-weight:600}
.mono{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#4a5661}
.grid{stroke:#dde2e6}.axis{stroke:#7a8691}.line{stroke:#16202a}.shade{fill:#16202a}
@media (prefers-color-scheme:dark){
text{fill:#eef2f5}.paper{fill:#12171d}.quiet,.mono{fill:#b3bdc7}
.grid{stroke:#2c353e}.axis{stroke:#7d8994}.line{stroke:#eef2f5}.shade{fill:#eef2f5}}
"""


def round_step(span: float, about: int, least: float = 0) -> float:
    """The step of 1, 2 or 5 times a power of ten with which `span` has at most `about` ticks beyond the first.

    >>> round_step(19.7, 10), round_step(54, 6), round_step(3, 6, least=1)
    (2.0, 10.0, 1.0)
    """
    rough = max(span / about, least, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough) + 1e-9)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


def ticks(end: float, about: int, least: float = 0) -> list[float]:
    """Round numbers from 0 on, the last of them not beyond `end`."""
    step = round_step(end, about, least)
    return [round(step * i, 9) for i in range(math.floor(end / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from 0 to `end` on pixels from `first` to `last`."""

    end: float
    first: float
    last: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """The pixel of a number."""
        return self.first + (self.last - self.first) * value / self.end

    @classmethod
    def to_tick(cls, most: float, first: float, last: float, about: int, least: float = 0) -> Axis:
        """An axis that ends with a tick, at or above `most`."""
        step = round_step(max(most, least), about, least)
        end = step * max(1, math.ceil(most / step - 1e-9))
        return cls(end, first, last, tuple(ticks(end, about, least)))

    @classmethod
    def to_end(cls, end: float, first: float, last: float, about: int) -> Axis:
        """An axis that ends at `end`, where the data end."""
        end = max(end, 1e-3)
        return cls(end, first, last, tuple(ticks(end, about)))


def number(value: float) -> str:
    """A number as short as possible, with thousands separators.

    >>> number(20.0), number(0.5), number(12000)
    ('20', '0.5', '12,000')
    """
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def unit_of(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest of `units` (ascending) of which `most` has at least two; else the first."""
    return next((each for each in reversed(units) if most >= 2 * each[0]), units[0])


BYTES = ((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB"))
SECONDS = ((1, "s"), (60, "min"), (3600, "h"))


def size(count: float) -> str:
    """Bytes for people.

    >>> size(502), size(2_353_052)
    ('502 B', '2.2 MiB')
    """
    factor, unit = next((each for each in reversed(BYTES) if count >= each[0]), BYTES[0])
    return f"{count:,.0f} B" if factor == 1 else f"{count / factor:,.1f} {unit}"


def plural(count: int, thing: str) -> str:
    """`1 part`, `2,000 parts`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def text_width(words: str, size_px: float = BODY, style: str = "") -> float:
    """Pixels that a text takes at most, in the fonts of `STYLE`."""
    return len(words) * size_px * _WIDTHS.get(style, 0.62)


def text(x: float, y: float, words: str, *, px: int = BODY, style: str = "", anchor: str = "start") -> str:
    """Words whose base line is at `y`."""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{px}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


def title(x: float, y: float, words: str) -> str:
    """The words above a frame whose top is at `y`."""
    return text(x, y + 28, words, px=HEAD, style="bold")


def line(path: str, kind: str = "axis", extra: str = "") -> str:
    """A path without a filling, in a colour of the theme."""
    return f'<path d="{path}" class="{kind}" fill="none"{extra}/>'


def coloured(path: str, colour: str, dashes: str = "") -> str:
    """A thick path in a colour of the palette."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'


def bar(
    box: tuple[float, float, float, float], colour: str, *, tint: float = 1, dashes: str = "", tip: str = ""
) -> str:
    """A rectangle (x, y, width, height), filled with the opacity `tint`; with `dashes` (or `SOLID`) it has an edge."""
    x, y, width, height = box
    dashed = f' stroke-dasharray="{dashes}"' if dashes not in ("", SOLID) else ""
    edge = f' stroke="{colour}"{dashed}' if dashes else ""
    tooltip = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{max(height, 1):.1f}" '
        f'fill="{colour}" fill-opacity="{tint:g}"{edge}>{tooltip}</rect>'
    )


def steps(points: Iterable[tuple[float, float]], start: tuple[float, float], end_x: float) -> str:
    """The path of a quantity that is constant until the next point."""
    path = f"M{start[0]:.1f} {start[1]:.1f}"
    for x, y in points:
        path += f"H{x:.1f}V{y:.1f}"
    return f"{path}H{end_x:.1f}"


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near as possible to the wanted ones, in their order, `gap` from each other, within `low` and `high`.

    >>> apart([10, 12, 50], 15, 0, 100)
    [10, 25, 50]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: dict[int, float] = {}
    at = low - gap
    for i in order:
        at = placed[i] = max(wanted[i], at + gap)
    limit = high
    for i in reversed(order):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return [placed[i] for i in range(len(wanted))]


def lanes(spans: Sequence[tuple[float, float]], gap: float = 8) -> list[int]:
    """For each span (from, to) the first lane in which it touches none before it."""
    ends: list[float] = []
    chosen = []
    for first, last in spans:
        lane = next((i for i, end in enumerate(ends) if end + gap <= first), len(ends))
        ends[lane : lane + 1] = [last]
        chosen.append(lane)
    return chosen


def shorten(words: str, width: int, rows: int) -> list[str]:
    """Lines of at most `width` characters, broken at spaces; what does not fit in `rows` ends with `…`."""
    lines: list[str] = []
    left = words.split()
    while left and len(lines) < rows:
        row = left.pop(0)
        while left and len(row) + 1 + len(left[0]) <= width:
            row += " " + left.pop(0)
        lines.append(row)
    lines = [row if len(row) <= width else row[: width - 1] + "…" for row in lines]
    if left and lines:
        lines[-1] = lines[-1][: width - 2].rstrip() + " …"
    return lines
