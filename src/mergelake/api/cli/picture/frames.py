"""The frames over time: active parts, bytes written, merges by level, parts by block number. Pure.

Each function takes the sheet, the time axis and the frame's top, and returns its SVG and its height. Dashes in
`PURPLE` mean "on a node's disk only".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mergelake.api.cli.picture.drawing import (
    BLUE,
    BYTES,
    HEAD,
    PURPLE,
    SMALL,
    SOLID,
    VERMILLION,
    Axis,
    apart,
    bar,
    coloured,
    lanes,
    line,
    number,
    plural,
    size,
    steps,
    text,
    text_width,
    ticks,
    title,
    unit_of,
)
from mergelake.api.cli.picture.timeline import MergeFate, MergeLife, active_parts, running
from mergelake.api.cli.picture.values import LEFT, MARGIN, RIGHT, Sheet, TimeAxis, amplification

DASHES = "4 3"
_BAR, _LANE, _CAP = 15, 21, 5


def active(sheet: Sheet, time: TimeAxis, y: float) -> tuple[str, float]:
    """The number of active parts over time."""
    counts = active_parts(sheet.lives)
    if not counts:
        return text(MARGIN, y + 30, "Nothing has been inserted yet.", px=HEAD), 48
    if time.moment:
        sentence = f"{plural(counts[-1][1], 'part')}, {size(amplification(sheet.lives)[1])}, inserted in one commit."
        return text(MARGIN, y + 30, sentence, px=HEAD), 48
    top, bottom = y + 46, y + 46 + 110
    most = max(count for _, count in counts)
    axis = Axis.to_tick(most, bottom, top, 4, least=1)
    path = steps([(time.x(at), axis.at(count)) for at, count in counts], (time.x(counts[0][0]), bottom), RIGHT)
    notes = [(axis.at(counts[-1][1]), f"{plural(counts[-1][1], 'part')} at the end", "", "")]
    if most > counts[-1][1]:
        notes.append((axis.at(most), f"{most:,} at the most", "", ""))
    return (
        title(MARGIN, y, "Active parts: what a reader of the table opens")
        + _frame(time, axis, [(value, plural(round(value), "part")) for value in axis.ticks])
        + f'<path d="{path}V{bottom:.1f}Z" class="shade" fill-opacity="0.1"/>'
        + line(path, "line", ' stroke-width="2"')
        + _notes(notes, top, bottom)
    ), 46 + 110 + 30


def bytes_written(sheet: Sheet, time: TimeAxis, y: float) -> tuple[str, float]:
    """Running sums of the bytes inserted, of all bytes written, and of those merged on a node's disk."""
    inserted, written = amplification(sheet.lives)
    if not inserted or time.moment:
        return "", 0
    kept = [merge for merge in sheet.merges if merge.volatile and merge.outcome is not MergeFate.GIVEN_UP]
    curves = [
        ("written to the bucket", VERMILLION, "", running((each.born_ms, each.bytes) for each in sheet.lives)),
        ("inserted", BLUE, "9 4", running((each.born_ms, each.bytes) for each in sheet.lives if not each.merged)),
    ]
    if kept:
        on_disk = running((each.began_ms, each.bytes) for each in kept)
        curves.append(("merged on the node's disk", PURPLE, DASHES, on_disk))
    most = max(points[-1][1] for *_, points in curves)
    factor, unit = unit_of(most, BYTES)
    top, bottom = y + 46, y + 46 + 150
    amplified = f"{written / inserted:.2f}"
    axis = Axis.to_tick(most / factor, bottom, top, 5)
    out = [
        title(MARGIN, y, f"Bytes written to the bucket: {amplified} × what was inserted (write amplification)"),
        _frame(time, axis, [(value, f"{number(value)} {unit}") for value in axis.ticks]),
    ]
    notes = []
    for name, colour, dashes, points in curves:
        place = [(time.x(at), axis.at(total / factor)) for at, total in points]
        out.append(coloured(steps(place, (place[0][0], bottom), RIGHT), colour, dashes))
        notes.append((place[-1][1], f"{size(points[-1][1])} {name}", colour, dashes))
    return "".join(out) + _notes(notes, top, bottom), 46 + 150 + 30


