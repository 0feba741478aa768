"""Before a column gets another type, all of its values are converted: ALTER is refused if one cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mergelake.core.model.schema import TableSchema
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State
from mergelake.table.definition.refit import convert_values, raising_columns
from mergelake.table.handle.handle import TableHandle


def parts_to_judge(state: State, after: TableSchema) -> Iterator[ActivePart]:
    """The active parts with a column some of whose values may have no counterpart in its new type."""
    ids = {column.id for column in raising_columns(state.schema, after)}
    if ids:
        for part in state.parts():
            if part.manifest.rows and not ids.isdisjoint(part.manifest.columns):
                yield part


def check_values(handle: TableHandle, parts: Iterable[ActivePart], before: TableSchema, after: TableSchema) -> None:
    """Read the columns whose types change from parts, and convert them. Raises the error of CAST for a value."""
    columns = raising_columns(before, after)
    for part in parts:
        convert_values(handle, part.manifest, columns)
