"""The members of a large set in comparable form, whole columns at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.values import arrow_values
from mergelake.scan.prune.ordered import Value, ordered

CELLS_MAX = 1 << 62
"""Numbers of cells of all compared columns together (`InSet.digits`)."""


def same_type_values(
    right: BoundLiteral, types: Sequence[t.DataType], wide: bool, positions: Sequence[int]
) -> list[tuple[Value, ...]] | None:
    """Comparable values of the elements at `positions` of each member of an array; `wide`: members are tuples.

    `types` are those of the left side. None if the members have other types, or a value has no order (NaN). Members
    with a NULL match nothing and are omitted.
    """
    array = t.inner_type(right.type)
    if not isinstance(array, t.Array):
        return None
    member = t.inner_type(array.inner)
    kinds = [t.inner_type(e) for e in member.elements] if wide and isinstance(member, t.Tuple) else [member]
    if kinds != [t.inner_type(each) for each in types]:
        return None
    rows: list[Any]
    if wide:
        rows = [row for row in right.value if None not in row]
    else:
        rows = [(value,) for value in right.value if value is not None]
    columns = []
    for position in positions:
        kind = kinds[position]
        storage = pa.array(arrow_values([row[position] for row in rows], kind), storage_type(kind))
        ordering = ordered(storage, kind)
        if ordering.missing is not None and bool(ordering.missing.any()):
            return None
        values = ordering.values
        columns.append(values.to_pylist() if isinstance(values, pa.Array) else values.tolist())
    return list(zip(*columns, strict=True))


def leading_columns(values: Collection[tuple[Value, ...]]) -> int:
    """How many leading columns of the rows fit into one number of cells; at least one does."""
    width = len(next(iter(values), ()))
    if (2 * len(values) + 2) ** width < CELLS_MAX:
        return width
    cells = 1
    for count, column in enumerate(zip(*values, strict=True)):
        cells *= 2 * len(set(column)) + 2
        if cells >= CELLS_MAX:
            return count
    return width
