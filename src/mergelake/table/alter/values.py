"""Before a column gets another type, all of its values are converted: ALTER is refused if one cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mergelake.core.schema import Column, TableSchema
from mergelake.log.state import ActivePart, State
from mergelake.parts.evolve import may_fail
from mergelake.parts.reader import PartReader
from mergelake.table.handle import TableHandle


def parts_to_judge(state: State, after: TableSchema) -> Iterator[ActivePart]:
    """The active parts with a column some of whose values may have no counterpart in its new type."""
    columns = _raising(state.schema, after)
    if columns:
        ids = {column.id for column in columns}
        for part in state.parts():
            if part.manifest.rows and not ids.isdisjoint(part.manifest.columns):
                yield part


def check_values(handle: TableHandle, parts: Iterable[ActivePart], before: TableSchema, after: TableSchema) -> None:
    """Read the columns whose types change from parts, and convert them. Raises the error of CAST for a value.

    Rows that are deleted by a mask count too: readers convert them before they look at the mask.
    """
    columns = {column.name: column for column in _raising(before, after)}
    for part in parts:
        reader = PartReader(handle.store, handle.directory, part.manifest, columns)
        for _ in reader.read([name for name in columns if reader.has_column(name)], with_deleted=True):
            pass


def _raising(before: TableSchema, after: TableSchema) -> list[Column]:
    """The columns whose new types may not take every value."""
    types = {column.id: column.type for column in before.stored}
    out = []
    for column in after.stored:
        kind = types.get(column.id, column.type)
        for change in column.changed_since(before.version):
            if may_fail(kind, change.type, change.null):
                out.append(column)
                break
            kind = change.type
    return out
