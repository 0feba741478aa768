"""Commands for part directories, ours and ClickHouse's alike: `part inspect` and `check-part`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from mergelake.api.cli.common import Form, Options, output_as, storage_options
from mergelake.api.cli.output import Output, size
from mergelake.core.base.errors import CorruptDataError, error

if TYPE_CHECKING:
    from mergelake.core.model.schema import TableSchema
    from mergelake.parts.tools.inspect import PartFacts

PathOrUrl = Annotated[str, typer.Argument(help="Part directory: a path or s3://, gs://, az:// URL", show_default=False)]
Granularity = Annotated[
    int, typer.Option(help="The table's index_granularity; only for parts without adaptive granules", min=1)
]

part = typer.Typer(help="Look into part directories.", no_args_is_help=True)


def register(commands: typer.Typer) -> None:
    """Add these commands to the command line."""
    commands.add_typer(part, name="part")
    commands.command("check-part")(check_part_command)


@part.command()
def inspect(
    path: PathOrUrl,
    form: Form = "table",
    options: Options = None,
    granularity: Granularity = 8192,
    check: Annotated[bool, typer.Option("--check", help="Verify every byte, not only small files and marks")] = False,
) -> None:
    """Print a part: files, columns, codecs, granules, index rows. Code 1 if something is wrong with it."""
    from mergelake.parts.tools.inspect import inspect_part
    from mergelake.parts.tools.public import read_part

    output = output_as(form)
    opened = read_part(path, options=storage_options(options), granularity=granularity, patches=False)
    facts = inspect_part(opened.part, opened.name, check="full" if check else "fast")
    if form == "json":
        output.json({**asdict(facts), "ratio": round(facts.ratio, 3)})
    else:
        _draw(output, facts, "every byte" if check else "small files and marks")
    if facts.problems:
        raise typer.Exit(1)


def check_part_command(
    path: PathOrUrl,
    form: Form = "table",
    options: Options = None,
    granularity: Granularity = 8192,
    ddl: Annotated[
        Path | None,
        typer.Option(
            help="File with the table's CREATE TABLE: keys, partition and skip indexes are checked too",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Verify every byte of a part directory; code 1 if something is wrong."""
    from mergelake.api.python.check import check_directory
    from mergelake.parts.tools.public import read_part
    from mergelake.parts.tools.verify import Problem, check_part

    output = output_as(form)
    schema = _schema(ddl)
    try:
        opened = read_part(path, options=storage_options(options), granularity=granularity, patches=False)
        problems = check_part(opened.part) if schema is None else check_directory(opened.part, schema)
    except CorruptDataError as broken:  # so broken that it cannot be opened
        problems = [Problem(broken.what, "", broken.object_key, broken.offset, broken.expected, broken.found)]
    message = "; ".join(map(str, problems))
    row = {"part_path": path.rstrip("/").rpartition("/")[2], "is_passed": int(not problems), "message": message}
    output.rows([row])
    if problems:
        raise typer.Exit(1)


def _schema(ddl: Path | None) -> TableSchema | None:
    from mergelake.api.sql.parser import parse_one
    from mergelake.api.sql.statements import CreateTable
    from mergelake.table.definition.define import check_schema

    if ddl is None:
        return None
    try:
        statement = parse_one(ddl.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as failure:
        raise error("BAD_ARGUMENTS", f"Cannot read {ddl}: {failure}") from None
    if not isinstance(statement, CreateTable) or statement.schema is None:
        raise error("BAD_ARGUMENTS", f"{ddl} is not a CREATE TABLE with columns", "SHOW CREATE TABLE prints it")
    return check_schema(statement.schema)


def _draw(output: Output, facts: PartFacts, checked: str) -> None:
    least, most = facts.granule_rows
    span = f"{least}" if least == most else f"{least} to {most}"
    granules = f"{facts.marks} granule{'' if facts.marks == 1 else 's'} of {span} rows"
    deleted = f", {facts.deleted_rows} of them deleted by a mask" if facts.deleted_rows else ""
    shown = {
        "Part": f"{facts.name} ({facts.part_type}, {facts.mark_type}{'' if facts.final_mark else ', no final mark'})",
        "At": facts.location,
        "Rows": f"{facts.rows} in {granules}{deleted}" if facts.marks else "0",
        "Size": f"{size(facts.size)} on disk, {size(facts.uncompressed_size)} plain, ratio {facts.ratio:.2f}",
        "Codec": facts.default_codec or "not said",
        "Partition": facts.partition_id,
        **{f"  {name}": f"{low} to {high}" for name, (low, high) in facts.minmax.items()},
    }
    if facts.first_key:
        shown["Key"] = ", ".join(facts.key)
        shown["  first row"] = ", ".join(facts.first_key)
        shown["  last row"] = ", ".join(facts.last_key)
    if facts.patches:
        shown["Patch parts"] = ", ".join(facts.patches)
    shown["Checked"] = f"{checked}: {len(facts.problems) or 'no'} problem{'' if len(facts.problems) == 1 else 's'}"
    output.facts(shown)
    for problem in facts.problems:
        output.messages.print(Text(f"  {problem}", style="bold red"))
    columns = _table("column", "type", "codec", "on disk", "plain", "ratio", "form")
    for column in facts.columns:
        ratio = f"{column.uncompressed_size / column.size:.2f}" if column.size else ""
        sizes = (size(column.size), size(column.uncompressed_size)) if column.size else ("", "")
        columns.add_row(*map(Text, (column.name, column.type, column.codec, *sizes, ratio, column.form)))
    output.console.print(columns)
    if facts.indexes:
        indexes = _table("skip index", "type", "granules", "on disk", "packed")
        for index in facts.indexes:
            kind, packed = index.type or "not told by its files", "yes" if index.packed else ""
            indexes.add_row(*map(Text, (index.name, kind, str(index.granules), size(index.size), packed)))
        output.console.print(indexes)
    if facts.projections:
        projections = _table("projection", "rows", "on disk", "columns")
        for projection in facts.projections:
            rows = str(projection.rows) if projection.rows >= 0 else "unreadable"
            projections.add_row(
                *map(Text, (projection.name, rows, size(projection.size), ", ".join(projection.columns)))
            )
        output.console.print(projections)
    files = _table("file", "on disk", "plain", "ratio", "checksums.txt")
    for file in facts.files:
        if ".proj/" in file.name:  # listed as projections
            continue
        compressed = file.uncompressed_size >= 0
        plain = size(file.uncompressed_size) if compressed else ""
        ratio = f"{file.uncompressed_size / file.size:.2f}" if compressed and file.size else ""
        files.add_row(*map(Text, (file.name, size(file.size), plain, ratio, file.checksum)))
    output.console.print(files)


_NUMBERS = ("on disk", "plain", "ratio", "granules", "rows")


def _table(*names: str) -> RichTable:
    """An empty table; columns of numbers are aligned to the right."""
    table = RichTable(box=box.ROUNDED, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
    return table
