"""`mergelake cost`: what tables hold and what writing them took, in bytes, requests and money."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mergelake.api.cli.common import Form, Options, Url, open_database, output_as
from mergelake.api.cli.output import Output, size

if TYPE_CHECKING:
    from mergelake.api.python.cost import TableCost
    from mergelake.api.python.warehouse import Warehouse
    from mergelake.store.metering.prices import Prices

_KINDS = {
    "insert": "inserts",
    "volatile": "uploads of volatile merges",
    "direct": "merges",
    "optimize": "OPTIMIZE",
    "ttl": "merges for a TTL",
    "mutation": "mutations",
    "log entry": "log entries",
}
_LEAST = 1e-7


def register(commands: typer.Typer) -> None:
    """Add the command to the command line."""
    commands.command()(cost)


def cost(
    url: Url,
    table: Annotated[str | None, typer.Argument(help="Only this table, in detail", show_default=False)] = None,
    days: Annotated[float, typer.Option(help="How far back to look for what was written")] = 30.0,
    measure: Annotated[bool, typer.Option("--measure", help="List all objects: what is stored, to the byte")] = False,
    prices: Annotated[
        str | None, typer.Option(metavar="FILE", help="Prices, as TOML (default: S3's list prices)", show_default=False)
    ] = None,
    form: Form = "table",
    options: Options = None,
) -> None:
    """Tell what tables cost: bytes stored, and what was written, from their logs."""
    output = output_as(form)
    given = [*(options or []), *([f"prices={prices}"] if prices is not None else [])]
    warehouse = open_database(url, given).warehouse
    names = [warehouse.table(table).name] if table is not None else warehouse.tables()
    found = [(warehouse.cost(name, days=days), _measured(warehouse, name) if measure else None) for name in names]
    if form == "json":
        output.json([_as_json(spent, measured, warehouse.prices) for spent, measured in found])
    elif table is not None:
        _detail(output, *found[0], warehouse.prices)
    else:
        _overview(output, found, warehouse.prices)
    if form != "json":
        _notes(output, warehouse.prices, warehouse.url)


def _measured(warehouse: Warehouse, name: str) -> tuple[int, int]:
    """Objects of a table, the log among them, and their bytes."""
    sizes = [item.size for item in warehouse.store.list(warehouse.table(name).handle.directory)]
    return len(sizes), sum(sizes)


def _money(amount: float | None, prices: Prices) -> str:
    """An amount for people: 12.30 USD, 0.0000108 USD."""
    if amount is None:
        return "too early to tell"
    if 0 < amount < _LEAST:
        return f"< {_LEAST:.7f} {prices.currency}"
    digits = 2 if amount >= 1 or amount == 0 else 4 if amount >= 0.01 else 7
    return f"{amount:,.{digits}f} {prices.currency}"


def _overview(output: Output, found: list[tuple[TableCost, tuple[int, int] | None]], prices: Prices) -> None:
    rows = [
        {
            "table": spent.name,
            "stored": size(measured[1] if measured else spent.stored_bytes),
            "a month": _money(prices.month(measured[1] if measured else spent.stored_bytes), prices),
            "since": _day(spent.since_ms),
            "written": size(spent.total.bytes),
            "PUTs": spent.total.puts,
            "for": _money(spent.total.cost(prices), prices),
            "a month at this pace": _money(spent.month(prices), prices),
        }
        for spent, measured in found
    ]
    output.rows(rows, empty="There are no tables.")
    stored = sum(measured[1] if measured else spent.stored_bytes for spent, measured in found)
    output.verdict(f"Stored in all: {size(stored)}, {_money(prices.month(stored), prices)} a month.")


def _detail(output: Output, spent: TableCost, measured: tuple[int, int] | None, prices: Prices) -> None:
    def kept(number: int) -> str:
        return f"{size(number)}, {_money(prices.month(number), prices)} a month"

    amplification = 1 + spent.merged_bytes / spent.inserted_bytes if spent.inserted_bytes else 1.0
    facts = {
        "table": f"{spent.name}, version {spent.version}",
        "active parts": kept(spent.active_bytes),
        "parts of older versions": kept(spent.retired_bytes),
        "detached parts": kept(spent.detached_bytes),
        "in both": size(spent.borrowed_bytes),
        "all parts": kept(spent.stored_bytes),
    }
    if measured is not None:
        facts["all objects, listed"] = f"{kept(measured[1])}: {measured[0]} of them, the log too"
    if spent.volatile_parts:
        facts["volatile merges"] = (
            f"{spent.volatile_parts}, over {size(spent.volatile_source_bytes)} of the active parts"
        )
    facts["inserted, ever"] = size(spent.inserted_bytes)
    facts["merged, ever"] = f"{size(spent.merged_bytes)}: {amplification:.2f} bytes written for each byte inserted"
    facts["OPTIMIZE, ever"] = size(spent.requested_bytes)
    output.facts(facts)
    rows = [
        {"written": _KINDS.get(kind, kind), "parts": each.parts, "PUTs": each.puts, "bytes": size(each.bytes),
         "for": _money(each.cost(prices), prices)}
        for kind, each in sorted(spent.written.items(), key=lambda item: [*_KINDS, item[0]].index(item[0]))
    ]  # fmt: skip
    total = spent.total
    rows.append(
        {"written": "in all", "parts": total.parts, "PUTs": total.puts, "bytes": size(total.bytes),
         "for": _money(total.cost(prices), prices)}
    )  # fmt: skip
    output.rows(rows)
    output.verdict(f"Since {_day(spent.since_ms)}; a month at this pace: {_money(spent.month(prices), prices)}.")


def _notes(output: Output, prices: Prices, url: str) -> None:
    from mergelake.store.metering.prices import is_bucket

    billed = "" if is_bucket(url) else " A directory bills nothing: a bucket would."
    output.note(f"Prices: {prices.name}.{billed}")
    output.note(
        "From the logs: PUTs that succeeded, by the sizes of the objects. Not in them: reads, retries, checkpoints and "
        "collection; Result.stats and system.query_log count the requests of a process."
    )


def _day(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _as_json(spent: TableCost, measured: tuple[int, int] | None, prices: Prices) -> dict[str, Any]:
    return {
        "table": spent.name,
        "version": spent.version,
        "currency": prices.currency,
        "prices": prices.name,
        "active_bytes": spent.active_bytes,
        "retired_bytes": spent.retired_bytes,
        "detached_bytes": spent.detached_bytes,
        "borrowed_bytes": spent.borrowed_bytes,
        "stored_bytes": spent.stored_bytes,
        "storage_per_month": prices.month(measured[1] if measured else spent.stored_bytes),
        **({"objects": measured[0], "object_bytes": measured[1]} if measured else {}),
        "volatile_parts": spent.volatile_parts,
        "volatile_source_bytes": spent.volatile_source_bytes,
        "inserted_bytes": spent.inserted_bytes,
        "merged_bytes": spent.merged_bytes,
        "requested_bytes": spent.requested_bytes,
        "since_ms": spent.since_ms,
        "until_ms": spent.until_ms,
        "written": {
            kind: {"parts": each.parts, "puts": each.puts, "bytes": each.bytes, "cost": each.cost(prices)}
            for kind, each in spent.written.items()
        },
        "written_cost": spent.total.cost(prices),
        "written_cost_per_month": spent.month(prices),
    }
