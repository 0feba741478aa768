"""What `Database.sql` gives back: rows, in whatever form is wanted.

A large answer is not held: its statement goes on as far as somebody takes it, batch by batch (`batches`, `reader`) or
as a whole (`arrow` and all that is made of it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.convert.public import rows_of
from mergelake.convert.storage import to_storage
from mergelake.core import types as t
from mergelake.core.errors import UnsupportedError, error
from mergelake.core.text import back_quote, quote_string, unused_stem
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import exact_expression, parse_types
from mergelake.query.result import QueryResult, Stats
from mergelake.sql.cells import cell_rows, is_numeric

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession


class Result:
    """The rows of a statement. A statement without rows (CREATE, INSERT) has an empty result."""

    def __init__(self, found: QueryResult | None = None) -> None:
        self._found = found or QueryResult(pa.table({}), ())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._found.schema.names)

    @property
    def types(self) -> tuple[str, ...]:
        """ClickHouse's name of each column's type."""
        return self._found.types

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns, as `arrow` and `batches` have them."""
        return self._found.schema

    @property
    def stats(self) -> Stats:
        """Seconds, rows and bytes read, which executor ran it and why; so far, while the statement runs."""
        return self._found.stats

    @property
    def totals(self) -> pa.Table | None:
        """The row of WITH TOTALS, or None."""
        return self._found.totals

    @property
    def formatted(self) -> bytes | None:
        """What a statement that ends in FORMAT gave; its rows are only here. `chunks` gives it piece by piece."""
        return self._found.formatted

    @property
    def has_format(self) -> bool:
        """Whether the statement asked for a format: `formatted`, `chunks`."""
        return self._found.has_format

    def __len__(self) -> int:
        """Rows. Of a large result that was not read yet all are fetched for it, and kept."""
        known = self._found.rows
        return int(self._found.table.num_rows) if known is None else known

    def __bool__(self) -> bool:
        """Whether there are rows."""
        return self._found.rows is None or self._found.rows > 0

    def __repr__(self) -> str:
        return (
            "<Result in a format: its bytes are in formatted, or come by chunks()>"
            if self.has_format
            else self.drawn(10)
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples of Python values; given once, as by `batches`, unless `arrow` has kept them."""
        return rows_of(self.batches())

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the statement if it still runs. Rows that were not fetched can no longer be."""
        self._found.close()

    def at_end(self, call: Callable[[], object]) -> None:
        """Have `call` called once the statement has ended, by whatever thread; now, if it has."""
        self._found.at_end(call)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, as ClickHouse makes them: no more than a few are held.

        They are given once, and not kept: afterwards the other ways of reading are BAD_ARGUMENTS. After `arrow`, which
        keeps all, they may be had again and again. An error of the statement comes where its rows end. Leaving the loop
        early ends the statement.
        """
        return self._found.batches()

    def reader(self) -> pa.RecordBatchReader:
        """`batches` as a pyarrow RecordBatchReader, which DuckDB, Polars, pyarrow.dataset, … read without a copy."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What makes `polars.DataFrame(result)`, `pyarrow.table(result)`, … work."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of `formatted`, piece by piece, given once; none without a format."""
        return self._found.chunks() if self.has_format else iter(())

    def arrow(self) -> pa.Table:
        """As a pyarrow Table (`core.arrow` lists the type of each ClickHouse type)."""
        return self._found.table

    def pandas(self) -> pandas.DataFrame:
        """As a pandas DataFrame."""
        return self._found.table.to_pandas()

    def polars(self) -> polars.DataFrame:
        """As a polars DataFrame."""
        import polars

        return polars.DataFrame(self._found.table)

    def spark(self, session: SparkSession) -> DataFrame:
        """As a Spark DataFrame of `session`. A large result is given away to it, as by `batches`, and never held."""
        from mergelake.spark.result import result_frame

        types = {name: t.parse_type(kind) for name, kind in zip(self.columns, self.types, strict=True)}
        if len(types) < len(self.columns):
            raise error("BAD_ARGUMENTS", "Two columns of the result have one name", "Give each one of its own")
        return result_frame(session, types, self.batches() if self._found.rows is None else self.arrow().to_batches())

    def rows(self) -> list[tuple[Any, ...]]:
        """As a list of tuples of Python values."""
        table = self._found.table
        columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
        return list(zip(*columns, strict=True)) if columns else []

    def scalar(self) -> Any:
        """The first value of the first row."""
        return self._found.first(1).column(0)[0].as_py()

    def text(self, format: str = "PrettyCompact") -> str:
        """In any of ClickHouse's text formats: `CSVWithNames`, `JSON`, `TabSeparated`, `Vertical`, …

        Bytes of Strings that are not UTF-8 are shown as `�`; `encoded` keeps them.
        """
        return self.encoded(format).decode("utf-8", "replace")

    def formatted_as(self, format: str, into: str, settings: Mapping[str, str]) -> Result:
        """The rows as a statement with FORMAT gives them, or, with `into` (INTO OUTFILE …), in a file."""
        if not self.columns:
            return self
        data = self._encoded(format or "TabSeparated", into, settings)
        return Result(QueryResult(data, (), self.stats, rows=len(self)))

    def encoded(self, format: str) -> bytes:
        """The bytes in any of ClickHouse's output formats, binary ones (`Parquet`, `Native`, …) among them.

        A statement with a FORMAT clause of its own has that one, whatever is asked for.
        """
        if (formatted := self._found.formatted) is not None:
            return formatted
        if not self.columns:
            return b""
        return self._encoded(format, "", {})

    def _encoded(self, format: str, into: str, settings: Mapping[str, str]) -> bytes:
        table, shown_as = self._found.table, _distinct(self.columns)
        stem = unused_stem(shown_as)
        columns, arrays = [], {}
        for place, (shown, data_type) in enumerate(zip(shown_as, parse_types(self.types), strict=True)):
            name = f"{stem}{place}"
            expression, arrays[name] = _exact(name, table.column(place), data_type)
            columns.append(f"{expression} AS {back_quote(shown)}")
        sql = f"SELECT {', '.join(columns)} FROM Python(ml_rows) {into}"
        # Answers are small: one thread keeps their order.
        tables = {"ml_rows": pa.table(arrays)}
        return bytes(engine.run(sql, tables, output=format, settings={**settings, "max_threads": "1"}).data)

    def show(self, limit: int = 40) -> None:
        """Print the first `limit` rows as a table."""
        print(self.drawn(limit))  # noqa: T201  (what it is for)

    def drawn(self, limit: int = 40) -> str:
        """The first `limit` rows as a table of plain characters; numbers stand right."""
        if self.has_format:
            return self.text()
        table, rows_in_all = self._found.first(limit), self._found.rows
        if not table.num_columns:
            return "Ok."
        if rows_in_all == 1 and table.num_columns == 1 and "\n" in str(table.column(0)[0].as_py()):
            return str(table.column(0)[0].as_py())  # SHOW CREATE TABLE
        rows = cell_rows(table, limit)
        right = [is_numeric(field.type) for field in table.schema]
        names = list(self.columns)
        widths = [max(len(name), *(len(row[i]) for row in rows), 1) for i, name in enumerate(names)]

        def line(cells: list[str]) -> str:
            placed = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
            return f"│ {' │ '.join(placed)} │"

        bars = ["─" * (width + 2) for width in widths]
        out = [f"┌{'┬'.join(bars)}┐", line(names), f"├{'┼'.join(bars)}┤", *map(line, rows), f"└{'┴'.join(bars)}┘"]
        if rows_in_all is None or rows_in_all > limit:
            shown = f"{table.num_rows} rows, and more" if rows_in_all is None else f"{limit} of {rows_in_all} rows"
            out.append(shown)
        return "\n".join(out)

    def _repr_html_(self) -> str:
        from html import escape

        head = "".join(
            f"<th title='{escape(kind)}'>{escape(name)}</th>"
            for name, kind in zip(self.columns, self.types, strict=True)
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>"
            for row in cell_rows(self._found.first(100), 100)
        )
        rows = self._found.rows
        told = "and more" if rows is None else rows
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{told} rows</p>"


def _distinct(names: tuple[str, ...]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return out


def _exact(name: str, column: pa.ChunkedArray, data_type: t.DataType | None) -> tuple[str, pa.ChunkedArray | pa.Array]:
    """A public column as ClickHouse reads it, and the expression that makes it exactly its type again."""
    if data_type is not None and not t.holds(data_type, t.AggregateFunction, t.Dynamic, t.Json, t.Nothing):
        with suppress(UnsupportedError):  # a Variant of arrays: its fields are shown
            expression = exact_expression(name, data_type)  # of Arrow's columns all are Nullable
            return f"CAST({expression}, {quote_string(str(data_type))})", to_storage(column, data_type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.string())
    return name, column


def rows_result(columns: dict[str, list[Any]], schema: dict[str, str]) -> Result:
    """A small result from Python values; `schema` gives the ClickHouse type of each column."""
    from mergelake.core.arrow import arrow_schema

    types = {name: t.parse_type(kind) for name, kind in schema.items()}
    return Result(QueryResult(pa.table(columns, schema=arrow_schema(types)), tuple(schema.values())))
