"""A table's TTL, bound to its columns: at which time does each row expire, and by which element?

A manifest names an element by its kind and a digest of what it computes, with columns by their ids: times that were
computed by another TTL, before an ALTER, are never taken for those of the present one, and renaming a column keeps
them.

Source: ClickHouse, `src/Storages/TTLDescription.cpp` and `src/Processors/TTL/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import InternalError
from mergelake.core.base.text import quote_string
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.model.ttl import Seconds, TtlInfo, merged_info
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType, inner_type, parse_type
from mergelake.engines.order.keys import Block, whole_column
from mergelake.engines.rules.mode import Mask
from mergelake.engines.ttl.ttl_text import TtlElement, column_ttl, parse_ttl
from mergelake.expr import Call, ColumnRef, Compiled, SyntaxNode, compile_expression
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.bound import BoundCall
from mergelake.expr.parser import parse, parse_aggregate
from mergelake.format.files.ttl_txt import TtlFile, encode_ttl

Infos = Mapping[str, TtlInfo]
"""Times by the key of the element."""
PackedInfos = Mapping[str, tuple[int, ...]]
"""`Infos` as a manifest holds them."""
DAY_SECONDS = 86400


@dataclass(frozen=True, slots=True)
class BoundTtl:
    """One element, bound."""

    element: TtlElement
    key: str
    """Its name in manifests: `rows:1a2b3c4d`."""
    reads: tuple[str, ...]
    """The columns by which it is decided which rows expire."""
    time: Compiled
    """Over columns of types that hold any result: of `wide_time`."""
    types: Mapping[str, DataType]
    """The types of the columns that `time` reads."""
    where: Compiled | None = None

    @property
    def may_fail(self) -> bool:
        """Whether it has no value for some rows, as for texts that are no times."""
        return any(
            isinstance(each.node, BoundCall) and each.node.can_raise
            for each in (self.time, self.where)
            if each is not None
        )

    def seconds(self, block: Block) -> Seconds:
        """The time at which each row expires, in seconds since the epoch; 0: never."""
        arrays = [_widened(whole_column(block, name), self.types[name]) for name in self.time.columns]
        values = self.time.evaluate(pa.RecordBatch.from_arrays(arrays, list(self.time.columns)))
        return seconds_of(values, self.time.type)

    def matches(self, block: Block) -> Mask:
        """Of each row whether the element concerns it."""
        return np.ones(block.num_rows, np.bool_) if self.where is None else self.where.mask(block)

    def expired(self, block: Block, now: int) -> Mask:
        """Of each row whether it has expired."""
        seconds = self.seconds(block)
        expired: Mask = (seconds != 0) & (seconds <= now)
        return expired if self.where is None else expired & self.where.mask(block)

    def with_times(self, info: TtlInfo, block: Block) -> TtlInfo:
        """The times of further rows: of those that it concerns."""
        seconds = self.seconds(block)
        return info.with_times(seconds if self.where is None else seconds[self.where.mask(block)])


@dataclass(frozen=True, slots=True)
class TableTtl:
    """All elements of a table, in the order of its definition."""

    rows: BoundTtl | None = None
    wheres: tuple[BoundTtl, ...] = ()
    groups: tuple[BoundTtl, ...] = ()
    columns: tuple[BoundTtl, ...] = ()
    recompressions: tuple[BoundTtl, ...] = ()

    @property
    def elements(self) -> tuple[BoundTtl, ...]:
        """All of them."""
        rows = () if self.rows is None else (self.rows,)
        return (*rows, *self.wheres, *self.groups, *self.columns, *self.recompressions)

    @property
    def removing(self) -> tuple[BoundTtl, ...]:
        """Those that change rows: all but the recompressions."""
        return self.elements[: len(self.elements) - len(self.recompressions)]

    @property
    def reads(self) -> frozenset[str]:
        """The columns that determine which rows expire."""
        return frozenset(name for element in self.elements for name in element.reads)

    @property
    def concerns(self) -> frozenset[str]:
        """`reads`, and the columns whose values expire: who changes one of them has to find the times anew."""
        return self.reads | {element.element.column for element in self.columns}

    def __bool__(self) -> bool:
        return bool(self.elements)

    def infos(self, block: Block) -> dict[str, TtlInfo]:
        """The times of the rows of a block."""
        return {element.key: element.with_times(TtlInfo(), block) for element in self.elements}

    def infos_each(self, block: Block, ends: Sequence[int]) -> list[dict[str, TtlInfo]]:
        """Like `infos`, for each of the parts whose rows follow one another; `ends` are where they end."""
        each: list[dict[str, TtlInfo]] = [{} for _ in ends]
        for element in self.elements:
            seconds, matches = element.seconds(block), element.matches(block)
            begin = 0
            for infos, end in zip(each, ends, strict=True):
                infos[element.key] = TtlInfo().with_times(seconds[begin:end][matches[begin:end]])
                begin = end
        return each

    def file(self, infos: Infos) -> bytes:
        """The bytes of `ttl.txt` of a part with these times; empty if it has none."""

        def named(elements: Iterable[BoundTtl]) -> dict[str, TtlInfo]:
            out: dict[str, TtlInfo] = {}
            for element in elements:
                info, name = infos.get(element.key), element.element.column or element.element.expression
                if info is not None:
                    out[name] = merged_info([out[name], info]) if name in out else info
            return out

        table = infos.get(self.rows.key, TtlInfo()) if self.rows is not None else TtlInfo()
        # Finished means another thing for these here.
        recompression = {name: replace(info, finished=False) for name, info in named(self.recompressions).items()}
        return encode_ttl(
            TtlFile(
                table,
                named(self.columns),
                recompression=recompression,
                group_by=named(self.groups),
                rows_where=named(self.wheres),
            )
        )


NO_TTL = TableTtl()


def packed_infos(infos: Infos) -> dict[str, tuple[int, ...]]:
    """As a manifest holds them."""
    return {key: info.packed() for key, info in infos.items()}


def unpacked_infos(packed: PackedInfos) -> dict[str, TtlInfo]:
    """Inverse of `packed_infos`."""
    return {key: TtlInfo.unpacked(values) for key, values in packed.items()}


def has_ttl(schema: TableSchema) -> bool:
    """Whether anything in the table expires."""
    return bool(schema.ttl) or any(column.ttl for column in schema.columns)


def table_ttl(schema: TableSchema) -> TableTtl:
    """The TTL of a table. Raises the errors of parsing and binding, which `define_ttl` found before."""
    if not has_ttl(schema):
        return NO_TTL
    columns = tuple((column.id, column.name, str(column.type), column.ttl) for column in schema.columns)
    return _bound(schema.ttl, columns)


@lru_cache(64)
def _bound(texts: tuple[str, ...], columns: tuple[tuple[int, str, str, str], ...]) -> TableTtl:
    known = {name: Column(number, name, parse_type(kind), ttl=ttl) for number, name, kind, ttl in columns}
    elements = [element for text in texts for element in parse_ttl(text)]
    kinds: dict[str, list[BoundTtl]] = {"rows": [], "where": [], "group_by": [], "recompression": [], "column": []}
    for element in (*elements, *(column_ttl(column.name, column.ttl) for column in known.values() if column.ttl)):
        kinds[element.kind].append(bind_ttl(element, known))
    return TableTtl(
        kinds["rows"][0] if kinds["rows"] else None,
        *(tuple(kinds[kind]) for kind in ("where", "group_by", "column", "recompression")),
    )


def bind_ttl(element: TtlElement, columns: Mapping[str, Column]) -> BoundTtl:
    """One element over columns. Raises what compiling raises."""
    types = {name: column.type for name, column in columns.items()}
    time = compile_expression(element.expression, {name: wide_time(kind) for name, kind in types.items()})
    where = compile_expression(element.where, types) if element.where else None
    reads = (*time.columns, *(where.columns if where is not None else ()))
    texts = [element.expression, element.where, *element.group_by]
    parts = [_by_id(parse(text), columns) if text else "" for text in texts]
    for name, text in element.assignments:
        parts.append(f"{columns[name].id if name in columns else name}={_by_id(parse_aggregate(text), columns)}")
    target = columns[element.column].id if element.column in columns else ""
    read = {name: types[name] for name in time.columns}
    digest = hashlib.blake2b("\n".join([*parts, element.codec, str(target)]).encode(), digest_size=4).hexdigest()
    return BoundTtl(element, f"{element.kind}:{digest}", tuple(dict.fromkeys(reads)), time, read, where)


def _by_id(node: SyntaxNode, columns: Mapping[str, Column]) -> str:
    """The text of an expression with columns by their ids and types."""

    def renamed(node: SyntaxNode) -> SyntaxNode:
        if isinstance(node, ColumnRef) and node.name in columns:
            column = columns[node.name]
            return ColumnRef(f"#{column.id} {column.type}")
        return Call(node.function, tuple(map(renamed, node.args))) if isinstance(node, Call) else node

    return str(renamed(node))


def wide_time(kind: DataType) -> DataType:
    """A type of dates or times with a greater range, as ClickHouse computes a TTL; other types as they are."""
    match kind:
        case t.Date():
            return t.Date32()
        case t.DateTime(timezone):
            return t.DateTime64(0, timezone or "UTC")
        case t.Nullable(inner):
            return t.Nullable(wide_time(inner))
        case t.LowCardinality(inner) if wide_time(inner) != inner:
            return wide_time(inner)
    return kind


def _widened(array: pa.Array, kind: DataType) -> pa.Array:
    """Values of a type (storage form) as those of `wide_time`."""
    wide = wide_time(kind)
    if wide == kind:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return pc.cast(array, storage_type(wide))


def is_time(kind: DataType) -> bool:
    """Whether values of a type can be times of expiry."""
    plain = kind.inner if isinstance(kind, t.LowCardinality) else kind
    return isinstance(plain, t.Date | t.Date32 | t.DateTime | t.DateTime64)


def seconds_of(values: pa.Array, kind: DataType) -> Seconds:
    """Dates and times (storage form) as seconds since the epoch; parts of a second are cut off towards it."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    plain, numbers = inner_type(kind), values.to_numpy(zero_copy_only=False).astype(np.int64)
    match plain:
        case t.Date() | t.Date32():
            times: Seconds = numbers * DAY_SECONDS
            return times
        case t.DateTime():
            seconds: Seconds = numbers
            return seconds
        case t.DateTime64(precision):
            factor = 10**precision
            cut: Seconds = np.sign(numbers) * (np.abs(numbers) // factor)
            return cut
    raise InternalError(f"{kind} is no time")


def expired_value(schema: TableSchema, name: str, now: int) -> Compiled | None:
    """The expression of the value of a column whose value has expired; None for the default of its type.

    `now` is the time in seconds. Raises what compiling raises.
    """
    column = schema.column(name)
    if not column.default:
        return None
    text = str(expand_aliases(parse(column.default), schema))
    return compile_expression(f"CAST({text}, {quote_string(str(column.type))})", schema.types, now * 1000)
