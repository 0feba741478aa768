"""What the commands share: their arguments, and how a warehouse is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from mergelake.api.cli.output import Output
from mergelake.core.base.errors import error

if TYPE_CHECKING:
    from mergelake.api.sql.database import Database

Url = Annotated[str, typer.Argument(help="Warehouse: a directory or s3://, gs://, az:// URL", show_default=False)]
TableName = Annotated[str, typer.Argument(help="table, or database.table", show_default=False)]
Form = Annotated[str, typer.Option("--format", help="table or json")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="Storage option as name=value; may be repeated", show_default=False),
]


def storage_options(options: list[str] | None) -> Mapping[str, str]:
    """The options as a dictionary."""
    out: dict[str, str] = {}
    for text in options or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise error("BAD_ARGUMENTS", f"The option '{text}' is not name=value", "Write -o region=eu-central-1")
        if out.get(name, value) != value:
            raise error(
                "BAD_ARGUMENTS", f"The option {name} is given twice, as '{out[name]}' and '{value}'", "Give it once"
            )
        out[name] = value
    return out


def open_database(url: str, options: list[str] | None, spark: str | None = None, *, new: bool = False) -> Database:
    """The warehouse at `url`. UNKNOWN_TABLE where there is none, unless it may be a `new` one.

    Whoever runs commands can read this machine's files anyway, so statements may read them too.
    """
    from mergelake.api.sql.database import connect
    from mergelake.table.catalog.catalog import no_warehouse

    db = connect(url, storage_options(options), spark=spark, allow_external_access=True)
    if not new and not db.warehouse.exists:
        raise no_warehouse(db.warehouse.url)
    return db


def output_as(form: str) -> Output:
    """Where results go; BAD_ARGUMENTS for a format that is not known."""
    if form not in ("table", "json"):
        raise error("BAD_ARGUMENTS", f"There is no output format '{form}'", "It is table or json")
    return Output(form)
