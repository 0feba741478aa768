"""From a column's name and type to its serialiser: the one place that knows how each type lies."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from mergelake.core import types as t
from mergelake.core.arrow import storage_type, tuple_names
from mergelake.core.errors import error
from mergelake.format.lowcardinality import LowCardinality
from mergelake.format.names import escape_for_file_name
from mergelake.format.nested import Array, Nullable, Sparse, Tuple
from mergelake.format.node import Node
from mergelake.format.scalars import Fixed, InlineString, SizedString
from mergelake.format.serialization_json import ColumnKind
from mergelake.format.states import States
from mergelake.format.streams import shared_sizes_stream


@dataclass(frozen=True, slots=True)
class Form:
    """Which of the possible forms a part uses; the default is the classic one that we write."""

    string_sizes: bool = False
    """String columns and strings in tuples have a stream of lengths."""
    string_sizes_nested: bool = False
    """Strings in arrays, maps and nullables as well."""
    restart: bool = False
    """Written so that every granule stands alone, as in a Compact part."""
    kind: ColumnKind = ColumnKind()  # noqa: RUF009 (frozen)


CLASSIC = Form()


def build_node(name: str, data_type: t.DataType, form: Form = CLASSIC) -> Node:
    """The serialiser of column `name`. NOT_IMPLEMENTED for a type that we cannot store yet."""
    return _Builder(form).node(
        escape_for_file_name(name), data_type, 0, form.kind, form.string_sizes, shared_sizes_stream(name, data_type)
    )


class _Builder:
    def __init__(self, form: Form) -> None:
        self._nested_sizes = form.string_sizes_nested
        self._restart = form.restart

    def node(
        self, path: str, data_type: t.DataType, depth: int, kind: ColumnKind, sized: bool, sizes: str | None = None
    ) -> Node:
        """The serialiser at `path`, under `depth` arrays; `sized` strings, `sizes` names a shared size stream."""
        if kind.sparse and _may_be_sparse(data_type):
            plain = ColumnKind(False, kind.elements)
            return Sparse(path, self.node(path, data_type, depth, plain, sized))
        match data_type:
            case t.String():
                return SizedString(path) if sized else InlineString(path)
            case t.SimpleAggregateFunction(_, inner):
                return self.node(path, inner, depth, kind, sized, sizes)
            case t.Nullable(inner):
                return Nullable(path, self.node(path, inner, depth, ColumnKind(), self._nested_sizes))
            case t.LowCardinality(inner):
                nullable = isinstance(inner, t.Nullable)
                keys = inner.inner if isinstance(inner, t.Nullable) else inner
                # Dictionaries hold their strings inline, whatever the part does elsewhere.
                values = self.node(path, keys, depth, ColumnKind(), False)
                return LowCardinality(path, values, nullable=nullable, local=self._restart)
            case t.Array(inner):
                below = self.node(path, inner, depth + 1, ColumnKind(), self._nested_sizes)
                return Array(sizes or f"{path}.size{depth}", below, _list_of(below.arrow, inner))
            case t.Map(key, value):
                pairs = t.Array(t.Tuple((key, value), ("keys", "values")))
                return self.node(path, pairs, depth, kind, sized, sizes)
            case t.Tuple(elements) if elements:
                names = tuple_names(data_type)
                kinds = kind.elements or (ColumnKind(),) * len(elements)
                if len(kinds) != len(elements):
                    raise error("INCORRECT_DATA", f"serialization.json has {len(kinds)} kinds for {data_type}")
                nodes = [
                    self.node(f"{path}%2E{escape_for_file_name(name)}", element, depth, each, sized)
                    for name, element, each in zip(names, elements, kinds, strict=True)
                ]
                return Tuple(nodes, storage_type(data_type))
            case t.AggregateFunction():
                return States(path, data_type)
            case t.Nothing() | t.Tuple():
                raise error("NOT_IMPLEMENTED", f"Columns of type {data_type} are not supported yet")
            case _:
                return Fixed(path, storage_type(data_type))


def _may_be_sparse(data_type: t.DataType) -> bool:
    """Whether columns of the type ever lie sparse: `serialization.json` calls elements of tuples so that never do.

    Source: ClickHouse, `IDataType::supportsSparseSerialization`.
    """
    if isinstance(data_type, t.SimpleAggregateFunction):
        return _may_be_sparse(data_type.inner)
    return not isinstance(data_type, (t.Array, t.Map, t.Tuple, t.LowCardinality, t.Nullable))


def _list_of(arrow: pa.DataType, inner: t.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", arrow, nullable=t.is_nullable(inner)))
