"""Commands for tasks as documents: `plan` writes them, `work` executes them, `commit` commits their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mergelake.api.cli.common import Options, TableName, Url, open_database, storage_options
from mergelake.api.cli.output import Output
from mergelake.core.base.errors import error

TaskFile = Annotated[Path, typer.Argument(metavar="TASK.json", help="Written by mergelake plan", show_default=False)]


def register(commands: typer.Typer) -> None:
    """Add these commands to the command line."""
    commands.command()(plan)
    commands.command()(work)
    commands.command()(commit)


def plan(
    url: Url,
    table: TableName,
    out: Annotated[Path, typer.Option(help="Directory for the documents; it is made")],
    final: Annotated[bool, typer.Option("--final", help="One part for each partition")] = False,
    partition_id: Annotated[str | None, typer.Option(help="Only this partition", show_default=False)] = None,
    mutations: Annotated[bool, typer.Option("--mutations", help="Rewrites for pending mutations, no merges")] = False,
    options: Options = None,
) -> None:
    """Write merges, or rewrites for mutations, as documents that any process can execute; print their paths."""
    from mergelake.api.python.work import plan_work

    opened = open_database(url, options).table(table)
    documents = plan_work(opened, partition_id=partition_id, final=final, mutations=mutations)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for document in documents:
            raw = json.loads(document)
            piece = f"-slice-{raw['slice']}" if "slice" in raw else ""
            path = out / f"{opened.name}-{raw['result']}{piece}.json"
            path.write_bytes(document)
            print(path)
    except OSError as failure:
        raise error("BAD_ARGUMENTS", f"Cannot write tasks to {out}: {failure}") from None
    if not documents:
        Output().note("There is nothing to do.")


def work(
    tasks: Annotated[list[Path], typer.Argument(metavar="TASK.json...", help="Written by mergelake plan")],
    committed: Annotated[bool, typer.Option("--commit", help="Commit each result at once, but for slices")] = False,
    options: Options = None,
    spark: Annotated[str | None, typer.Option(help="Spark master that executes them", show_default=False)] = None,
) -> None:
    """Execute tasks and print the result of each, a line of JSON; nothing is committed unless --commit."""
    from mergelake.api.python.work import commit_work, commits, work as execute, work_and_commit, work_on_spark

    output, given = Output(), storage_options(options)
    documents = [_read(path) for path in tasks]
    if spark is not None:
        from mergelake.api.spark.session import session

        for task, result in zip(documents, work_on_spark(session(spark), documents, given), strict=True):
            output.text(result.decode())
            if committed and commits(task):
                output.note(f"Committed at version {commit_work(task, result, given)}")
        return
    for task in documents:
        if not committed or not commits(task):
            output.text(execute(task, given).decode())
            continue
        result, version = work_and_commit(task, given)
        output.text(result.decode())
        output.note(f"Committed at version {version}")


def commit(
    task: TaskFile,
    result: Annotated[Path, typer.Argument(metavar="RESULT.json", help="What mergelake work printed")],
    options: Options = None,
) -> None:
    """Commit the result of a task; nothing happens if it was committed before."""
    from mergelake.api.python.work import commit_work

    version = commit_work(_read(task), _read(result), storage_options(options))
    Output().note(f"Committed at version {version}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise error("BAD_ARGUMENTS", f"Cannot read {path}: {failure}") from None
