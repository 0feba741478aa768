"""Whether parts of one table may stand in another: the checks of ClickHouse, with its codes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import SkipIndex, TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.log.model.parts import ActivePart

_HINT = "The columns, the keys, the indexes and the projections of both tables have to be the same"


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
    if not set(map(definition, source.indices)) <= set(map(definition, target.indices)):
        raise _different("secondary indices")
    if not set(source.projections) <= set(target.projections):
        raise _different("projections")
    if _fixed_granules(source) != _fixed_granules(target):
        raise _different("index_granularity, without adaptive granules")


def check_projections_fit(source: TableSchema, target: TableSchema, parts: Iterable[ActivePart]) -> None:
    """BAD_ARGUMENTS if a part has a projection, perhaps a dropped one, whose name is not that of the same in `target`.

    ClickHouse finds projections of parts by name.
    """
    held = {name for part in parts for name in part.manifest.projections}
    own = {each for each in (*source.projections, *source.past_projections) if each.name in held}
    if not own <= {*target.projections, *target.past_projections}:
        raise _different("projections")


def definition(index: SkipIndex) -> tuple[object, ...]:
    """What an index is, whenever it was added."""
    return index.name, index.expression, index.type, index.granularity


def _fixed_granules(schema: TableSchema) -> int:
    """Rows of a granule of parts that do not say so themselves; 0: they do."""
    settings = TableSettings(schema.settings)
    return 0 if settings.integer("index_granularity_bytes") else settings.integer("index_granularity")


def _different(what: str) -> MergelakeError:
    return error("BAD_ARGUMENTS", f"Tables have different {what}", _HINT)
