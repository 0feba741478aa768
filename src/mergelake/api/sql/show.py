"""SHOW and DESCRIBE: schemas as text and as results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mergelake.api.sql.result import Result, rows_result
from mergelake.api.sql.statements import Like
from mergelake.core.base.text import back_quote, quote_identifier_if_needed, quote_string
from mergelake.core.model.schema import Column, Constraint, Projection, SkipIndex, TableSchema
from mergelake.engines.order.keys import table_keys
from mergelake.engines.rules.collapsing import without_version

_NULLABLE = ("Nullable(", "LowCardinality(Nullable(")


def create_table_text(name: str, schema: TableSchema) -> str:
    """The CREATE TABLE statement that makes this table, laid out as ClickHouse does; `name` is `database.table`."""
    schema = without_version(schema)
    full = ".".join(quote_identifier_if_needed(part) for part in name.split(".", 1))
    inside = [f"    {column_text(column)}" for column in schema.columns]
    inside += [f"    {index_text(index)}" for index in schema.indices]
    inside += [f"    {constraint_text(constraint)}" for constraint in schema.constraints]
    inside += [f"    {projection_text(each)}" for each in schema.projections]
    lines = [f"CREATE TABLE {full}", "(", ",\n".join(inside), ")", f"ENGINE = {engine_text(schema)}"]
    if schema.partition_by:
        lines.append(f"PARTITION BY {key_text(schema.partition_by)}")
    if schema.primary_key and schema.primary_key != schema.order_by:
        lines.append(f"PRIMARY KEY {key_text(schema.primary_key)}")
    lines.append(f"ORDER BY {sorting_text(schema)}")
    if schema.sample_by:
        lines.append(f"SAMPLE BY {schema.sample_by}")
    if schema.ttl:
        lines.append(f"TTL {', '.join(schema.ttl)}")
    settings = {"index_granularity": "8192", **schema.settings}
    lines.append("SETTINGS " + ", ".join(f"{key} = {_value(value)}" for key, value in settings.items()))
    if schema.comment:
        lines.append(f"COMMENT {quote_string(schema.comment)}")
    return "\n".join(lines)


def index_text(index: SkipIndex) -> str:
    """`INDEX i s TYPE minmax GRANULARITY 1`."""
    name = quote_identifier_if_needed(index.name)
    return f"INDEX {name} {index.expression} TYPE {index.type} GRANULARITY {index.granularity}"


def projection_text(projection: Projection) -> str:
    """`PROJECTION p (SELECT a ORDER BY b)`."""
    return f"PROJECTION {quote_identifier_if_needed(projection.name)} ({projection.query})"


def constraint_text(constraint: Constraint) -> str:
    """`CONSTRAINT c CHECK n > 0`."""
    return f"CONSTRAINT {quote_identifier_if_needed(constraint.name)} {constraint.kind} {constraint.expression}"


def engine_text(schema: TableSchema) -> str:
    """`ReplacingMergeTree(ver)`."""
    return schema.engine + (f"({', '.join(schema.engine_args)})" if schema.engine_args else "")


def key_text(parts: tuple[str, ...]) -> str:
    """A key as one expression: `a`, `(a, b)`, `tuple()`."""
    if not parts:
        return "tuple()"
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def sorting_text(schema: TableSchema) -> str:
    """The sorting key with its directions."""
    if not any(schema.order_desc):
        return key_text(schema.order_by)
    pairs = zip(schema.order_by, schema.order_desc, strict=True)
    return f"({', '.join(text + ' DESC' * down for text, down in pairs)})"


def _value(text: str) -> str:
    return text if re.fullmatch(r"-?\d+(\.\d+)?", text) else quote_string(text)


def column_text(column: Column) -> str:
    """`` `k` UInt64 DEFAULT 1 COMMENT '…' ``."""
    out = f"{back_quote(column.name)} {column.type}"
    if column.default_kind:
        out += f" {column.default_kind}" + (f" {column.default}" if column.default else "")
    if column.comment:
        out += f" COMMENT {quote_string(column.comment)}"
    if column.codec:
        out += f" CODEC({column.codec})"
    if column.ttl:
        out += f" TTL {column.ttl}"
    return out


def default_text(column: Column) -> str:
    """The expression of a default, as ClickHouse tells it."""
    if column.default_kind == "EPHEMERAL" and not column.default:
        return f"defaultValueOfTypeName({quote_string(str(column.type))})"
    return column.default


def describe_columns(columns: Mapping[str, str]) -> Result:
    """DESCRIBE of a table of which only column names and types are known."""
    rest = ("default_type", "default_expression", "comment", "codec_expression", "ttl_expression")
    described = {"name": list(columns), "type": list(columns.values()), **{name: [""] * len(columns) for name in rest}}
    return rows_result(described, dict.fromkeys(described, "String"))


def describe(schema: TableSchema, *, compact: bool = False) -> Result:
    """DESCRIBE TABLE, with ClickHouse's columns; `compact` has names and types alone."""
    columns = schema.columns
    described = {"name": [c.name for c in columns], "type": [str(c.type) for c in columns]}
    if not compact:
        described |= {
            "default_type": [c.default_kind for c in columns],
            "default_expression": [default_text(c) for c in columns],
            "comment": [c.comment for c in columns],
            "codec_expression": [c.codec for c in columns],
            "ttl_expression": [c.ttl for c in columns],
        }
    return rows_result(described, dict.fromkeys(described, "String"))


