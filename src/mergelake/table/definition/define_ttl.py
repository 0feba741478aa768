"""Checks the TTL of a table and of its columns, for `table.definition.define` and ALTER.

Source: ClickHouse, `TTLDescription.cpp`, `MergeTreeData::checkTTLExpressions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import quote_identifier_if_needed
from mergelake.core.model.schema import TableSchema
from mergelake.engines.order.keys import table_keys
from mergelake.engines.ttl.ttl import BoundTtl, bind_ttl, expired_value, has_ttl, is_time
from mergelake.engines.ttl.ttl_groups import check_grouping
from mergelake.engines.ttl.ttl_text import TtlElement, column_ttl, parse_ttl
from mergelake.expr.nodes import SyntaxNode, referenced_columns
from mergelake.expr.parser import parse, parse_aggregate
from mergelake.format.codecs.codec import parse_default_codec
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.table.definition.define_indexes import varying_function

_ONE_DELETE = "More than one DELETE TTL expression without WHERE expression is not allowed"


def check_ttl(schema: TableSchema) -> TableSchema:
    """The schema with its TTLs as ClickHouse prints them, one element a text.

    Raises BAD_TTL_EXPRESSION for one that is no date or time, BAD_ARGUMENTS for one that is no function of the row,
    ILLEGAL_COLUMN for a TTL of a column of a key, and other errors of ClickHouse; NOT_IMPLEMENTED for what is not
    supported, by name.
    """
    if not has_ttl(schema):
        return schema
    elements = [element for text in schema.ttl for element in parse_ttl(text)]
    if sum(element.kind == "rows" for element in elements) > 1:
        raise error("BAD_TTL_EXPRESSION", _ONE_DELETE, "Give the others a WHERE")
    if sum(element.kind == "group_by" for element in elements) > 1:
        message = "A table with more than one TTL … GROUP BY is not supported"
        raise error("NOT_IMPLEMENTED", message, "Make them one")
    for element in elements:
        _check(element, schema)
    keys = table_keys(schema)
    of_keys = {name for key in (*keys.partition, *keys.sorting) for name in key.columns}
    columns = []
    for column in schema.columns:
        if not column.ttl:
            columns.append(column)
            continue
        if column.name in of_keys:
            raise error("ILLEGAL_COLUMN", f"Trying to set TTL for key column {column.name}")
        element = column_ttl(column.name, column.ttl)
        _check(element, schema)
        if shared_sizes_stream(column.name, column.type):
            raise error("NOT_IMPLEMENTED", f"A TTL of the Nested column {column.name} is not supported", "Leave it out")
        if column.default_kind in ("ALIAS", "EPHEMERAL"):
            raise error("NOT_IMPLEMENTED", f"A TTL of the {column.default_kind} column {column.name} does nothing")
        expired_value(schema, column.name, 0)
        columns.append(replace(column, ttl=element.expression))
    return replace(schema, columns=tuple(columns), ttl=tuple(map(str, elements)))


def _check(element: TtlElement, schema: TableSchema) -> BoundTtl:
    tree = parse(element.expression)
    _check_names(tree, schema)
    if not referenced_columns(tree):
        message = f"TTL expression {element.expression} does not depend on any of the columns of the table"
        raise error("BAD_ARGUMENTS", message)
    _check_varying(tree)
    if element.where:
        where = parse(element.where)
        _check_names(where, schema)
        _check_varying(where)
    stored = {column.name: column for column in schema.stored}
    bound = bind_ttl(element, stored)
    if not bound.time.columns:
        message = f"TTL expression {element.expression} does not depend on any of the columns of the table"
        raise error("BAD_ARGUMENTS", message)
    if not is_time(bound.time.type):
        message = "TTL expression result column should have Date, Date32, DateTime or DateTime64 type, but has"
        raise error("BAD_TTL_EXPRESSION", f"{message} {bound.time.type}")
    if element.kind == "recompression":
        parse_default_codec(element.codec)
    if element.kind == "group_by":
        check_grouping(element, schema)
        for _, text in element.assignments:
            _check_varying(parse_aggregate(text))
    return bound


def _check_names(tree: SyntaxNode, schema: TableSchema) -> None:
    """UNKNOWN_IDENTIFIER for a column that is computed on reading."""
    for name in referenced_columns(tree):
        if schema.has(name) and schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
            raise _missing([name], tree)


def _missing(names: Sequence[str], tree: SyntaxNode) -> MergelakeError:
    shown = " ".join(f"'{quote_identifier_if_needed(name)}'" for name in names)
    return error("UNKNOWN_IDENTIFIER", f"Missing columns: {shown} while processing: '{tree}'")


def _check_varying(tree: SyntaxNode) -> None:
    if (varying := varying_function(tree)) is not None:
        message = f"TTL expression cannot contain non-deterministic functions, but contains function {varying}"
        raise error("BAD_ARGUMENTS", message)
