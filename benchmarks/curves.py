"""Curves as an SVG, for the documentation: on logarithmic axes, or of one figure against another. Pure."""

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


def trade(title: str, across: str, up: str, lines: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """Lines of named points: x from 0 on, y on a logarithmic axis. The names stand at the points of the first line."""
    right, bottom = WIDTH - LABELS, HEIGHT - 52
    points = [point for line in lines.values() for point in line.values()]
    most = math.ceil(max(x for x, _ in points))
    powers = range(
        math.floor(math.log10(min(y for _, y in points))), math.ceil(math.log10(max(y for _, y in points))) + 1
    )

    def place(point: tuple[float, float]) -> tuple[float, float]:
        share = (math.log10(point[1]) - powers[0]) / (powers[-1] - powers[0])
        return LEFT + point[0] / most * (right - LEFT), bottom - share * (bottom - TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="20" {TEXT} font-weight="600">{escape(title)}</text>',
        f'<text x="{right}" y="{bottom + 40}" text-anchor="end" {TEXT}>{escape(across)}</text>',
        f'<text x="{LEFT}" y="{TOP - 5}" {TEXT}>{escape(up)}</text>',
    ]
    for power in powers:
        _, at = place((0, 10.0**power))
        out.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="currentColor" stroke-opacity=".15"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" {TEXT}>{short(10.0**power)}</text>')
    for number in range(most + 1):
        at, _ = place((number, 10.0 ** powers[0]))
        out.append(f'<text x="{at:.1f}" y="{bottom + 20}" text-anchor="middle" {TEXT}>{number}</text>')
    for row, ((name, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
        places = [place(point) for point in line.values()]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        if row == 0:
            out += [
                f'<text x="{x + 8:.1f}" y="{y - 6:.1f}" {TEXT}>{escape(n)}</text>'
                for n, (x, y) in zip(line, places, strict=True)
            ]
        dot = f'<tspan fill="{colour}">●</tspan>'
        out.append(f'<text x="{right + 12}" y="{TOP + 16 * (row + 1)}" {TEXT}>{dot} {escape(name)}</text>')
    return "\n".join([*out, "</svg>\n"])


def short(value: float) -> str:
    """`1`, `10`, `100k`, `1M`, `0.01`."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
