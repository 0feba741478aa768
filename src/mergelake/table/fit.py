"""Whether parts of one table may stand in another: the checks of ClickHouse, with its codes. Pure."""

from __future__ import annotations

from mergelake.core.errors import MergelakeError, error
from mergelake.core.schema import TableSchema
from mergelake.core.settings import TableSettings

_HINT = "The columns, the keys and the indexes of both tables have to be the same"


def check_fit(source: TableSchema, target: TableSchema) -> None:
    """Raise INCOMPATIBLE_COLUMNS or BAD_ARGUMENTS unless parts of `source` may be attached to `target`.

    Columns are compared by names and types, in any order; engines, defaults and most settings
    may differ, and the target may have further indexes, as in ClickHouse.
    """
    columns = {column.name: column.type for column in source.stored}
    there = {column.name: column.type for column in target.stored}
    if columns != there:
        different = sorted(name for name in {*columns, *there} if columns.get(name) != there.get(name))
        raise error("INCOMPATIBLE_COLUMNS", f"Tables have different structure: {', '.join(different[:5])}", _HINT)
    if (source.order_by, source.order_desc) != (target.order_by, target.order_desc):
        raise _different("ordering")
    if source.partition_by != target.partition_by:
        raise _different("partition key")
    if (source.primary_key or source.order_by) != (target.primary_key or target.order_by):
        raise _different("primary key")
    own = {index.name: index for index in target.indices}
    if any(own.get(index.name) != index for index in source.indices):
        raise _different("secondary indices")
    if _fixed_granules(source) != _fixed_granules(target):
        raise _different("index_granularity, without adaptive granules")


def _fixed_granules(schema: TableSchema) -> int:
    """Rows of a granule of parts that do not say so themselves; 0: they do."""
    settings = TableSettings(schema.settings)
    return 0 if settings.integer("index_granularity_bytes") else settings.integer("index_granularity")


def _different(what: str) -> MergelakeError:
    return error("BAD_ARGUMENTS", f"Tables have different {what}", _HINT)
