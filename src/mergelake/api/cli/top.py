"""`mergelake top`: nodes, merges, partitions and tables of a warehouse, live or as one frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from mergelake.api.cli.common import Options, Url, open_database, output_as
from mergelake.api.cli.output import size
from mergelake.api.cli.signals import stop_on_signals
from mergelake.core.base.errors import error

if TYPE_CHECKING:
    from mergelake.api.python.overview import NodeSeen, NodeWork, Overview
    from mergelake.jobs.node.report import BackOff, TableReport

_BAR = 16
_STATES = {"live": "green", "building": "cyan", "ready": "green", "uploading": "magenta", "expired": "red"}
_ROWS_MAX = 20
"""Rows of a section where there is no terminal that limits them."""


def top(
    url: Url,
    table: Annotated[str | None, typer.Argument(help="Only this table", show_default=False)] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A node's /status (node --metrics); may be repeated", show_default=False),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between frames", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and leave")] = False,
    form: Annotated[str, typer.Option("--format", "--output", help="table, or json: one frame")] = "table",
    options: Options = None,
) -> None:
    """Watch nodes and merges, until Ctrl-C.

    What is committed comes from the logs. How far merges are only their nodes know: those with --listen are found by
    themselves, others are named with --node.
    """
    from mergelake.api.python.overview import observe

    output = output_as(form)
    warehouse = open_database(url, options).warehouse
    opened = warehouse.table(table) if table is not None else None

    def look() -> Overview:
        handles = warehouse.handles() if opened is None else {opened.name: opened.handle}
        return observe(warehouse, handles, node or ())

    if form == "json":
        output.json(msgspec.to_builtins(look()))
        return
    if once:
        output.console.print(frame(look(), None, _ROWS_MAX))
        return
    if not output.interactive:
        raise error("BAD_ARGUMENTS", "There is no terminal to show frames on", "Give --once")
    before: Overview | None = None
    with stop_on_signals() as stop, Live(console=output.console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            now = look()
            live.update(frame(now, before, rows_for(output.console)), refresh=True)
            before = now
            stop.wait(interval)


def rows_for(console: Console) -> int:
    """Rows of each section, so that all of them are on the screen."""
    return max(3, (console.height - 22) // 4)


def frame(now: Overview, before: Overview | None, rows: int) -> RenderableType:
    """One picture; with the one `before`, what nodes do each second. `rows` of each section at most."""
    sections: list[RenderableType] = [_head(now)]
    nobody = Text("No node has a lease or was named with --node.", style="dim")
    sections += _section("Nodes", _nodes(now, before, rows) if now.nodes else nobody)
    if now.running or now.volatile:
        sections += _section("Merges", _merges(now, rows))
    sections += _section("Tables", _tables(now.tables, rows))
    sections += _section("Partitions with most parts", _partitions(now, rows))
    if now.back_offs:
        sections += _section("Left alone after failures", _back_offs(now.back_offs, now.now_ms, rows))
    problems = list(_problems(now))
    return Group(*sections, *([Text(), *problems] if problems else []))


def _section(title: str, content: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), content]


def _head(now: Overview) -> Text:
    live = sum(seen.state != "expired" for seen in now.nodes)
    parts, stored = sum(table.parts for table in now.tables), sum(table.bytes for table in now.tables)
    facts = f"{_plural(live, 'node')} · {_plural(len(now.tables), 'table')} · {_plural(parts, 'part')} · {size(stored)}"
    at = datetime.fromtimestamp(now.now_ms / 1000).astimezone().strftime("%H:%M:%S")
    return Text.assemble(("mergelake top", "bold"), "  ", (now.url, "cyan"), "  ", facts, "  ", (at, "dim"))


def _nodes(now: Overview, before: Overview | None, rows: int) -> Grid:
    old = {seen.node: seen for seen in before.nodes} if before is not None else {}
    grid = _grid("node", "state", "slots", "merged", "rows/s", "uploaded", "PUT", "GET", "sent", "memory", "disk")
    for seen in now.nodes[:rows]:
        report = seen.report
        if report is None:
            unknown = ["–"] * 8
            grid.add_row(seen.node, _state_of(seen), *unknown, "yes" if seen.disk else "no")
            continue
        counters, busy = report.counters, sum(work.kind != "upload" for work in report.running)
        grid.add_row(
            seen.node,
            _state_of(seen),
            f"{busy} / {report.slots}",
            _count(counters.get("rows_merged", 0)),
            _rate(seen, old.get(seen.node)),
            size(counters.get("bytes_uploaded", 0)),
            str(report.requests.put),
            str(report.requests.get),
            size(report.requests.bytes_put),
            size(report.memory_bytes) if report.memory_bytes else "–",
            _disk(seen),
        )
    return _rest(grid, len(now.nodes), rows)


def _state_of(seen: NodeSeen) -> Text:
    if seen.report is not None and not seen.report.healthy:
        return Text("stuck", style="bold red")
    if seen.lease_left_ms is None or seen.state == "leaving":
        return Text(seen.state, style=_STATES.get(seen.state, "yellow"))
    left = _duration(abs(seen.lease_left_ms))
    text = f"{seen.state}, lease {left}" if seen.lease_left_ms > 0 else f"{seen.state}, lease ended {left} ago"
    return Text(text, style=_STATES.get(seen.state, ""))


def _rate(seen: NodeSeen, old: NodeSeen | None) -> str:
    if old is None or old.report is None or seen.report is None or seen.report.now_ms <= old.report.now_ms:
        return "–"
    seconds = (seen.report.now_ms - old.report.now_ms) / 1000
    done = [_rows_so_far(each) for each in (seen, old)]
    return _count(max(0, done[0] - done[1]) / seconds)


def _rows_so_far(seen: NodeSeen) -> int:
    report = seen.report
    assert report is not None
    running = sum(work.rows_done for work in report.running if work.kind != "upload")
    return report.counters.get("rows_merged", 0) + running


def _disk(seen: NodeSeen) -> str:
    report = seen.report
    if report is None or not report.disk:
        return "no"
    free = "" if report.disk_free_bytes is None else f" of {size(report.disk_parts_bytes + report.disk_free_bytes)}"
    return f"{size(report.disk_parts_bytes)}{free}"


def _merges(now: Overview, rows: int) -> Grid:
    grid = _grid("node", "table", "part", "kind", "state", "progress", "rows", "size", "parts", "for")
    shown = [_running(each, now.now_ms) for each in now.running]
    for part in sorted(now.volatile, key=lambda part: (part.state, part.since_ms)):
        state = Text(part.state, style=_STATES.get(part.state, ""))
        cells: list[str | Text] = [part.owner, part.table, part.part, "volatile", state, "", _count(part.rows)]
        shown.append([*cells, size(part.bytes), str(part.parts), _duration(now.now_ms - part.since_ms)])
    for row in shown[:rows]:
        grid.add_row(*row)
    return _rest(grid, len(shown), rows)


def _running(each: NodeWork, now_ms: int) -> list[str | Text]:
    work = each.work
    state = "uploading" if work.kind == "upload" else "building"
    known = work.rows_done > 0 or work.kind != "mutate"
    return [
        each.node,
        work.table,
        work.part,
        "volatile" if work.kind == "upload" else work.kind,
        Text(state, style=_STATES[state]),
        Text.assemble((_bar(work.share), _STATES[state]), f" {work.share:4.0%}") if known else Text("…"),
        _count(work.rows),
        size(work.bytes),
        str(work.parts),
        _duration(now_ms - work.started_ms),
    ]


def _tables(tables: Sequence[TableReport], rows: int) -> Grid:
    names = (
        "table",
        "parts",
        "partitions",
        "most parts",
        "rows",
        "size",
        "inserted",
        "merged",
        "amplification",
        "volatile",
    )
    grid = _grid(*names)
    for table in sorted(tables, key=lambda table: (-table.parts, table.table))[:rows]:
        target = table.write_amplification_target
        over = bool(target) and table.write_amplification > target * 1.03
        amplification = Text(f"{table.write_amplification:.2f}", style="red" if over else "green")
        if target:
            amplification.append(f" of {target:g}", style="dim")
        grid.add_row(
            table.table,
            str(table.parts),
            str(table.partitions),
            str(table.most_parts),
            _count(table.rows),
            size(table.bytes),
            size(table.bytes_inserted),
            size(table.bytes_merged),
            amplification,
            str(table.volatile),
        )
    return _rest(grid, len(tables), rows)


def _partitions(now: Overview, rows: int) -> Grid:
    grid = _grid("table", "partition", "parts", "", "rows", "size", "level")
    most = max((each.parts for each in now.partitions), default=1)
    for each in now.partitions[:rows]:
        bar = Text(_bar(each.parts / most), style="blue")
        cells = (_count(each.rows), size(each.bytes), str(each.level))
        grid.add_row(each.table, each.partition_id, str(each.parts), bar, *cells)
    return _rest(grid, sum(table.partitions for table in now.tables), rows)


def _back_offs(back_offs: Sequence[BackOff], now_ms: int, rows: int) -> Grid:
    grid = _grid("table", "partition", "blocks", "again in", "reason")
    for each in sorted(back_offs, key=lambda each: each.until_ms)[:rows]:
        left = _duration(max(0, each.until_ms - now_ms))
        grid.add_row(
            each.table, each.partition_id or "all", each.blocks or "all", left, Text(_line(each.reason), "red")
        )
    return _rest(grid, len(back_offs), rows)


def _problems(now: Overview) -> Iterable[Text]:
    for address, reason in sorted(now.silent.items()):
        yield Text(f"{address} does not answer: {_line(reason)}", style="yellow")
    for seen in now.nodes:
        if seen.report is not None and seen.report.last_error:
            yield Text(f"last error of {seen.node}: {_line(seen.report.last_error)}", style="red")


_LEFT = frozenset({"node", "table", "partition", "part", "kind", "state", "progress", "reason", "blocks", ""})


def _grid(*names: str) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False)
    for name in names:
        grid.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True, overflow="ellipsis")
    return grid


def _rest(grid: Grid, total: int, rows: int) -> Grid:
    if total > rows:
        grid.caption, grid.caption_justify, grid.caption_style = f"  and {total - rows} more", "left", "dim"
    return grid


def _bar(share: float) -> str:
    full = round(min(max(share, 0.0), 1.0) * _BAR)
    return "━" * full + "╌" * (_BAR - full)


def _count(number: float) -> str:
    """A number of things in few letters: 950, 12.3 k, 3.40 M."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g} {letter}"
    return f"{number:.0f}"


def _duration(milliseconds: float) -> str:
    seconds = max(0, milliseconds) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(text: str) -> str:
    return text.splitlines()[0] if text else ""
