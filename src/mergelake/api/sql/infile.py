"""INSERT … FROM INFILE: ClickHouse reads the file while its rows are written; a few blocks are held.

1. The format and the compression, unless they are given, are determined by the file's extension.
2. The file is read by `file(path, format, structure, compression)`, whose structure has the insert's columns with their
   defaults: a column, a field or a cell that the file leaves out gets the table's default.
3. In the strict conversion values are read as types that keep what a conversion to the column's type would change, and
   cast with a check. In a text format these are the types of `clickhouse_reader`. In a format that declares its types,
   numbers are read as declared. Other binary formats are read as the types of the columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from mergelake.api.sql.clickhouse_reader import (
    checked_casts,
    default_expressions,
    explained,
    strict_settings,
    strict_types,
    structure,
)
from mergelake.api.sql.insert_select import as_targets, exactly, sent_exactly
from mergelake.api.sql.statements import Infile
from mergelake.core.base.errors import MergelakeError, UnavailableError, error
from mergelake.core.base.progress import OnProgress
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import without_nothing
from mergelake.query.embedded.piping import begin
from mergelake.query.embedded.progress import reporting
from mergelake.query.embedded.streamed import Batches
from mergelake.query.statement.settings import describes, for_clickhouse

_COMPRESSED = (".gz", ".gzip", ".br", ".deflate", ".xz", ".lzma", ".zst", ".zstd", ".lz4", ".bz2", ".snappy")
_ENDINGS = {
    "arrows": "ArrowStream",
    "bin": "RowBinary",
    "feather": "Arrow",
    "jsonl": "JSONEachRow",
    "jsonlines": "JSONEachRow",
    "ndjson": "JSONEachRow",
    "tsv": "TabSeparated",
}
"""Extensions that are not the name of their format in lower case."""
_TEXT = ("csv", "customseparated", "form", "json", "lineasstring", "regexp", "tab", "template", "tskv", "tsv", "values")
_TYPED = re.compile(r"(arrow|avro|native|orc|parquet).*|json(compact|columnswithmetadata)?|.*withnamesandtypes")
"""Formats whose data declare their types."""
_READS_IN_ORDER = {"max_threads": "1", "storage_file_read_method": "'pread'"}
"""One thread keeps the rows in the order of the file, by which a repeated insert is recognized. Mapped pages would
count as memory of the process."""
_WILDCARDS = re.compile(r"[*?{]")


def format_of_path(path: str) -> str:
    """The format that a file's extension means. Raises BAD_ARGUMENTS if it means none."""
    name = Path(path).name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    _, dot, ending = name.rpartition(".")
    format_name = _ENDINGS.get(ending) or (_known_formats().get(ending) if dot else None)
    if format_name is None:
        message = f"Cannot determine the format of the file {path} by its extension"
        raise error("BAD_ARGUMENTS", message, "Write FORMAT and its name at the end of the statement")
    return format_name


def input_format(name: str) -> str:
    """The name of a format as ClickHouse spells it; unchanged if ClickHouse does not know it."""
    return _known_formats().get(name.lower(), name)


@lru_cache(maxsize=1)
def _known_formats() -> dict[str, str]:
    return {name.lower(): name for name in engine.run("SELECT name FROM system.formats").table()["name"].to_pylist()}


def is_typed(format_name: str) -> bool:
    """Whether the format declares the types of its data. It is read more than once, or not from beginning to end."""
    return _TYPED.fullmatch(format_name.lower()) is not None


def check_file(infile: Infile) -> None:
    """Raise FILE_DOESNT_EXIST if there is no file at a path without wildcards, UNAVAILABLE without ClickHouse."""
    if not engine.available():
        hint = "pip install 'mergelake[sql]', or INSERT … FORMAT with the data behind it"
        raise UnavailableError("Files are read by ClickHouse itself, and the package chdb is not installed", hint=hint)
    if not _WILDCARDS.search(infile.path) and not Path(infile.path).exists():
        raise error("FILE_DOESNT_EXIST", f"File {Path(infile.path).absolute()} doesn't exist", "Name one that does")


def text_of(infile: Infile) -> str:
    """The contents of the files, joined by commas; bytes that are not UTF-8 become surrogates."""
    with _opened(infile) as (path, compression):
        table = engine.run(
            f"SELECT raw FROM file({path}, 'RawBLOB', 'raw String', {compression})", settings={"max_threads": "1"}
        ).table()
    blobs = table["raw"].cast(pa.binary()).to_pylist()
    return ",".join(blob.decode("utf-8", "surrogateescape") for blob in blobs)