def merges(sheet: Sheet, time: TimeAxis, y: float) -> tuple[str, float]:
    """A bar for each merge, from its beginning until its bytes have their final place, in lanes for each level."""
    if not sheet.lives:
        return "", 0
    if not sheet.merges:
        return text(MARGIN, y + 24, "Merges: none was due.", px=HEAD, style="bold"), 48
    stored = sum(merge.outcome is MergeFate.BUCKET for merge in sheet.merges)
    words = f"Merges by level: {len(sheet.merges):,}, of which {stored:,} reached the bucket"
    key = [
        (PURPLE, 0.2, DASHES, "volatile: decided in the log, made on the node's disk"),
        (VERMILLION, 1.0, "", "its bytes are in the bucket; without this mark a larger merge took them on the disk"),
    ]
    if not any(merge.volatile for merge in sheet.merges):
        key = [(VERMILLION, 0.2, SOLID, "from its beginning until it was in the bucket")]
    out = [title(MARGIN, y, words), _key(key, y + 48)]
    at = top = y + 66
    for level in sorted({merge.level for merge in sheet.merges}):
        chosen = [merge for merge in sheet.merges if merge.level == level]
        spans = [(time.x(merge.began_ms), time.x(merge.ended_ms), _label(merge)) for merge in chosen]
        ends = [max(right + _CAP, _label_at(x, right, label) + text_width(label, SMALL)) for x, right, label in spans]
        placed = lanes([(x, end) for (x, _, _), end in zip(spans, ends, strict=True)])
        out.append(text(LEFT - 10, at + 14, f"level {level}", px=SMALL, style="quiet", anchor="end"))
        for merge, (x, right, label), lane in zip(chosen, spans, placed, strict=True):
            out.append(_merge_bar(merge, (x, at + 3 + _LANE * lane, right - x, _BAR), label))
        at += _LANE * (max(placed) + 1) + 6
        out.append(line(f"M{LEFT} {at - 1.5:.1f}H{RIGHT}", "grid"))
    return _grid(time, top, at) + "".join(out) + _seconds(time, at), at - y + 30


def _merge_bar(merge: MergeLife, box: tuple[float, float, float, float], label: str) -> str:
    x, y, width, height = box
    tip = f"{_what(merge)}, blocks {merge.min_block} to {merge.max_block}: {merge.outcome.value}"
    colour, dashes = (PURPLE, DASHES) if merge.volatile else (VERMILLION, SOLID)
    drawn = bar(box, colour, tint=0.2, dashes=dashes, tip=tip)
    if merge.volatile and merge.outcome is MergeFate.BUCKET:
        drawn += bar((x + width, y, _CAP, height), VERMILLION, tip=tip)
    return drawn + text(_label_at(x, x + width, label), y + 11.5, label, px=SMALL)


def _label_at(x: float, right: float, label: str) -> float:
    """The x of a bar's label: within the bar if it fits, else right of it."""
    return x + 5 if text_width(label, SMALL) + 8 <= right - x else right + _CAP + 5


def _what(merge: MergeLife) -> str:
    return f"{plural(merge.sources, 'part')}, {plural(merge.rows, 'row')}, {size(merge.bytes)}"


def _label(merge: MergeLife) -> str:
    label = f"{plural(merge.sources, 'part')}, {size(merge.bytes)}"
    return f"{label}, given up" if merge.outcome is MergeFate.GIVEN_UP else label


