"""The command `fsck`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mergelake.api.cli.common import Form, Options, Url, open_database, output_as
from mergelake.api.cli.output import Output

if TYPE_CHECKING:
    from mergelake.jobs.gc.fsck import FsckReport


def register(commands: typer.Typer) -> None:
    """Add this command to the command line."""
    commands.command()(fsck)


def fsck(
    url: Url,
    table: Annotated[str | None, typer.Argument(help="Only this table", show_default=False)] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write checkpoints and published names anew; deletes no data")
    ] = False,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Check that logs, parts, objects and published names fit together; code 1 if something is wrong.

    Objects are listed, not read: `mergelake check` reads every byte of a table.
    """
    output, warehouse = output_as(form), open_database(url, options).warehouse
    reports: dict[str, FsckReport] = {}
    with output.counting("Reading the log") as counted:
        reports.update(warehouse.fsck(table, repair=repair, on_progress=counted))
    if form == "json":
        output.json([{"table": name, "clean": report.clean, **asdict(report)} for name, report in reports.items()])
    else:
        for name, report in reports.items():
            _show(output, name, report)
        if len(reports) > 1 or table is not None:
            output.verdict("Objects were listed, and their bytes not read: mergelake check URL TABLE reads them.")
        else:
            output.verdict("There are no tables.")
    if not all(report.clean for report in reports.values()):
        raise typer.Exit(1)


def _show(output: Output, name: str, report: FsckReport) -> None:
    if report.findings:
        rows = [
            {"table": name, "kind": f.kind, "where": f.where, "finding": f.what, "way out": f.way_out}
            for f in report.findings
        ]
        output.rows(rows)
    for done in report.repaired:
        output.verdict(f"{name}: {done}")
    seen = f"version {report.version}, {report.parts} parts, {report.objects} objects, {report.entries} log entries"
    verdict = "nothing wrong" if report.clean else f"{sum(not f.harmless for f in report.findings)} problems"
    output.verdict(f"{name}: {seen}: {verdict}")