def insert_file(
    infile: Infile,
    format_name: str,
    targets: Mapping[str, t.DataType],
    schema: TableSchema,
    settings: Mapping[str, str],
    write: Callable[[pa.RecordBatchReader], object],
    *,
    strict: bool,
    on_progress: OnProgress | None = None,
) -> int:
    """Pass the rows of a file to `write` as they are read, unless there are none; return their number."""
    settings = describes(for_clickhouse(settings))  # a limit of the session does not apply to a file
    if strict:
        own = settings
        settings = strict_settings(targets, settings)
        if format_name.startswith("JSON") and any(t.holds(kind, t.Tuple) for kind in targets.values()):
            # A null in a Tuple looks like an element that is left out: both are the default, as in ClickHouse.
            settings.pop("input_format_null_as_default", None)
            settings |= own
    counted = 0
    try:
        with ExitStack() as stack:
            path, compression = stack.enter_context(_opened(infile))
            read_as, defaults = dict(targets), default_expressions(targets, schema)
            if strict and is_typed(format_name):
                read_as = _with_numbers_of(targets, _types_in(path, format_name, compression, settings))
            elif strict and format_name.lower().startswith(_TEXT):
                read_as, defaults = strict_types(format_name, targets, settings, defaults)
            columns = quote_string(structure(read_as, defaults))
            source = f"file({path}, {quote_string(format_name)}, {columns}, {compression})"
            sql, kinds = _selected(source, targets, read_as)
            how = stack.enter_context(reporting(on_progress, {**settings, **_READS_IN_ORDER}))
            with closing(Batches(begin(sql, settings=how), kinds)) as batches:

                def target_batches() -> Iterator[pa.RecordBatch]:
                    nonlocal counted
                    for batch in batches:
                        counted += batch.num_rows
                        yield from as_targets(pa.Table.from_batches([batch]), targets).to_batches()

                if not batches.ended or batches.held():
                    empty = as_targets(pa.Table.from_batches([], batches.schema), targets).schema
                    write(pa.RecordBatchReader.from_batches(empty, target_batches()))
    except MergelakeError as failure:
        raise _of_file(failure) from None
    return counted


def _selected(
    source: str, targets: Mapping[str, t.DataType], read_as: Mapping[str, t.DataType]
) -> tuple[str, list[str]]:
    """The statement that reads the columns of an insert, and the types that it returns."""
    exact = sent_exactly(targets)
    values = checked_casts(targets, read_as)
    chosen = [f"{exactly(value) if name in exact else value} AS {back_quote(name)}" for name, value in values.items()]
    kinds = ["String" if name in exact else str(kind) for name, kind in targets.items()]
    return without_nothing(f"SELECT {', '.join(chosen)} FROM {source}", list(targets), kinds), kinds


@contextmanager
def _opened(infile: Infile) -> Iterator[tuple[str, str]]:
    """Path and compression as literals for `file`; the path is valid within the context."""
    path, compression = Path(infile.path).absolute(), infile.compression
    if compression.lower() == "auto":
        ending = next((each for each in _COMPRESSED if path.name.lower().endswith(each)), "")
        compression = ending[1:] or "none"
    if not (_WILDCARDS.search(str(path)) and path.exists()):
        yield quote_string(str(path)), quote_string(compression)
        return
    number = os.open(path, os.O_RDONLY)  # ClickHouse would take the name for a pattern
    try:
        yield quote_string(f"/dev/fd/{number}"), quote_string(compression)
    finally:
        os.close(number)


def _types_in(path: str, format_name: str, compression: str, settings: Mapping[str, str]) -> dict[str, t.DataType]:
    """The types of a file's columns; empty if they cannot be determined: reading the file then reports why."""
    try:
        rows = engine.run(
            f"DESCRIBE TABLE file({path}, {quote_string(format_name)}, 'auto', {compression})", settings=settings
        ).table()
        return {row["name"]: t.parse_type(row["type"]) for row in rows.to_pylist()}
    except MergelakeError as failure:
        if failure.name == "QUERY_WAS_CANCELLED":
            raise
        return {}


def _with_numbers_of(targets: Mapping[str, t.DataType], file_types: Mapping[str, t.DataType]) -> dict[str, t.DataType]:
    return {name: _number_of(kind, file_types[name]) if name in file_types else kind for name, kind in targets.items()}


def _number_of(kind: t.DataType, file_type: t.DataType) -> t.DataType:
    """The column's type with the file's numbers in place of its integers."""
    file_type = t.inner_type(file_type)
    match kind:
        case t.Int() if isinstance(file_type, t.Int | t.Float | t.Decimal):
            return file_type
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            changed = _number_of(inner, file_type)
            return kind if changed == inner else changed
        case t.Nullable(inner):
            return t.Nullable(_number_of(inner, file_type))
        case t.Array(inner) if isinstance(file_type, t.Array):
            return t.Array(_number_of(inner, file_type.inner))
        case t.Map(key, value) if isinstance(file_type, t.Map):
            return t.Map(_number_of(key, file_type.key), _number_of(value, file_type.value))
        case t.Tuple(elements, names) if isinstance(file_type, t.Tuple) and file_type.names == names:
            pairs = zip(elements, file_type.elements, strict=False)
            if len(elements) == len(file_type.elements):
                return t.Tuple(tuple(_number_of(each, other) for each, other in pairs), names)
    return kind


def _of_file(failure: MergelakeError) -> MergelakeError:
    """The reader's error, reworded for an INSERT."""
    failure = explained(failure)
    if failure.name == "CANNOT_CONVERT_TYPE" and "cannot be safely converted" in failure.message:
        hint = "insert_conversion = 'clickhouse' converts it as ClickHouse does"
        return error("VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", failure.message, hint)
    if failure.name == "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN" and not failure.hint:
        failure.hint = "Make the column Nullable, or SETTINGS input_format_null_as_default = 1 takes its default"
    return failure
