"""Commands for the versions that are kept: `gc`, `tag`, `rollback`, `clone`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mergelake.api.cli.common import Form, Options, TableName, Url, open_database, output_as
from mergelake.api.cli.output import Output, size
from mergelake.core.base.errors import error

if TYPE_CHECKING:
    from mergelake.jobs.gc.collect import CollectReport, Gone

Version = Annotated[str | None, typer.Option("--version", help="A version, or the name of a tag", show_default=False)]
Timestamp = Annotated[
    str | None, typer.Option("--timestamp", help="A time, such as '2026-01-31 12:00:00'", show_default=False)
]


def register(commands: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (gc, tag, rollback, clone):
        commands.command()(command)


def gc(
    url: Url,
    table: Annotated[str | None, typer.Argument(help="Only this table", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would go; change nothing")] = False,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Delete objects that no kept version needs: one round, which notes some and deletes those noted before."""
    output = output_as(form)
    db = open_database(url, options)
    if table is not None:
        opened = db.table(table)
        rounds: Iterable[tuple[str, CollectReport]] = [(opened.name, opened.gc(dry_run=dry_run))]
    else:
        rounds = db.warehouse.gc(dry_run=dry_run)
    if form == "json":
        output.json([{"table": name, **asdict(report)} for name, report in rounds])
        return
    for name, report in rounds:
        _show(output, name, report, dry_run)


def _show(output: Output, name: str, report: CollectReport, dry_run: bool) -> None:
    rows = [(what, gone) for what, all_gone in _kinds(report, dry_run) for gone in all_gone]
    if rows:
        columns = {
            "table": [name] * len(rows),
            "what": [what for what, _ in rows],
            "directory": [gone.directory for _, gone in rows],
            "objects": [gone.objects for _, gone in rows],
            "size": [size(gone.bytes) for _, gone in rows],
            "why": [gone.why for _, gone in rows],
        }
        output.rows([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    words = [f"{what}: {_sum(gone)}" for what, gone in _kinds(report, dry_run) if gone]
    if report.waiting:
        words.append("what was noted before waits for its grace period")
    if report.entries:
        words.append(f"{report.entries} entries of the log deleted")
    if report.released:
        words.append(f"released by {len(report.released)} former clones")
    output.verdict(f"{name}: {'; '.join(words) or 'nothing to collect'}")


def _kinds(report: CollectReport, dry_run: bool) -> list[tuple[str, list[Gone]]]:
    if dry_run:
        return [("would be deleted", report.deleted), ("would be noted", report.noted)]
    return [("deleted", report.deleted), ("noted", report.noted)]


def _sum(gone: list[Gone]) -> str:
    return f"{sum(each.objects for each in gone)} objects, {size(sum(each.bytes for each in gone))}"


def tag(
    url: Url,
    table: TableName,
    name: Annotated[str | None, typer.Argument(help="Name of the tag; without it all are listed")] = None,
    version: Annotated[int | None, typer.Option(help="Version (default: the newest)", show_default=False)] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Take the tag away")] = False,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Keep a version under a name, list the names, or take one away."""
    output = output_as(form)
    opened = open_database(url, options).table(table)
    if name is None:
        if delete or version is not None:
            raise error("BAD_ARGUMENTS", "There is no name of a tag", "mergelake tag URL TABLE NAME")
        tags = opened.tags()
        listed = [{"tag": each, "version": number} for each, number in tags.items()]
        output.rows(listed, empty="There are no tags.")
    elif delete:
        opened.untag(name)
        output.note(f"{name} is gone; its version is kept as long as any other")
    else:
        output.facts({"tag": name, "version": opened.tag(name, version)})


def rollback(
    url: Url,
    table: TableName,
    version: Version = None,
    timestamp: Timestamp = None,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Make a table what it was at a version, a tag or a time."""
    output = output_as(form)
    if version is None and timestamp is None:
        raise error("BAD_ARGUMENTS", "Nothing says which version is meant", "Give --version or --timestamp")
    opened = open_database(url, options).table(table)
    before = opened.snapshot().rows
    new_version = opened.rollback(_number(version), timestamp=timestamp)
    output.facts({"version": new_version, "rows before": before, "rows after": opened.snapshot().rows})


def clone(
    url: Url,
    source: TableName,
    name: Annotated[str, typer.Argument(help="Name of the new table", show_default=False)],
    version: Version = None,
    timestamp: Timestamp = None,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Make a table with the rows of another, without copying any."""
    output = output_as(form)
    warehouse = open_database(url, options).warehouse
    cloned = warehouse.clone_table(source, name, version=_number(version), timestamp=timestamp)
    output.facts({"table": cloned.name, "rows": cloned.snapshot().rows, "parts": cloned.handle.log.state.part_count})


def _number(version: str | None) -> int | str | None:
    return int(version) if version is not None and version.isdecimal() else version
