"""MATERIALIZE COLUMN, and CLEAR COLUMN in one partition: an UPDATE of all rows to the column's own expression. Pure."""

from __future__ import annotations

from mergelake.core.base.errors import error
from mergelake.core.base.text import quote_identifier_if_needed, quote_string
from mergelake.core.convert.text_write import to_text
from mergelake.core.model.schema import TableSchema, unknown_column
from mergelake.core.types import types as t
from mergelake.engines.order.keys import key_tree
from mergelake.expr.nodes import ColumnRef
from mergelake.format.serializations.defaults import default_array
from mergelake.jobs.mutate.validate import fixed_columns
from mergelake.table.definition.columns import is_missing
from mergelake.table.definition.needs import check_not_of_key
from mergelake.table.pending.commands import Update

_EVERY_ROW = "1"


def materialize_column(schema: TableSchema, name: str, partition_id: str | None = None) -> Update | None:
    """The values of a column as parts are to hold them; None for an ALIAS column, which no part holds.

    A column with a DEFAULT keeps the values that it has, those of parts that lack it too; a MATERIALIZED one is
    computed anew. NO_SUCH_COLUMN_IN_TABLE, CANNOT_UPDATE_COLUMN for one of a key, BAD_ARGUMENTS for one without an
    expression.
    """
    if not schema.has(name):
        raise unknown_column(name, list(schema.names))
    column = schema.column(name)
    if any(key_tree(text, schema.names) == ColumnRef(name) for text in schema.order_by):
        raise error("CANNOT_UPDATE_COLUMN", f"Cannot UPDATE key column {name}", "Every part has it")
    if not column.default:
        message = f"Cannot materialize column {name} because it doesn't have default expression"
        raise error("BAD_ARGUMENTS", message, "Parts that lack it have the default of its type")
    kept = column.default_kind == "DEFAULT" and name in fixed_columns(schema)  # every part has it
    if kept or column.default_kind in ("ALIAS", "EPHEMERAL"):
        return None
    own = quote_identifier_if_needed(name)
    value = column.default if column.default_kind == "MATERIALIZED" else own
    return Update(((name, value),), _EVERY_ROW, partition_id, own_value=True)


def clear_column(schema: TableSchema, name: str, partition_id: str) -> Update | None:
    """The default of a column in all rows of a partition; None for a column that no part holds.

    NOT_FOUND_COLUMN_IN_BLOCK, and ALTER_OF_COLUMN_IS_FORBIDDEN for a column of a key.
    """
    is_missing(name, schema, "drop", if_exists=False)  # raises
    check_not_of_key(name, schema, "CLEAR")
    column = schema.column(name)
    if column.default_kind in ("ALIAS", "EPHEMERAL"):
        return None
    return Update(((name, column.default or default_value(column.type)),), _EVERY_ROW, partition_id, own_value=True)


def default_value(kind: t.DataType) -> str:
    """The default value of a type, as an expression."""
    final = quote_string(str(kind))
    match kind:
        case t.Nullable():
            return "NULL"
        case t.Array():
            return f"CAST([], {final})"
        case t.Map():
            return f"CAST(map(), {final})"
        case t.Tuple(elements):
            return f"CAST(tuple({', '.join(map(default_value, elements))}), {final})"
        case t.FixedString():
            return f"CAST('', {final})"
    if t.is_nullable(kind):
        return "NULL"
    text = to_text(default_array(kind, 1), kind)[0].as_py()
    return f"CAST({quote_string(text.decode())}, {final})"
