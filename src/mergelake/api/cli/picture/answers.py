"""The queries of a sheet: their text, the times of mergelake and of ClickHouse, whether the answers are equal. Pure."""

from __future__ import annotations

from itertools import accumulate

from mergelake.api.cli.picture.drawing import (
    GREEN,
    MONO,
    SMALL,
    SOLID,
    Axis,
    bar,
    line,
    number,
    plural,
    shorten,
    text,
    title,
    unit_of,
)
from mergelake.api.cli.picture.values import MARGIN, RIGHT, Sheet, TimeAxis


def answers(sheet: Sheet, _: TimeAxis, y: float) -> tuple[str, float]:
    """For each query its text, shortened, two bars on one axis, and whether the answers are the same."""
    if not sheet.answers:
        return "", 0
    most = max(max(each.seconds, each.clickhouse_seconds) for each in sheet.answers)
    factor, unit = unit_of(most, ((0.001, "ms"), (1, "s")))
    out = [
        title(MARGIN, y, "The same queries, asked of mergelake and of a stock ClickHouse on the same files"),
        text(MARGIN, y + 46, sheet.answers_note, style="quiet"),
    ]
    written = [shorten(each.query, 78, 3) for each in sheet.answers]
    tall = [22 + 15 * max(2, len(rows)) for rows in written]
    top = y + 64
    axis = Axis.to_tick(most / factor, 648, RIGHT, 4)
    bottom = top + sum(tall)
    for tick in axis.ticks:
        out.append(line(f"M{axis.at(tick):.1f} {top:.1f}V{bottom:.1f}", "grid"))
        out.append(text(axis.at(tick), bottom + 16, f"{number(tick)} {unit}", px=SMALL, style="quiet", anchor="middle"))
    for each, rows, at in zip(sheet.answers, written, accumulate(tall, initial=top), strict=False):
        out.append(text(MARGIN, at + 14, each.title, style="bold"))
        out += [text(MARGIN, at + 30 + 14 * i, row, px=SMALL, style=MONO) for i, row in enumerate(rows)]
        for i, (name, seconds) in enumerate((("mergelake", each.seconds), ("ClickHouse", each.clickhouse_seconds))):
            end, base = axis.at(seconds / factor), at + 8 + 18 * i
            out.append(text(640, base + 10, name, px=SMALL, anchor="end"))
            box = (axis.at(0), base, end - axis.at(0), 13.0)
            out.append(bar(box, GREEN, tint=0.2 if i else 1, dashes=SOLID))
            out.append(text(end + 6, base + 10, f"{number(float(f'{seconds / factor:.3g}'))} {unit}", px=SMALL))
        verdict = "✓ same answer" if each.same else "✗ another answer"
        out.append(text(990, at + 18, verdict, style="bold"))
        out.append(text(990, at + 36, plural(each.rows, "row"), px=SMALL, style="quiet"))
    return "".join(out), bottom - y + 34
