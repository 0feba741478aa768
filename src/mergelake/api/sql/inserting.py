"""INSERT: inline data, a file or a SELECT, in one commit. Nothing is committed unless all of it fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from mergelake.api.sql.clickhouse_reader import conversion_of, read_all, reading_settings
from mergelake.api.sql.formats import after_line, format_of, read_rows
from mergelake.api.sql.infile import check_file, format_of_path, input_format, insert_file, text_of
from mergelake.api.sql.insert_select import insert_selected
from mergelake.api.sql.json_rows import Unsure
from mergelake.api.sql.settings import OWN_SETTINGS, check_reading, judged, merged, plain
from mergelake.api.sql.statements import Insert
from mergelake.api.sql.values import names_and_types
from mergelake.core.base.cancel import check
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.ids import seed_of
from mergelake.core.base.lexer import tokenize
from mergelake.core.model.schema import Column, TableSchema, unknown_column
from mergelake.core.types import types as t
from mergelake.query.embedded.engine import available
from mergelake.query.statement.access import check_data, denied
from mergelake.table.rows.blocks import alias_given

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session

_ORDERED = re.compile(r"\border\s+by\s+all\s*(settings\b[^()]*)?$", re.IGNORECASE)
_ALSO_OF_TABLES = ("max_partitions_per_insert_block", "optimize_on_insert")


def run_insert(db: Session, insert: Insert, script: str, table: Table | None = None) -> int:
    """Append the statement's rows, to `table` if it has no name yet, and return their number."""
    if insert.infile is not None:
        if not db.allow_external_access:
            raise denied("INSERT … FROM INFILE reads a file")
        check_file(insert.infile)
    table = db.open(insert.name) if table is None else table
    settings = merged(db.settings, judged(insert.settings))
    token, by_rows = _deduplication(settings, insert.query)
    strict = conversion_of(settings) == "strict"
    targets = target_columns(insert, table.schema, table.name)
    write = partial(
        table.insert, dedup_token=token, by_part=True, by_rows=by_rows, settings=_of_table(settings),
        on_progress=db.on_progress,
    )  # fmt: skip
    if insert.query:
        return insert_selected(db, insert.query, targets, write, strict=strict)
    if insert.infile is not None:
        name = input_format(insert.format) if insert.format else format_of_path(insert.infile.path)
        reading_settings(settings, name)
        if name != "Values":
            clickhouse_settings = {key: value for key, value in settings.items() if key not in OWN_SETTINGS}
            return insert_file(
                insert.infile,
                name,
                targets,
                table.schema,
                clickhouse_settings,
                write,
                strict=strict,
                on_progress=db.on_progress,
            )
        script = text_of(insert.infile)
        insert = replace(insert, format=name, data=script)
    check_reading(settings)
    external = db.allow_external_access
    if (reading := reading_settings(settings, format_of(insert.format))) or not strict:
        known, data_lines = format_of(insert.format), after_line(insert.data)
        if known == "Values":
            if not external:
                check_data(data_lines)
            _check_default_cells(data_lines, settings)
        data = read_all(known, data_lines, targets, table.schema, reading, strict=strict)
    else:
        try:
            rows = read_rows(insert, targets, script, external=external)
            data = rows.complete(table.schema, db.warehouse.clock.now_ms(), seed_of(db.warehouse.ids))
        except Unsure as unsure:
            data = _read_by_clickhouse(unsure.failure, insert, targets, table.schema)
    check()
    if data.num_rows:
        write(data)
    return int(data.num_rows)


def _check_default_cells(data: str, settings: Mapping[str, str]) -> None:
    """NOT_IMPLEMENTED for DEFAULT among VALUES where a setting gives it the type's default, not the column's."""
    setting = "input_format_defaults_for_omitted_fields"
    if plain(settings).get(setting) == "0" and any(token.upper == "DEFAULT" for token in tokenize(data)):
        raise error("NOT_IMPLEMENTED", f"DEFAULT in VALUES with {setting} = 0 is not supported", "Write the value")


def _read_by_clickhouse(
    failure: MergelakeError, insert: Insert, targets: Mapping[str, t.DataType], schema: TableSchema
) -> pa.Table:
    """Data that our reader is unsure of, as ClickHouse reads it. Raises `failure` if ClickHouse is not available."""
    if not available():
        raise failure
    try:
        return read_all(format_of(insert.format), after_line(insert.data), targets, schema, {}, strict=True)
    except MergelakeError as theirs:
        if theirs.name == failure.name and not theirs.hint:
            theirs.hint = failure.hint
        raise


def _of_table(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of the statement that replace the table's settings of the same names."""
    table_settings = {name: text for name, text in plain(settings).items() if name in _ALSO_OF_TABLES}
    if plain(settings).get("throw_on_max_partitions_per_insert_block") == "0":
        table_settings["max_partitions_per_insert_block"] = "0"
    return table_settings


def _deduplication(settings: Mapping[str, str], query: str) -> tuple[str, bool]:
    """The insert's deduplication token, and whether its rows may identify it; by ClickHouse's settings (literals).

    A SELECT may return other rows the next time it runs: its rows are compared only if their order is fixed.
    """
    held = plain(settings)
    mode = held.get("deduplicate_insert", "enable")
    if query:
        mode = "disable" if mode == "disable" else held.get("deduplicate_insert_select", "enable_when_possible")
    if mode == "disable":
        return "", False
    token = held.get("insert_deduplication_token") or held.get("dedup_token", "")
    stable = not query or _ORDERED.search(query) is not None
    if mode == "force_enable" and not (token or stable):
        raise error(
            "DEDUPLICATION_IS_NOT_POSSIBLE",
            "Deduplication for INSERT SELECT with non-stable SELECT is not possible",
            "Add ORDER BY ALL to the SELECT, or an insert_deduplication_token",
        )
    return token, stable


def target_columns(insert: Insert, schema: TableSchema, table: str) -> dict[str, t.DataType]:
    """The columns that the statement fills, in its order.

    Raises NO_SUCH_COLUMN_IN_TABLE, DUPLICATE_COLUMN or ILLEGAL_COLUMN.
    """
    for name in (*insert.columns, *insert.excluded):
        if not schema.has(name):
            raise unknown_column(name, list(schema.names), table)
    if insert.columns:
        chosen = [schema.column(name) for name in insert.columns]
        for column in chosen:
            if column.default_kind == "ALIAS":
                raise alias_given(column.name, table)
            if column.default_kind == "MATERIALIZED":
                raise error(
                    "ILLEGAL_COLUMN",
                    f"Cannot insert column {column.name}, because it is {column.default_kind} column",
                    "Leave it out: its value is computed",
                )
    else:
        chosen = [c for c in schema.columns if _by_default(c) and c.name not in insert.excluded]
    if not chosen and not insert.query:
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "Empty list of columns to insert", "Name at least one column")
    return names_and_types([(column.name, column.type) for column in chosen])


def _by_default(column: Column) -> bool:
    return column.default_kind in ("", "DEFAULT")