def columns_of(schema: TableSchema, like: Like | None, *, full: bool = False) -> Result:
    """SHOW COLUMNS of a table; `full` includes comments."""
    keys = table_keys(schema)
    primary, sorting = ({name for key in part for name in key.columns} for part in (keys.primary, keys.sorting))
    column_facts = {
        c.name: (" ".join(["PRI"] * (c.name in primary) + ["SOR"] * (c.name in sorting)), c.default or None, c.comment)
        for c in schema.columns
    }
    return named_columns({c.name: str(c.type) for c in schema.columns}, like, column_facts, full=full)


def named_columns(
    types: Mapping[str, str],
    like: Like | None,
    column_facts: Mapping[str, tuple[str, str | None, str]] | None = None,
    *,
    full: bool = False,
) -> Result:
    """SHOW COLUMNS in order of names: `types` by name, and `column_facts`: each column's keys, default and comment."""
    chosen = sorted((name for name in types if like is None or matches(name, like)), key=str.encode)
    facts = [(column_facts or {}).get(name, ("", None, "")) for name in chosen]
    shown: dict[str, list[Any]] = {
        "field": chosen,
        "type": [types[name] for name in chosen],
        "null": ["YES" if types[name].startswith(_NULLABLE) else "NO" for name in chosen],
        "key": [keys for keys, _, _ in facts],
        "default": [default for _, default, _ in facts],
        "extra": [""] * len(chosen),
    }
    if full:
        shown |= {
            "collation": [None] * len(chosen),
            "comment": [comment for _, _, comment in facts],
            "privileges": [""] * len(chosen),
        }
    kinds = {"default": "Nullable(String)", "collation": "Nullable(Nothing)"}
    return rows_result(shown, {name: kinds.get(name, "String") for name in shown})


def names(all_names: Iterable[str], like: Like | None) -> Result:
    """A result with one column `name`: the names that match `like`."""
    return rows_result(
        {"name": [name for name in all_names if like is None or matches(name, like)]}, {"name": "String"}
    )


def matches(name: str, like: Like) -> bool:
    """LIKE: `%` any characters, `_` one, backslash escapes."""
    pieces = re.findall(r"\\.|%|_|[^\\%_]+|\\", like.pattern, re.DOTALL)
    pattern = "".join(
        ".*" if p == "%" else "." if p == "_" else re.escape(p[1:] if len(p) == 2 and p[0] == "\\" else p)
        for p in pieces
    )
    match = re.fullmatch(pattern, name, re.DOTALL | (re.IGNORECASE if like.ignore_case else 0))
    return (match is None) if like.negated else (match is not None)
