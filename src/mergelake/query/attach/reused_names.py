"""Names of columns and indexes that mean something else in older parts of a table."""

from __future__ import annotations

from collections.abc import Mapping

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import TableSchema
from mergelake.query.statement.access import check_expression


def differs(newest: TableSchema, schemas: Mapping[int, TableSchema], versions: frozenset[int]) -> str:
    """Why a name of a column or an index has another meaning in parts of the schemas in `versions` than in the newest.

    Empty if none has. ClickHouse reads them from parts by name, and names may have been reused.
    """
    try:
        for column in newest.columns:
            check_expression(column.default)
    except MergelakeError:
        return "a default reaches outside of its columns"
    older = versions - {newest.version}
    if not older:
        return ""
    today = {(column.name, column.id, column.type) for column in newest.columns}
    names, ids = {name for name, _, _ in today}, {column_id for _, column_id, _ in today}
    for version in older:
        changed = [column.name for column in newest.columns if column.changed_since(version)]
        if changed:
            return f"column {changed[0]} had another type when parts were written"
        others = {index.name for index in newest.indices if not index.is_of(version)}
        for index in schemas[version].indices if version in schemas else ():
            if index.name in others:
                return f"index {index.name} was another one when parts were written"
        for column in schemas[version].columns if version in schemas else newest.columns:
            same = (column.name, column.id, column.type) in today
            if not same and (column.name in names or column.id in ids):
                return f"column {column.name} was another one when parts were written"
    return ""
