"""Curves on logarithmic axes as an SVG, for the documentation. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, LABELS = 760, 380, 64, 40, 230
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c4314b", "#787774", "#64473a")
TEXT = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'


def svg(title: str, across: str, xs: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """`series` are values above zero at `xs`; each is named at its end, with its last value."""
    right, bottom = WIDTH - LABELS, HEIGHT - 40
    values = [value for line in series.values() for value in line]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log10(xs[0]), math.log10(xs[-1])

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - first) / (last - first) * (right - LEFT)

    def y(value: float) -> float:
        return bottom - (math.log10(value) - low) / (high - low) * (bottom - TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="20" {TEXT} font-weight="600">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        out.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="currentColor" stroke-opacity=".15"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" {TEXT}>{short(10.0**power)}</text>')
    middle = f'text-anchor="middle" {TEXT}'
    out += [f'<text x="{x(value):.1f}" y="{bottom + 20}" {middle}>{short(value)}</text>' for value in xs]
    out.append(f'<text x="{right + 12}" y="{bottom + 20}" {TEXT}>{escape(across)}</text>')
    ends: list[float] = []
    for (name, line), colour in zip(sorted(series.items(), key=lambda each: -each[1][-1]), COLOURS, strict=False):
        points = [(x(at), y(value)) for at, value in zip(xs, line, strict=True)]
        path = "L".join(f"{at:.1f} {value:.1f}" for at, value in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{at:.1f}" cy="{value:.1f}" r="3" fill="{colour}"/>' for at, value in points]
        ends.append(max(y(line[-1]) + 4, ends[-1] + 15 if ends else 0))  # names do not overlap
        dot = f'<tspan fill="{colour}">●</tspan>'
        out.append(f'<text x="{right + 12}" y="{ends[-1]:.1f}" {TEXT}>{dot} {escape(name)}</text>')
    return "\n".join([*out, "</svg>\n"])


def short(value: float) -> str:
    """`1`, `10`, `100k`, `1M`, `0.01`."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
