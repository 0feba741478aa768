"""`mergelake`: the command line. Every command calls what a Python user would call.

Results go to stdout, everything else to stderr; an error exits with code 1 and prints a hint.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mergelake.api.cli import (
    cost as cost_command,
    fsck,
    log as log_commands,
    parts as part_commands,
    retention,
    work as work_commands,
)
from mergelake.api.cli.common import Form, Options, TableName, Url, open_database, output_as
from mergelake.api.cli.log import follow_history
from mergelake.api.cli.log_format import log_as
from mergelake.api.cli.output import FORMATS, Output, format_of, print_result, size
from mergelake.api.cli.running import run_watched, when_up
from mergelake.api.cli.signals import stop_on_signals
from mergelake.api.cli.top import top
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import MergelakeError, error

if TYPE_CHECKING:
    from mergelake.jobs.node.runner import Node

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Threshold of Python's garbage collector: what is loaded at the start stays, and scanning it repeatedly took 50 ms."""
_GRACE_S = 2.0
"""Seconds that a node waits for running merges when it is stopped."""

commands = typer.Typer(
    name="mergelake",
    help="MergeTree without the server: ClickHouse's tables in a bucket.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
part_commands.register(commands)
retention.register(commands)
cost_command.register(commands)
fsck.register(commands)
work_commands.register(commands)
commands.add_typer(log_commands.log, name="log")
commands.command()(top)


def app(arguments: list[str] | None = None) -> None:
    """Run the command line; exits with 0, 1 (an error of ours) or 2 (wrong usage)."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no linear algebra here: NumPy's threads took 30 ms
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # On SIGTERM a command exits normally, so that its temporary files are deleted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        commands(args=arguments)
    except MergelakeError as failure:
        Output().error(failure)
        sys.exit(1)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(130)


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"mergelake {version('mergelake')}")
        raise typer.Exit


@commands.callback()
def _common(
    _: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@commands.command()
def sql(
    file: Annotated[Path | None, typer.Argument(help="Script to run; - reads stdin", show_default=False)] = None,
    directory: Annotated[str, typer.Option("--directory", "--url", "-d", help="Warehouse: a directory or URL")] = ".",
    query: Annotated[str | None, typer.Option("--query", "-q", help="Statements to run", show_default=False)] = None,
    format_name: Annotated[
        str, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)} or any of ClickHouse's", show_default=False)
    ] = "",
    options: Options = None,
    spark: Annotated[
        str | None, typer.Option(help="Spark master for large SELECTs and merges", show_default=False)
    ] = None,
    timing: Annotated[bool, typer.Option("--time", "-t", help="Print rows and seconds, to stderr")] = False,
) -> None:
    """Run SQL: statements, a script, or a shell."""
    from mergelake.api.cli.stdin_data import with_data
    from mergelake.api.sql.script import split_statements

    output, clock = Output(), SystemClock()
    text = query
    if file is not None:
        if query is not None:
            raise error("BAD_ARGUMENTS", "Both a script and --query are given", "Give one of them")
        text = sys.stdin.read() if str(file) == "-" else _script(file)
    elif query is None and not sys.stdin.isatty():
        text = sys.stdin.read()
    db = open_database(directory, options, spark, new=True)
    if not db.warehouse.exists:
        output.note(f"There is no warehouse at {db.warehouse.url} yet: the first CREATE makes one.")
    if text is None:
        from mergelake.api.cli.shell import Shell  # imported here, as only the shell needs prompt_toolkit

        Shell(db, output, clock, format_name or "pretty").run()
        return
    chosen = format_name or ("pretty" if output.interactive else "tsv")
    with nullcontext(text) if query is None else with_data(text, sys.stdin, db.cancel) as script:
        for start, end in split_statements(script):
            result = run_watched(db, script[start:end], output, clock, format_of(chosen))
            print_result(output, result, footer=timing or (output.interactive and not format_name))


def _script(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise error("BAD_ARGUMENTS", f"Cannot read the script {path}: {failure}") from None


@commands.command()
def tables(url: Url, form: Form = "table", options: Options = None) -> None:
    """List the tables of a warehouse."""
    db = open_database(url, options)
    query = (
        "SELECT database, name, engine, total_rows, total_bytes, parts, retained_bytes FROM system.tables "
        "ORDER BY database, name"
    )
    output_as(form).rows(db.sql(query).arrow(), empty="There are no tables.")


@commands.command()
def parts(
    url: Url,
    table: TableName,
    form: Form = "table",
    options: Options = None,
    retired: Annotated[bool, typer.Option("--all", help="Replaced parts too")] = False,
) -> None:
    """List the parts of a table."""
    opened = open_database(url, options).table(table)
    listed = opened.parts(active_only=not retired)
    shown = [
        "name",
        "active",
        "rows",
        "marks",
        "bytes_on_disk",
        "part_type",
        "part_storage_type",
        "level",
        "modification_time",
    ]
    output = output_as(form)
    output.rows(listed if form == "json" else listed.select(shown), empty="The table has no parts.")
    if form != "json":
        output.verdict(
            f"Beside them {size(opened.retained_bytes)} of replaced and dropped parts are kept for older versions."
        )


@commands.command()
def merges(url: Url, table: TableName, form: Form = "table", options: Options = None) -> None:
    """List what nodes mean to merge: the volatile parts of a table, and who owns them."""
    volatile_parts = open_database(url, options).table(table).merges()
    output_as(form).rows(volatile_parts, empty="The table has no volatile parts.")


@commands.command()
def history(
    url: Url,
    table: TableName,
    form: Form = "table",
    options: Options = None,
    limit: Annotated[int, typer.Option(help="How many commits", min=1)] = 20,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new ones, until Ctrl-C")] = False,
) -> None:
    """List a table's commits, newest first."""
    output, opened = output_as(form), open_database(url, options).table(table)
    output.rows(opened.history(limit))
    if form == "table" and output.messages.is_terminal:
        output.note(f"SELECT … FROM {opened.name} AS OF VERSION {opened.version} reads one of them.")
    if follow:
        with stop_on_signals() as stop:
            follow_history(opened, output, stop)


@commands.command()
def explain(
    url: Url,
    query: Annotated[str, typer.Argument(help="A SELECT", show_default=False)],
    form: Form = "table",
    options: Options = None,
) -> None:
    """Show how a SELECT would run: executor, parts and granules that each index drops, ClickHouse's plan."""
    output = output_as(form)
    lines = [row[0] for row in open_database(url, options).sql(f"EXPLAIN {query}").rows()]
    if form == "json":
        output.json(lines)
    else:
        output.text("\n".join(lines))


@commands.command()
def optimize(
    url: Url,
    table: TableName,
    final: Annotated[bool, typer.Option("--final", help="One part for each partition")] = False,
    partition_id: Annotated[str | None, typer.Option(help="Only this partition", show_default=False)] = None,
    form: Form = "table",
    options: Options = None,
    spark: Annotated[str | None, typer.Option(help="Spark master that runs the merges", show_default=False)] = None,
) -> None:
    """Merge parts now."""
    opened = open_database(url, options, spark).table(table)
    before = opened.handle.log.state.part_count
    merges = opened.optimize(partition_id=partition_id, final=final)
    output_as(form).facts({"merges": merges, "parts before": before, "parts after": opened.handle.log.state.part_count})


@commands.command()
def check(url: Url, table: TableName, form: Form = "table", options: Options = None) -> None:
    """Verify every byte of a table's parts; code 1 if something is wrong."""
    checks = open_database(url, options).table(table).check()
    output_as(form).rows(checks, empty="The table has no parts.")
    bad = [row for row in checks.to_pylist() if not row.get("is_passed", True)]
    if bad:
        raise typer.Exit(1)


@commands.command()
def publish(
    url: Url,
    table: TableName,
    follow: Annotated[bool, typer.Option("--follow", help="Publish every commit, until Ctrl-C")] = False,
    poll: Annotated[float, typer.Option(help="Seconds between looks, with --follow", min=0.05)] = 1.0,
    redefine: Annotated[
        bool, typer.Option("--redefine", help="After DROP TABLE on the servers: columns may have changed in any way")
    ] = False,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Let a stock ClickHouse see a table's newest version.

    Pending mutations are applied first. With --follow they are left to a node with the role mutate: until it has
    applied them, ClickHouse sees the version before.
    """
    from mergelake.jobs.publish.publish import PublishReport, follow as follow_table

    output = output_as(form)
    opened = open_database(url, options).table(table)

    def show(report: PublishReport) -> None:
        facts: dict[str, Any] = {
            "version": report.version,
            "added": list(report.added),
            "removed": list(report.removed),
            **({"not applied yet": list(report.pending)} if report.pending else {}),
            **({"not rewritten yet": list(report.outdated)} if report.outdated else {}),
            **({"not shown, as servers would read it wrongly": report.redefined} if report.redefined else {}),
        }
        output.facts({**facts, "empty parts": list(report.dropped), "waiting": report.waiting})

    if redefine or not follow:
        show(opened.publish(redefine=redefine))
    if follow:
        with stop_on_signals() as stop:
            output.note(f"Publishing {opened.name} at {opened.location}. Ctrl-C ends.")
            follow_table(opened.handle, poll, stop.is_set, on_report=show)
    else:
        output.note(f"ClickHouse reads it from {opened.location}")


def _bytes(text: str) -> int:
    from mergelake.core.model.settings import parse_size

    try:
        return parse_size(text)
    except ValueError:
        hint = "Write it plainly, or with k, M, G, T (thousands) or Ki, Mi, Gi, Ti (of 1024)"
        raise error("BAD_ARGUMENTS", f"'{text}' is no number of bytes", hint) from None


@commands.command()
def node(
    url: Url,
    name: Annotated[str, typer.Option(help="Name of this node")] = "node",
    only: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table; may be repeated", show_default=False)
    ] = None,
    poll: Annotated[float, typer.Option(help="Seconds between looks", min=0.05)] = 1.0,
    spark: Annotated[str | None, typer.Option(help="Spark master that runs the merges", show_default=False)] = None,
    local: Annotated[
        str | None, typer.Option(help="Directory on this machine's disk for volatile parts", show_default=False)
    ] = None,
    roles: Annotated[str, typer.Option(help="What it does, of these")] = "merge,mutate,upload,gc",
    grace: Annotated[float, typer.Option(help="Seconds to finish and upload in, when it is stopped", min=0)] = _GRACE_S,
    once: Annotated[bool, typer.Option("--once", help="Merge what is due, then leave")] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Take commits of others here; port 0: any", show_default=False),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="What those dial, if it is something else", show_default=False),
    ] = None,
    slots: Annotated[int, typer.Option(help="How many merges run at once", min=1)] = 2,
    max_upload_mbps: Annotated[
        float | None,
        typer.Option(help="Megabytes a second of uploads of volatile parts", show_default=False),
    ] = None,
    max_disk_bytes: Annotated[
        str | None, typer.Option(help="Bytes below --local at most, such as 100Gi", show_default=False)
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics, /status, /healthz; port 0: any", show_default=False),
    ] = None,
    log_format: Annotated[str, typer.Option(help="text, or json: an object a line, to stderr")] = "text",
    form: Form = "table",
    options: Options = None,
) -> None:
    """Keep tables merged, and what nobody needs collected, until SIGTERM or Ctrl-C."""
    from mergelake.jobs.node.memory import bound_memory
    from mergelake.jobs.node.status_server import StatusServer

    output = output_as(form)
    if once and listen:
        raise error("BAD_ARGUMENTS", "Both --once and --listen are given", "Who listens stays: give one of them")
    log_as(log_format, name)
    bound_memory()
    upload_bytes_per_s = None if max_upload_mbps is None else max_upload_mbps * 1e6
    disk_bytes = None if max_disk_bytes is None else _bytes(max_disk_bytes)

    def begin() -> tuple[Node, str]:
        warehouse = open_database(url, options, spark, new=True).warehouse
        new_node = warehouse.node(
            name, only=only or (), poll_s=poll, local=local, roles=roles.split(","), listen=listen, advertise=advertise,
            slots=slots, max_upload_bytes_per_s=upload_bytes_per_s, max_disk_bytes=disk_bytes,
        )  # fmt: skip
        where = f", and takes commits at {new_node.address}" if new_node.address else ""
        tables = len(only or warehouse.tables())
        looks = f"Node {name} looks after {tables} table{'' if tables == 1 else 's'} of {warehouse.url}{where}."
        return new_node, f"{looks} Ctrl-C ends."

    with stop_on_signals() as stop:
        begun = when_up(begin, stop, output)
        if begun is None:
            return
        worker, greeting = begun
        output.note(greeting)
        with StatusServer(metrics, worker.report) if metrics else nullcontext() as served:
            if served is not None:
                output.note(f"Metrics are at http://{served.address}/metrics.")
            if once:
                while worker.step() or not worker.idle():
                    stop.wait(0.05)
                worker.drain()
            else:
                worker.run(stop, grace_s=grace)
    status = worker.status
    output.facts(
        {
            "merges done": status.merges_done,
            "merges lost": status.merges_lost,
            "merges abandoned": status.merges_abandoned,
            "merges failed": status.merges_failed,
            "merges without room on the disk": status.merges_past_disk,
            "rows merged": status.rows_merged,
            "bytes uploaded": status.bytes_uploaded,
            "objects collected": status.objects_collected,
            "bytes kept for older versions": worker.retained_bytes,
            "last error": status.last_error or "none",
        }
    )


if __name__ == "__main__":
    app()
