"""A table's life as a picture: how parts grew and merged, as one HTML file without dependencies.

Two drawings over the same time axis:

* active parts (a step line) with the bytes written so far by inserts and by merges;
* every part as a bar from its birth to its end, at the height of the block numbers that it covers, its colour
  the level. A merge is seen as a stack of bars that ends where a taller, darker bar begins.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

WIDTH, LEFT, RIGHT = 1080, 64, 64
PLOT = WIDTH - LEFT - RIGHT
_MERGE = re.compile("(upload the )?merge|mutate")
"""How the words of a merge begin, in a history."""
LEVELS = ("#9ecae8", "#5fa8d3", "#2f7fb8", "#1b5a91", "#123c69", "#0b2545")
"""Colours of levels 0, 1, 2, …; higher ones share the last."""


@dataclass(frozen=True, slots=True)
class PartLife:
    """One part from the entry that added it to the one that retired it."""

    name: str
    partition_id: str
    min_block: int
    max_block: int
    level: int
    rows: int
    bytes: int
    born_ms: int
    died_ms: int | None
    """None while it is active."""
    merged: bool
    """Written by a merge (else by an insert)."""


def part_lives(parts: pa.Table, history: pa.Table) -> list[PartLife]:
    """The lives of all parts: from `Table.parts(active_only=False)` and `Table.history()`, all versions."""
    times = dict(zip(history["version"].to_pylist(), history["time"].cast(pa.int64()).to_pylist(), strict=True))
    why = dict(zip(history["version"].to_pylist(), history["operations"].to_pylist(), strict=True))
    oldest = min(times.values(), default=0)  # history may begin after a part did
    return [
        PartLife(
            row["name"],
            row["partition_id"],
            row["min_block_number"],
            row["max_block_number"],
            row["level"],
            row["rows"],
            row["bytes_on_disk"],
            times.get(row["added_version"], oldest),
            times[row["removed_version"]] if row["removed_version"] else None,
            merged=row["level"] > 0 and any(map(_MERGE.match, why.get(row["added_version"], "merge").split("; "))),
        )
        for row in parts.to_pylist()
    ]


def render_timeline(title: str, lives: Sequence[PartLife], facts: Iterable[tuple[str, str]] = ()) -> str:
    """The HTML page. `facts` are shown as a table above the drawings."""
    start = min((life.born_ms for life in lives), default=0)
    end = max((life.died_ms or life.born_ms for life in lives), default=1)
    scale = _Scale(start, max(end, start + 1))
    rows = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in facts)
    legend = "".join(
        f'<span><i style="background:{colour}"></i>level {level}{"+" if level == len(LEVELS) - 1 else ""}</span>'
        for level, colour in enumerate(LEVELS)
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><table>{rows}</table>"
        f"<h2>Active parts and bytes written</h2>{_growth(lives, scale)}"
        f'<p class=key><span><i style="background:#d1495b"></i>active parts</span>'
        f'<span><i style="background:#8fb996"></i>bytes inserted</span>'
        f'<span><i style="background:#edae49"></i>bytes written by merges</span></p>'
        f"<h2>Parts by block number</h2>{_bars(lives, scale)}<p class=key>{legend}</p></html>"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    start_ms: int
    end_ms: int

    def x(self, at_ms: int | None) -> float:
        at = self.end_ms if at_ms is None else at_ms
        return LEFT + PLOT * (at - self.start_ms) / (self.end_ms - self.start_ms)

    def axis(self, y: float) -> str:
        seconds = (self.end_ms - self.start_ms) / 1000
        ticks = ""
        for i in range(6):
            x = LEFT + PLOT * i / 5
            ticks += f"<line x1={x:.1f} x2={x:.1f} y1={y} y2={y + 5} class=a />"
            ticks += f"<text x={x:.1f} y={y + 18} text-anchor=middle>{seconds * i / 5:.1f} s</text>"
        return f"<line x1={LEFT} x2={LEFT + PLOT} y1={y} y2={y} class=a />{ticks}"


def _growth(lives: Sequence[PartLife], scale: _Scale) -> str:
    height, top = 220, 12
    changes: Counter[int] = Counter(life.born_ms for life in lives)
    changes.subtract(life.died_ms for life in lives if life.died_ms is not None)
    counts: list[tuple[int, int]] = []
    active = 0
    for at, change in sorted(changes.items()):
        active += change
        counts.append((at, active))
    most = max((count for _, count in counts), default=1)
    total = max(sum(life.bytes for life in lives), 1)

    def y(share: float) -> float:
        return top + height * (1 - share)

    inserted = _cumulative([life for life in lives if not life.merged])
    merged = _cumulative([life for life in lives if life.merged])
    return (
        f'<svg viewBox="0 0 {WIDTH} {height + 44}">'
        + _steps([(scale.x(at), y(size / total)) for at, size in inserted], scale, y(0), "#8fb996")
        + _steps([(scale.x(at), y(size / total)) for at, size in merged], scale, y(0), "#edae49")
        + _steps([(scale.x(at), y(count / most)) for at, count in counts], scale, y(0), "#d1495b")
        + f"<text x={LEFT - 8} y={y(1) + 4} text-anchor=end>{most}</text>"
        + f"<text x={LEFT - 8} y={y(0)} text-anchor=end>0</text>"
        + f"<text x={LEFT + PLOT + 8} y={y(1) + 4}>{_size(total)}</text>"
        + scale.axis(top + height)
        + "</svg>"
    )


def _cumulative(lives: Sequence[PartLife]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    total = 0
    for life in sorted(lives, key=lambda life: life.born_ms):
        total += life.bytes
        out.append((life.born_ms, total))
    return out


def _steps(points: list[tuple[float, float]], scale: _Scale, floor: float, colour: str) -> str:
    path = f"M{LEFT} {floor:.1f}"
    for x, y in points:
        path += f"H{x:.1f}V{y:.1f}"
    return f'<path d="{path}H{scale.x(None):.1f}" fill=none stroke="{colour}" stroke-width=2 />'


def _bars(lives: Sequence[PartLife], scale: _Scale) -> str:
    blocks = max((life.max_block for life in lives), default=1)
    height = min(640, max(160, blocks * 5))
    row = height / blocks
    bars = ""
    for life in sorted(lives, key=lambda life: life.level):
        x, right = scale.x(life.born_ms), scale.x(life.died_ms)
        y = row * (life.min_block - 1)
        tall = max(row * (life.max_block - life.min_block + 1) - 0.6, 0.8)
        colour = LEVELS[min(life.level, len(LEVELS) - 1)]
        bars += (
            f'<rect x={x:.1f} y={y:.1f} width={max(right - x, 1.2):.1f} height={tall:.1f} fill="{colour}" rx=1>'
            f"<title>{html.escape(life.name)}: {life.rows:,} rows, {_size(life.bytes)}</title></rect>"
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height + 32}">{bars}<text x={LEFT - 8} y=10 text-anchor=end>1</text>'
        f"<text x={LEFT - 8} y={height} text-anchor=end>{blocks}</text>{scale.axis(height + 2)}</svg>"
    )


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:1120px;margin:24px auto;padding:0 16px;color:#1b2733}
h1{font-size:24px}h2{font-size:17px;margin-top:28px}
svg{width:100%;height:auto;background:#fff;border:1px solid #e3e6e8}
text{font:11px system-ui,sans-serif;fill:#5b6770}.a{stroke:#b7c0c7}
table{border-collapse:collapse}th{text-align:left;font-weight:500;color:#5b6770;padding:3px 24px 3px 0}
td{padding:3px 0;font-variant-numeric:tabular-nums}
.key span{margin-right:18px;font-size:13px;color:#5b6770}
.key i{display:inline-block;width:11px;height:11px;margin-right:6px}
"""
