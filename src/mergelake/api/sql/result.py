"""`Result`: what `Database.sql` returns.

A large result is not held in memory: its statement continues as batches are read (`batches`, `reader`), or until all
rows are fetched (`arrow` and the methods based on it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.api.sql.cells import cell_rows, is_numeric
from mergelake.core.base.errors import UnsupportedError, error
from mergelake.core.base.text import back_quote, quote_string, unused_stem
from mergelake.core.convert.public import rows_of
from mergelake.core.convert.storage import to_storage
from mergelake.core.types import types as t
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import exact_expression, parse_types
from mergelake.query.result import QueryResult, Stats
from mergelake.store.metering.meter import Tally
from mergelake.store.metering.prices import Prices, is_bucket

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession


class Result:
    """The rows of a statement. A statement without rows (CREATE, INSERT, …) has an empty result.

    `arrow`, `pandas`, `polars`, `rows`, `text`, `encoded` and `len` fetch all rows and keep them, so they may be called
    repeatedly. `batches`, `reader`, `chunks`, iteration, and `spark` of a large result return the rows once and keep
    none of them: afterwards other ways to read are BAD_ARGUMENTS, unless all rows were fetched and kept before.

    A result is an Arrow stream (`polars.DataFrame(result)`, `pyarrow.table(result)`), an iterator of rows as tuples,
    and a context manager that calls `close`. An error that the statement meets late is raised where its rows end.
    """

    def __init__(self, query_result: QueryResult | None = None) -> None:
        self._query_result = query_result or QueryResult(pa.table({}), ())
        self._spent: tuple[Tally, Prices] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._query_result.schema.names)

    @property
    def types(self) -> tuple[str, ...]:
        """ClickHouse type of each column, as text."""
        return self._query_result.types

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns, as in `arrow` and `batches`."""
        return self._query_result.schema

    @property
    def stats(self) -> Stats:
        """Seconds, rows and bytes read so far, which executor runs the statement and why; requests and their cost."""
        stats = self._query_result.stats
        if self._spent is None:
            return stats
        tally, prices = self._spent
        requests = tally.counters
        return replace(stats, requests=requests, cost=prices.cost(requests), billed=is_bucket(tally.url))

    def metered_by(self, tally: Tally, prices: Prices) -> None:
        """Tell in `stats` the requests of `tally`, which counts for this statement."""
        self._spent = tally, prices

    @property
    def query_result(self) -> QueryResult:
        """What `query` returned."""
        return self._query_result

    @property
    def totals(self) -> pa.Table | None:
        """The row of WITH TOTALS as a table of one row; None without."""
        return self._query_result.totals

    @property
    def formatted(self) -> bytes | None:
        """The output of a statement with a FORMAT clause (or of `sql(format=…)`) as bytes; None for any other."""
        return self._query_result.formatted

    @property
    def has_format(self) -> bool:
        """Whether the result is bytes in a format: then it has no columns, and `formatted` or `chunks` return it."""
        return self._query_result.has_format

    def __len__(self) -> int:
        """Number of rows. If it is not known yet, all rows are fetched and kept."""
        known = self._query_result.rows
        return int(self._query_result.table.num_rows) if known is None else known

    def __bool__(self) -> bool:
        """Whether there are rows."""
        return self._query_result.rows is None or self._query_result.rows > 0

    def __repr__(self) -> str:
        return (
            "<Result in a format: its bytes are in formatted, or come by chunks()>"
            if self.has_format
            else self.drawn(10)
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples of Python values; once, as `batches`, unless all rows were fetched and kept before."""
        return rows_of(self.batches())

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the statement if it still runs. Rows that were not fetched are lost."""
        self._query_result.close()

    def at_end(self, call: Callable[[], object]) -> None:
        """Call `call` when the statement ends, in whatever thread that happens; at once if it has ended."""
        self._query_result.at_end(call)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, as ClickHouse produces them; only a few are held in memory at a time.

        They are returned once, unless all rows were fetched and kept before. Leaving a loop over them ends the
        statement.
        """
        return self._query_result.batches()

    def reader(self) -> pa.RecordBatchReader:
        """`batches` as a pyarrow RecordBatchReader, which DuckDB, Polars, pyarrow.dataset, … read without a copy."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow stream of `polars.DataFrame(result)`, `pyarrow.table(result)`, …."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of `formatted` piece by piece, once; none if the statement has no format."""
        return self._query_result.chunks() if self.has_format else iter(())

    def arrow(self) -> pa.Table:
        """All rows as a pyarrow Table; `docs/types.md` lists the Arrow type of each ClickHouse type."""
        return self._query_result.table

    def pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        return self._query_result.table.to_pandas()

    def polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame."""
        import polars

        return polars.DataFrame(self._query_result.table)

    def spark(self, session: SparkSession) -> DataFrame:
        """The rows as a Spark DataFrame of `session`.

        A large result is passed on batch by batch and not held here; like `batches`, that happens once. BAD_ARGUMENTS
        if two columns have the same name.
        """
        from mergelake.api.spark.result import result_frame

        types = {name: t.parse_type(kind) for name, kind in zip(self.columns, self.types, strict=True)}
        if len(types) < len(self.columns):
            raise error("BAD_ARGUMENTS", "Two columns of the result have one name", "Give each one of its own")
        return result_frame(
            session, types, self.batches() if self._query_result.rows is None else self.arrow().to_batches()
        )

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as a list of tuples of Python values."""
        table = self._query_result.table
        columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
        return list(zip(*columns, strict=True)) if columns else []

    def scalar(self) -> Any:
        """The first value of the first row, as a Python value; IndexError if there is none."""
        return self._query_result.first(1).column(0)[0].as_py()

    def text(self, format: str = "PrettyCompact") -> str:
        """All rows in a text format of ClickHouse: `CSVWithNames`, `JSON`, `TabSeparated`, `Vertical`, ….

        Bytes that are not UTF-8 become `�`; `encoded` keeps them.
        """
        return self.encoded(format).decode("utf-8", "replace")

    def formatted_as(self, format: str, into: str, settings: Mapping[str, str]) -> Result:
        """The same rows as a result in a format; with `into` (an INTO OUTFILE clause) they are written to that file."""
        if not self.columns:
            return self
        data = self._encoded(format or "TabSeparated", into, settings)
        return Result(QueryResult(data, (), self.stats, rows=len(self)))

    def encoded(self, format: str) -> bytes:
        """All rows as bytes in an output format of ClickHouse, also a binary one (`Parquet`, `Native`, …).

        If the statement has a FORMAT clause, the bytes are in that format, and `format` is ignored.
        """
        if (formatted := self._query_result.formatted) is not None:
            return formatted
        if not self.columns:
            return b""
        return self._encoded(format, "", {})

    def _encoded(self, format: str, into: str, settings: Mapping[str, str]) -> bytes:
        table, shown_as = self._query_result.table, _distinct(self.columns)
        stem = unused_stem(shown_as)
        columns, arrays = [], {}
        for place, (shown, data_type) in enumerate(zip(shown_as, parse_types(self.types), strict=True)):
            name = f"{stem}{place}"
            expression, arrays[name] = _exact(name, table.column(place), data_type)
            columns.append(f"{expression} AS {back_quote(shown)}")
        sql = f"SELECT {', '.join(columns)} FROM Python(ml_rows) {into}"
        # Results are small: one thread keeps the order of their rows.
        tables = {"ml_rows": pa.table(arrays)}
        return bytes(engine.run(sql, tables, output=format, settings={**settings, "max_threads": "1"}).data)

    def show(self, limit: int = 40) -> None:
        """Print the first `limit` rows as a table."""
        print(self.drawn(limit))  # noqa: T201  (what it is for)

    def drawn(self, limit: int = 40) -> str:
        """The first `limit` rows as a table in text, numbers aligned to the right."""
        if self.has_format:
            return self.text()
        table, rows_in_all = self._query_result.first(limit), self._query_result.rows
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
            for row in cell_rows(self._query_result.first(100), 100)
        )
        rows = self._query_result.rows
        row_count = "and more" if rows is None else rows
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{row_count} rows</p>"


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
            expression = exact_expression(name, data_type)  # all columns of Arrow are Nullable
            return f"CAST({expression}, {quote_string(str(data_type))})", to_storage(column, data_type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.string())
    return name, column


def rows_result(columns: dict[str, list[Any]], schema: dict[str, str]) -> Result:
    """A small result from Python values; `schema` gives the ClickHouse type of each column."""
    from mergelake.core.types.arrow import arrow_schema

    types = {name: t.parse_type(kind) for name, kind in schema.items()}
    return Result(QueryResult(pa.table(columns, schema=arrow_schema(types)), tuple(schema.values())))
