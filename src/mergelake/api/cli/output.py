"""What commands print: results to stdout, everything else to stderr; a table for people or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from mergelake.core.base.errors import MergelakeError

if TYPE_CHECKING:
    import pyarrow as pa

    from mergelake.api.sql.result import Result

_WIDTH_IN_FILES = 400
ROWS_SHOWN = 1000
"""Number of rows of a result that are drawn."""
FORMATS = {
    "pretty": "",
    "json": "JSON",
    "jsonl": "JSONEachRow",
    "csv": "CSVWithNames",
    "tsv": "TabSeparated",
    "vertical": "Vertical",
    "markdown": "Markdown",
    "parquet": "Parquet",
}
"""Short names of output formats; any of ClickHouse's own names will do as well."""


class Output:
    """Where a command writes."""

    def __init__(self, form: str = "table", stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> None:
        self.form = form
        self._stdout = stdout or sys.stdout
        self.console = Console(file=self._stdout, highlight=False)
        if not self.console.is_terminal:
            self.console.width = _WIDTH_IN_FILES
        self.messages = Console(file=stderr or sys.stderr, highlight=False, soft_wrap=True)

    @property
    def interactive(self) -> bool:
        """Whether results go to a terminal."""
        return self.console.is_terminal

    def rows(self, results: pa.Table | Sequence[Mapping[str, Any]], *, empty: str = "Nothing to show.") -> None:
        """Print a table of results."""
        import pyarrow as pa

        table = results if isinstance(results, pa.Table) else pa.Table.from_pylist(list(results))
        if self.form == "json":
            self.json([dict(zip(table.column_names, row, strict=True)) for row in _values(table)])
        elif table.num_rows == 0:
            self.note(empty)
        else:
            self.console.print(drawn(table, ()))

    def json(self, value: Any) -> None:
        """Print a value as JSON."""
        from mergelake.api.sql.cells import cell

        self.text(json.dumps(value, default=cell, indent=2, ensure_ascii=False))

    def facts(self, facts: dict[str, Any]) -> None:
        """Print names and values."""
        if self.form == "json":
            self.json(facts)
            return
        width = max(map(len, facts))
        for name, value in facts.items():
            self.console.print(Text.assemble((f"{name:<{width}}  ", "dim"), str(value)))

    def text(self, text: str) -> None:
        """Write text, with a line end if it has none."""
        self._stdout.write(text if text.endswith("\n") or not text else text + "\n")
        self._stdout.flush()

    def data(self, data: bytes) -> None:
        """Write bytes unchanged: a format may be binary, and Strings need not be UTF-8."""
        self._stdout.flush()
        raw = getattr(self._stdout, "buffer", None)
        if raw is None:
            self._stdout.write(data.decode("utf-8", "replace"))
        else:
            raw.write(data)
        self._stdout.flush()

    def note(self, text: str) -> None:
        """Print a message that is not a result."""
        self.messages.print(Text(text, style="dim"))

    def verdict(self, text: str) -> None:
        """Print a result in words."""
        self.console.print(Text(text), soft_wrap=True)

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """A function to call with (done, total); a terminal shows these numbers within the context."""
        if not self.messages.is_terminal:
            yield lambda done, total: None
            return
        with self.messages.status(what) as status:
            yield lambda done, total: status.update(f"{what}: {count(done)} of {count(total)}")

    def error(self, failure: MergelakeError) -> None:
        """Print an error and its hint."""
        lines = str(failure).rstrip().split("\n")
        self.messages.print(Text(lines[0], style="bold red"))
        for line in lines[1:]:
            self.messages.print(Text(line))


def _values(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*columns, strict=True)) if columns else []


def drawn(
    table: pa.Table, types: tuple[str, ...], limit: int = ROWS_SHOWN, totals: pa.Table | None = None
) -> RichTable:
    """A result as a table on the screen: types under the names, numbers to the right, totals under a line."""
    from mergelake.api.sql.cells import cell_rows, is_numeric

    out = RichTable(box=box.ROUNDED, header_style="bold", show_lines=False, pad_edge=True)
    for index, field in enumerate(table.schema):
        head = Text(field.name)
        if types:
            head.append(f"\n{types[index]}", style="dim not bold")
        out.add_column(head, justify="right" if is_numeric(field.type) else "left", overflow="fold")
    for row in cell_rows(table, limit):
        out.add_row(*(Text(value, style="dim" if value == "NULL" else "") for value in row))
    if totals is not None and totals.num_rows:
        out.add_section()
        out.add_row(*(Text(value, style="bold") for value in cell_rows(totals)[0]))
    return out


def format_of(format_name: str) -> str:
    """ClickHouse's name of a requested format; empty for rows that are drawn here."""
    return FORMATS.get(format_name.lower(), format_name)


def print_result(output: Output, result: Result, *, footer: bool) -> None:
    """Print one statement's result as it arrives and, with `footer`, how many rows it has and how long it took.

    A result without a format (`format_of`) is drawn as a table.
    """
    shown = 0
    if result.has_format:
        for chunk in result.chunks():
            output.data(chunk)
    elif not result.columns:
        if footer:
            output.note(f"Ok.{_billed(result)}")
        return
    else:
        first = _first(result, ROWS_SHOWN)
        shown = first.num_rows
        if shown == 1 and len(result.columns) == 1 and "\n" in str(first.column(0)[0].as_py()):
            output.text(str(first.column(0)[0].as_py()))  # SHOW CREATE TABLE
        elif result.columns == ("explain",):
            output.text("\n".join(str(line) for line in first.column(0).to_pylist()))
        elif shown:
            output.console.print(drawn(first, result.types, totals=result.totals))
    if footer:
        output.note(summary(result, shown))


def _first(result: Result, rows: int) -> pa.Table:
    """The first `rows` rows, or all rows of an EXPLAIN; the others are read but not kept."""
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    held = 0
    for batch in result.batches():
        if held < rows or result.columns == ("explain",):
            kept.append(batch)
            held += batch.num_rows
    table = pa.Table.from_batches(kept, result.schema)
    return table if result.columns == ("explain",) else table.slice(0, rows)


def summary(result: Result, shown: int) -> str:
    """`3 rows in set. Elapsed: 0.012 s. Processed 1.20 million rows, 34.10 MB (100.00 million rows/s)`."""
    stats, rows = result.stats, len(result)
    shown_note = f" ({shown} shown)" if 0 < shown < rows else ""
    text = f"{rows} {'row' if rows == 1 else 'rows'} in set{shown_note}. Elapsed: {stats.elapsed_s:.3f} s."
    if stats.rows_read:
        speed = stats.rows_read / max(stats.elapsed_s, 1e-6)
        text += f" Processed {count(stats.rows_read)} rows, {size(stats.bytes_read)} ({count(speed)} rows/s)."
    return text + _billed(result) + (" On Spark." if stats.executor == "spark" else "")


def _billed(result: Result) -> str:
    """` 4 requests for 0.0000108.`: of a bucket what was asked of it."""
    stats = result.stats
    asked = stats.requests.requests
    return f" {count(asked)} requests for {stats.cost:.7f}." if stats.billed and asked else ""


def count(number: float) -> str:
    """A number of things for people: 950, 1.20 thousand, 3.40 million."""
    for unit, name in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= unit:
            return f"{number / unit:.2f}{name}"
    return f"{number:.0f}"


def size(number: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:.0f} B" if unit == "B" else f"{number:.2f} {unit}"
