"""Commands for logs: `log show`, `log verify`, `log seal`."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from mergelake.api.cli.common import Form, Options, TableName, Url, open_database, output_as, storage_options
from mergelake.api.cli.output import Output
from mergelake.core.base.errors import error

if TYPE_CHECKING:
    from mergelake.api.python.table import Table

_FOLLOW_S = 1.0
"""Seconds after which `history --follow` checks again whether it should stop."""

log = typer.Typer(help="Look into the logs of tables, verify and move them.", no_args_is_help=True)


def follow_history(table: Table, output: Output, stop: threading.Event) -> None:
    """Print commits as they arrive, one on each line, oldest first, until `stop` is set."""
    seen = table.version
    while not stop.is_set():
        seen, before = table.handle.log.wait(_FOLLOW_S).version, seen
        if seen > before:
            for row in reversed(table.versions(before + 1, seen).to_pylist()):
                row["time"] = str(row["time"])
                output.text(json.dumps(row) if output.form == "json" else "  ".join(map(str, row.values())))


@log.command()
def show(
    url: Url,
    table: TableName,
    version: Annotated[
        int | None, typer.Argument(help="Which entry (default: the newest)", min=1, show_default=False)
    ] = None,
    first: Annotated[int | None, typer.Option("--from", help="Several, from here", min=1, show_default=False)] = None,
    last: Annotated[int | None, typer.Option("--to", help="Several, up to here", min=1, show_default=False)] = None,
    form: Form = "json",
    options: Options = None,
) -> None:
    """Print entries of a table's log: one, or a list of several, as JSON or in words."""
    output, opened = output_as(form), open_database(url, options).table(table)
    state = opened.handle.log.state
    if version is not None and (first or last):
        raise error("BAD_ARGUMENTS", "Both a version and a range are given", "Give VERSION, or --from and --to")
    one = version or (None if first or last else state.version)
    start, end = (one, one) if one else (first or max(state.history, 1), last or state.version)
    if not start <= end <= state.version:
        message = f"The log has no version {one}" if one else f"The log has no versions from {start} to {end}"
        raise error("BAD_ARGUMENTS", message, f"The newest is {state.version}")
    if form == "table":
        output.rows(opened.versions(start, end))
        return
    from mergelake.log.storage.encoding import encode_entry

    entries = [json.loads(encode_entry(entry)) for entry in opened.handle.log.entries(start, end)]
    output.json(entries[0] if one else entries)


@log.command()
def verify(url: Url, table: TableName, form: Form = "table", options: Options = None) -> None:
    """Read and replay a table's whole log, and compare it with its checkpoints; code 1 if something is wrong."""
    output, warehouse = output_as(form), open_database(url, options).warehouse
    with output.counting("Reading the log") as counted:
        report = warehouse.verify_log(table, counted)
    problems = [{"place": p.place, "problem": p.what, "way_out": p.way_out} for p in report.problems]
    if form == "json":
        counts = {"first": report.first, "last": report.last, "entries": report.entries}
        output.json({**counts, "checkpoints": report.checkpoints, "problems": problems})
    else:
        if problems:
            output.rows(problems)
        summary = f"{report.entries} entries, versions {report.first} to {report.last}"
        summary += f", {len(report.checkpoints)} checkpoints"
        output.verdict(f"{summary}: {len(problems)} problems" if problems else f"{summary}: nothing wrong")
    if any(problem.kind != "hint" for problem in report.problems):
        raise typer.Exit(1)


@log.command()
def move(
    url: Url,
    table: Annotated[str, typer.Argument(help="table, or database.table (default: all)", show_default=False)] = "",
    form: Form = "table",
    options: Options = None,
) -> None:
    """Hand logs over to the ZooKeeper of the option log=zookeeper://…"""
    from mergelake.api.python.seal import move_logs

    moved = move_logs(open_database(url, options).warehouse, table=table)
    output_as(form).rows([{"table": name, "is_in": place} for name, place in moved.items()])


@log.command()
def seal(
    url: Url,
    table: Annotated[str, typer.Argument(help="table, or database.table (default: all)", show_default=False)] = "",
    force: Annotated[
        bool, typer.Option("--force", help="ZooKeeper is gone for ever; what it alone held is lost")
    ] = False,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Take logs out of ZooKeeper: copy what is missing, and make the bucket their sequencer."""
    from mergelake.api.python.seal import seal_logs

    output = output_as(form)
    rows = []
    for name, done in seal_logs(url, storage_options(options), table=table, force=force).items():
        if not done.sequencer:
            outcome = "was in the bucket already"
        elif done.ended is None:
            outcome = f"taken over by force: what ZooKeeper held from version {done.version} on is lost"
        else:
            outcome = f"all versions up to {done.ended} were copied"
        rows.append({"table": name, "was_in": done.sequencer, "version": done.version, "result": outcome})
    output.rows(rows)
