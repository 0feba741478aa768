"""One picture of what a job did to a table: parts, bytes, merges and answers, as an SVG for a browser or a page. Pure.

From top to bottom: what it is; the main figures; then four frames over the *same* time axis (active parts; bytes
written; merges, a bar each, by level; the parts of the bucket by block number); then the queries, with the times of
mergelake and of ClickHouse on one axis. A frame without anything to show is left out, or is a sentence. Labels stand
beside what they name; dashes mean "on a node's disk only" in each frame.
"""

from __future__ import annotations

from html import escape

from mergelake.api.cli.picture.answers import answers
from mergelake.api.cli.picture.drawing import HEAD, SMALL, STYLE, line, shorten, text, text_width
from mergelake.api.cli.picture.frames import active, blocks, bytes_written, merges
from mergelake.api.cli.picture.values import MARGIN, WIDTH, Sheet, TimeAxis, same_answers


def render_page(sheet: Sheet) -> str:
    """The picture as an HTML page."""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>mergelake</title>"
        "<style>:root{color-scheme:light dark}body{margin:0;background:#fff}svg{display:block;margin:auto}"
        "@media (prefers-color-scheme:dark){body{background:#12171d}}</style>"
        f"{render_sheet(sheet)}</html>\n"
    )


def render_sheet(sheet: Sheet) -> str:
    """The picture: an SVG of `WIDTH` pixels."""
    time = TimeAxis.of(sheet)
    out: list[str] = []
    y = 0.0
    for draw in (_head, _tiles, _phases, active, bytes_written, merges, blocks, answers, _foot):
        drawn, height = draw(sheet, time, y)
        out.append(drawn)
        y += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:.0f}" viewBox="0 0 {WIDTH} {y:.0f}" '
        f'role="img"><title>mergelake: {escape(sheet.title)}</title><style>{STYLE}</style>'
        f'<rect class="paper" width="{WIDTH}" height="{y:.0f}"/>' + "\n".join(out) + "</svg>\n"
    )


def _head(sheet: Sheet, _: TimeAxis, y: float) -> tuple[str, float]:
    out = [text(MARGIN, y + 44, "mergelake", px=28, style="bold")]
    out.append(text(MARGIN + text_width("mergelake", 28, "bold") + 4, y + 44, sheet.title, px=HEAD, style="quiet"))
    if sheet.answers:
        mark = "✓" if all(answer.same for answer in sheet.answers) else "✗"
        verdict = f"{mark} {same_answers(sheet.answers)}"
        out.append(text(MARGIN, y + 72, verdict, px=HEAD, style="bold"))
    return "".join(out), 84 if sheet.answers else 60


def _tiles(sheet: Sheet, _: TimeAxis, y: float) -> tuple[str, float]:
    if not sheet.tiles:
        return "", 0
    wide = (WIDTH - 2 * MARGIN) / len(sheet.tiles)
    longest = max((figure for figure, _ in sheet.tiles), key=len)
    px = next((px for px in (22, 20, 18, 16) if text_width(longest, px, "bold") <= wide - 12), HEAD)
    out = [line(f"M{MARGIN} {y + 4:.1f}H{WIDTH - MARGIN}", "grid")]
    most = 0
    for i, (figure, what) in enumerate(sheet.tiles):
        x = MARGIN + wide * i
        out.append(text(x, y + 36, figure, px=px, style="bold"))
        rows = shorten(what, int((wide - 12) / text_width("x")), 3)
        most = max(most, len(rows))
        out += [text(x, y + 56 + 16 * j, row, style="quiet") for j, row in enumerate(rows)]
    return "".join(out), 56 + 16 * most + 4


def _phases(sheet: Sheet, time: TimeAxis, y: float) -> tuple[str, float]:
    """The phases, above the frames. A name that does not fit is left out, but the last one is put beside its phase."""
    if not sheet.phases:
        return "", 0
    out = [line(f"M{MARGIN} {y + 4:.1f}H{WIDTH - MARGIN}", "grid")]
    for i, phase in enumerate(sheet.phases):
        x, right = time.x(phase.start_ms), time.x(phase.end_ms)
        shade = f'fill-opacity="{0.07 if i % 2 else 0.14}"'
        box = f'<rect x="{x:.1f}" y="{y + 16:.1f}" width="{right - x:.1f}" height="22" class="shade" {shade}>'
        out.append(f"{box}<title>{escape(phase.name)}</title></rect>")
        if text_width(phase.name) + 8 <= right - x:
            out.append(text((x + right) / 2, y + 31, phase.name, anchor="middle"))
        elif i == len(sheet.phases) - 1:
            out.append(text(right + 10, y + 31, phase.name))
    return "".join(out), 40


def _foot(sheet: Sheet, _: TimeAxis, y: float) -> tuple[str, float]:
    rows = shorten(sheet.source, int((WIDTH - 2 * MARGIN) / text_width("x", SMALL)), 3)
    return "".join(
        text(MARGIN, y + 20 + 15 * i, row, px=SMALL, style="quiet") for i, row in enumerate(rows)
    ), 24 + 15 * len(rows)