def blocks(sheet: Sheet, time: TimeAxis, y: float) -> tuple[str, float]:
    """A bar for each part, as tall as the block numbers that it covers; merges on a disk lie over their sources."""
    if not any(life.died_ms or life.merged for life in sheet.lives) and not sheet.merges:
        return "", 0
    blocks = max(life.max_block for life in sheet.lives)
    top, height = y + 66, min(300.0, max(100.0, blocks * 4.5))
    numbers = sorted({max(tick, 1) for tick in ticks(blocks, 6, least=1)})
    axis = Axis(blocks + 1, top, top + height, tuple(numbers))
    row = axis.at(1) - axis.at(0)
    key = [(BLUE, 0.6, "", "inserted"), (VERMILLION, 0.3, SOLID, "merged")]
    if any(merge.volatile for merge in sheet.merges):
        key.append(
            (PURPLE, 0.25, DASHES, "volatile: merged on the node's disk, and read from the inserted parts below")
        )
    out = [
        title(MARGIN, y, "Parts in the bucket, from their commit until a merge takes their place"),
        _key(key, y + 48),
        _grid(time, top, top + height),
    ]
    out += [
        text(LEFT - 10, axis.at(tick) + 4, f"block {tick:.0f}", px=SMALL, style="quiet", anchor="end")
        for tick in axis.ticks
    ]
    gap = 0.6 if row > 2 else 0
    for life in sorted(sheet.lives, key=lambda life: life.level):
        x, right = time.x(life.born_ms), time.x(life.died_ms)
        box = (x, axis.at(life.min_block - 0.5), right - x, row * (life.max_block - life.min_block + 1) - gap)
        tip = f"{life.name}: level {life.level}, {plural(life.rows, 'row')}, {size(life.bytes)}"
        colour, tint, edge = (VERMILLION, 0.3, SOLID) if life.merged else (BLUE, 0.6, "")
        out.append(bar(box, colour, tint=tint, dashes=edge, tip=tip))
        label = f"level {life.level}, {plural(life.rows, 'row')}"
        if life.merged and box[2] > text_width(label, SMALL) + 8 and box[3] >= 16:
            out.append(text(x + 5, box[1] + 12, label, px=SMALL))
    for merge in sheet.merges:
        if merge.volatile:
            x = time.x(merge.began_ms)
            tall = row * (merge.max_block - merge.min_block + 1) - gap
            at = axis.at(merge.min_block - 0.5)
            out.append(
                bar((x, at, time.x(merge.ended_ms) - x, tall), PURPLE, tint=0.25, dashes=DASHES, tip=_what(merge))
            )
    return "".join(out) + _seconds(time, top + height), 66 + height + 30


def _frame(time: TimeAxis, axis: Axis, labels: Iterable[tuple[float, str]]) -> str:
    """Grid and axes of a frame over time; `axis` is the vertical one."""
    out = [_grid(time, axis.last, axis.first)]
    for value, label in labels:
        out.append(line(f"M{LEFT} {axis.at(value):.1f}H{RIGHT}", "grid"))
        out.append(text(LEFT - 10, axis.at(value) + 4, label, px=SMALL, style="quiet", anchor="end"))
    return "".join(out) + _seconds(time, axis.first)


def _grid(time: TimeAxis, top: float, bottom: float) -> str:
    return "".join(line(f"M{time.axis.at(tick):.1f} {top:.1f}V{bottom:.1f}", "grid") for tick in time.axis.ticks)


def _seconds(time: TimeAxis, y: float) -> str:
    """The time axis below a frame."""
    out = [line(f"M{LEFT} {y:.1f}H{RIGHT}")]
    for tick in time.axis.ticks:
        label = f"{number(tick)} {time.unit}"
        out.append(text(time.axis.at(tick), y + 16, label, px=SMALL, style="quiet", anchor="middle"))
    return "".join(out)


def _notes(notes: Sequence[tuple[float, str, str, str]], top: float, bottom: float) -> str:
    """Words right of a frame, each joined by a line to its height on the edge: (height, words, colour, dashes)."""
    places = apart([note[0] for note in notes], 16, top, bottom)
    out = []
    for (y, words, colour, dashes), at in zip(notes, places, strict=True):
        path = f"M{RIGHT} {y:.1f}L{RIGHT + 22} {at:.1f}"
        out.append(coloured(path, colour, dashes) if colour else line(path))
        out.append(text(RIGHT + 27, at + 4, words))
    return "".join(out)


def _key(entries: Sequence[tuple[str, float, str, str]], y: float) -> str:
    """What colours and dashes mean: (colour, tint, dashes, words), side by side."""
    out, x = [], float(MARGIN)
    for colour, tint, dashes, words in entries:
        out.append(bar((x, y - 10, 18, 11), colour, tint=tint, dashes=dashes))
        out.append(text(x + 24, y, words, style="quiet"))
        x += 24 + text_width(words) + 20
    return "".join(out)
