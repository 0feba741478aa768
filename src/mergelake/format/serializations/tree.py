"""From a column's name and type to its serialiser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names, unreadable
from mergelake.format.serializations.json_object import JsonSerialization
from mergelake.format.serializations.lowcardinality import LowCardinalitySerialization
from mergelake.format.serializations.names import escape_for_file_name
from mergelake.format.serializations.nested import ArraySerialization, NullableSerialization, Sparse, TupleSerialization
from mergelake.format.serializations.scalars import Fixed, InlineString, SizedString
from mergelake.format.serializations.serialization import Serialization
from mergelake.format.serializations.serialization_json import ColumnKind
from mergelake.format.serializations.state_programs import state_program
from mergelake.format.serializations.states import States
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.format.serializations.variant import DynamicSerialization, VariantSerialization


@dataclass(frozen=True, slots=True)
class Form:
    """Which of the possible forms a part uses; the default is the classic one that we write."""

    string_sizes: bool = False
    """String columns and strings in tuples have a stream of lengths."""
    string_sizes_nested: bool = False
    """Strings in arrays, maps and nullables as well."""
    restart: bool = False
    """Written so that every granule stands alone, as in a Compact part."""
    continues: bool = False
    """Written without what stands once at the start of a stream: the rows follow those of other files."""
    kind: ColumnKind = ColumnKind()  # noqa: RUF009 (frozen)
    escaped: bool | None = None
    """Names of the types of a Variant are escaped in the names of its streams; None: only if one has a slash.

    ClickHouse before 25.11 does not escape them, and fails over a type with a slash in its name; newer ones take both.
    """


CLASSIC = Form()


def build_serialization(name: str, data_type: t.DataType, form: Form = CLASSIC) -> Serialization:
    """The serialiser of column `name`. NOT_IMPLEMENTED for a type that we cannot store yet."""
    if form.escaped is None:
        variants = (kind for kind in t.parts(data_type) if isinstance(kind, t.Variant))
        form = replace(form, escaped=any("/" in spelled for kind in variants for spelled in kind.names))
    return _Builder(form).node(
        escape_for_file_name(name), data_type, 0, form.kind, form.string_sizes, shared_sizes_stream(name, data_type)
    )


def is_readable(data_type: t.DataType) -> bool:
    """Whether columns of the type can be read: all types in it are known, and where states of aggregates end."""
    return not any(
        isinstance(kind, t.Unknown) or (isinstance(kind, t.AggregateFunction) and state_program(kind) is None)
        for kind in t.parts(data_type)
    )


class _Builder:
    def __init__(self, form: Form) -> None:
        self._nested_sizes = form.string_sizes_nested
        self._restart, self._continues = form.restart, form.continues
        self._escaped = form.escaped

    def node(
        self, path: str, data_type: t.DataType, depth: int, kind: ColumnKind, sized: bool, sizes: str | None = None
    ) -> Serialization:
        """The serialiser at `path`, under `depth` arrays; `sized` strings, `sizes` names a shared size stream."""
        if kind.sparse and kind.nullable and isinstance(data_type, t.Nullable) and _may_be_sparse(data_type.inner):
            inside = self.node(path, data_type.inner, depth, ColumnKind(), self._nested_sizes)
            return Sparse(path, inside, nullable=True)
        if kind.sparse and _may_be_sparse(data_type):
            plain = ColumnKind(False, kind.nullable, kind.elements)
            return Sparse(path, self.node(path, data_type, depth, plain, sized))
        match data_type:
            case t.String():
                return SizedString(path) if sized else InlineString(path)
            case t.SimpleAggregateFunction(_, inner):
                return self.node(path, inner, depth, kind, sized, sizes)
            case t.Nullable(inner):
                return NullableSerialization(path, self.node(path, inner, depth, ColumnKind(), self._nested_sizes))
            case t.LowCardinality(inner):
                nullable = isinstance(inner, t.Nullable)
                keys = inner.inner if isinstance(inner, t.Nullable) else inner
                # Dictionaries hold their strings inline, whatever the part does elsewhere.
                values = self.node(path, keys, depth, ColumnKind(), False)
                return LowCardinalitySerialization(
                    path, values, nullable=nullable, local=self._restart, continues=self._continues
                )
            case t.Array(inner):
                below = self.node(path, inner, depth + 1, ColumnKind(), self._nested_sizes)
                return ArraySerialization(sizes or f"{path}.size{depth}", below, _list_of(below.arrow, inner))
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
                return TupleSerialization(nodes, storage_type(data_type))
            case t.AggregateFunction():
                return States(path, data_type)
            case t.Variant(alternatives, spelled):
                return self.variant(path, depth, spelled, alternatives)
            case t.Dynamic(limit):
                return self.dynamic(path, depth, limit)
            case t.Json(typed):
                typed_nodes = [
                    self.node(f"{path}.{escape_for_file_name(name)}", each, depth, ColumnKind(), self._nested_sizes)
                    for name, each in typed
                ]

                def path_node(name: str) -> DynamicSerialization:
                    return self.dynamic(f"{path}.{escape_for_file_name(name)}", depth, data_type.max_types)

                return JsonSerialization(path, data_type, depth, typed_nodes, path_node)
            case t.Unknown():
                raise unreadable(data_type)
            case t.Nothing() | t.Tuple():
                raise error("NOT_IMPLEMENTED", f"Columns of type {data_type} are not supported yet")
            case _:
                return Fixed(path, storage_type(data_type))

    def variant(self, path: str, depth: int, names: Sequence[str], kinds: Sequence[t.DataType]) -> VariantSerialization:
        """The serialiser of a Variant over `kinds`, which ClickHouse calls `names`."""
        nodes = []
        for name, kind in zip(names, kinds, strict=True):
            stream = escape_for_file_name(name) if self._escaped else name
            nodes.append(self.node(f"{path}.{stream}", kind, depth, ColumnKind(), self._nested_sizes))
        fields = [pa.field(name, node.arrow) for name, node in zip(names, nodes, strict=True)]
        return VariantSerialization(path, nodes, pa.struct(fields))

    def dynamic(self, path: str, depth: int, limit: int) -> DynamicSerialization:
        """The serialiser of a Dynamic column, or of a path of a JSON column that is one."""
        return DynamicSerialization(path, limit, lambda names, kinds: self.variant(path, depth, names, kinds))


def _may_be_sparse(data_type: t.DataType) -> bool:
    """Whether columns of the type can be sparse: `serialization.json` also calls tuple elements so that cannot.

    Source: ClickHouse, `IDataType::supportsSparseSerialization`.
    """
    if isinstance(data_type, t.SimpleAggregateFunction):
        return _may_be_sparse(data_type.inner)
    others = (t.Array, t.Map, t.Tuple, t.LowCardinality, t.Nullable, t.Variant, t.Dynamic, t.Json)
    return not isinstance(data_type, others)


def _list_of(arrow: pa.DataType, inner: t.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", arrow, nullable=t.is_nullable(inner)))
