"""Tuples, arrays and maps: construction, access to elements, has().

Indices count from 1, negative ones from the end; an index outside an array gives the type's default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.functions.cast_functions import cast_node
from mergelake.expr.functions.membership import convert_member, positions
from mergelake.expr.registry import BindingEnvironment, Resolved, illegal, special
from mergelake.expr.supertype import common_type
from mergelake.expr.values import Vec, constant_vec, default_value, from_arrow, to_arrow


@special("tuple", 0, 1 << 20)
def _tuple(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    kinds = tuple(arg.type.inner if isinstance(arg.type, t.LowCardinality) else arg.type for arg in args)
    result = t.Tuple(kinds)
    if all(isinstance(arg, BoundLiteral) for arg in args):
        values = tuple(arg.value for arg in args if isinstance(arg, BoundLiteral))
        return Resolved(result, node=BoundLiteral(values, result))
    fields = list(storage_type(result))

    def run(ctx: EvaluationContext) -> Vec:
        columns = [to_arrow(ctx.eval(arg), kind, ctx.rows) for arg, kind in zip(args, kinds, strict=True)]
        return Vec(pa.StructArray.from_arrays(columns, fields=fields))

    return Resolved(result, run=run, cost=5)


@special("tupleElement", 2)
def _tuple_element(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    whole, index = args
    kind = t.inner_type(whole.type)
    if not isinstance(kind, t.Tuple) or not isinstance(index, BoundLiteral):
        raise illegal("tupleElement", whole.type, index.type)
    if isinstance(index.value, bytes):
        name = index.value.decode(errors="replace")
        if name not in kind.names:
            raise error("NOT_FOUND_COLUMN_IN_BLOCK", f"Tuple doesn't have element with name '{name}'")
        at = kind.names.index(name)
    else:
        at = int(index.value) - 1
        if not 0 <= at < len(kind.elements):
            raise error("NOT_FOUND_COLUMN_IN_BLOCK", f"Tuple doesn't have element with index {index.value}")
    element = kind.elements[at]
    if isinstance(whole, BoundCall) and whole.function == "tuple":
        return Resolved(element, node=whole.args[at])
    if isinstance(whole, BoundLiteral):
        return Resolved(element, node=BoundLiteral(whole.value[at], element))
    return Resolved(element, run=lambda ctx: from_arrow(ctx.eval(whole).data.field(at), element), args=args)


@special("array", 0, 1 << 20)
def _array(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    inner = common_type([arg.type for arg in args])
    result = t.Array(inner)
    nodes = tuple(cast_node(arg, inner, environment) for arg in args)
    if all(isinstance(node, BoundLiteral) for node in nodes):
        values = [node.value for node in nodes if isinstance(node, BoundLiteral)]
        return Resolved(result, node=BoundLiteral(values, result))
    target = storage_type(result)

    def run(ctx: EvaluationContext) -> Vec:
        columns = [to_arrow(ctx.eval(node), inner, ctx.rows) for node in nodes]
        order = np.arange(len(nodes) * ctx.rows).reshape(len(nodes), ctx.rows).T.ravel()
        items = pa.concat_arrays(columns).take(pa.array(order))
        offsets = pa.array(np.arange(ctx.rows + 1) * len(nodes), pa.int32())
        return Vec(pa.ListArray.from_arrays(offsets, items, type=target))

    return Resolved(result, run=run, cost=20)


@special("arrayZip", 1, 1 << 20)
def _array_zip(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    kinds = [t.inner_type(arg.type) for arg in args]
    arrays = [kind for kind in kinds if isinstance(kind, t.Array)]
    if len(arrays) < len(kinds):
        raise illegal("arrayZip", *kinds)
    result = t.Array(t.Tuple(tuple(kind.inner for kind in arrays)))
    unequal = error("SIZES_OF_ARRAYS_DONT_MATCH", "The argument arrays of function arrayZip have different sizes")
    if all(isinstance(arg, BoundLiteral) for arg in args):
        lists: list[list[Any]] = [arg.value for arg in args if isinstance(arg, BoundLiteral)]
        if len(set(map(len, lists))) > 1:
            raise unequal
        return Resolved(result, node=BoundLiteral(list(zip(*lists, strict=True)), result))
    target = storage_type(result)

    def run(ctx: EvaluationContext) -> Vec:
        columns = [ctx.eval(arg).broadcast(ctx.rows).data for arg in args]
        offsets = offsets_of(columns[0])
        if any(np.any(np.diff(offsets_of(column)) != np.diff(offsets)) for column in columns):
            raise unequal
        items = pa.StructArray.from_arrays([column.flatten() for column in columns], fields=list(target.value_type))
        return Vec(pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), items, type=target))

    return Resolved(result, run=run, can_raise=True, cost=20, args=args)


def offsets_of(data: pa.Array) -> npt.NDArray[np.int64]:
    """Where each list begins and ends in `data.values`."""
    raw = np.frombuffer(data.buffers()[1], np.int32, count=len(data) + 1, offset=data.offset * 4)
    return raw.astype(np.int64)


@special("arrayElement", 2)
def _array_element(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    whole, index = args
    kind = t.inner_type(whole.type)
    if isinstance(kind, t.Map):
        return _map_element(whole, kind, index)
    if not isinstance(kind, t.Array) or not isinstance(t.inner_type(index.type), t.Int):
        raise illegal("arrayElement", whole.type, index.type)
    if isinstance(index, BoundLiteral) and index.value == 0:
        raise error("ZERO_ARRAY_OR_TUPLE_INDEX", "Array indices are 1-based")
    inner = kind.inner

    def run(ctx: EvaluationContext) -> Vec:
        lists = ctx.eval(whole).broadcast(ctx.rows)
        at = ctx.eval(index).broadcast(ctx.rows).data.astype(np.int64)
        offsets = offsets_of(lists.data)
        size = np.diff(offsets)
        place = np.where(at > 0, at - 1, size + at)
        inside = (place >= 0) & (place < size) & (at != 0)
        return _pick(lists.data.values, inner, np.where(inside, offsets[:-1] + place, 0), inside)

    return Resolved(inner, run=run, cost=20, args=args)


def _pick(values: pa.Array, inner: t.DataType, at: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> Vec:
    """Elements of `values` at positions `at`; where not `inside`, the type's default (NULL if Nullable)."""
    default = to_arrow(constant_vec(default_value(inner), inner), inner, 1)
    if isinstance(values, pa.DictionaryArray):
        values = values.cast(values.type.value_type)
        default = default.cast(default.type.value_type)
    everything = pa.concat_arrays([values, default])
    return from_arrow(everything.take(pa.array(np.where(inside, at, len(values)))), inner)


def _map_element(whole: BoundNode, kind: t.Map, key: BoundNode) -> Resolved:
    if not isinstance(key, BoundLiteral):
        raise error("NOT_IMPLEMENTED", "The key of a map element must be constant")
    wanted = convert_member(key.value, key.type, kind.key)
    find = positions([wanted], t.inner_type(kind.key)) if wanted is not None else None

    def run(ctx: EvaluationContext) -> Vec:
        lists = ctx.eval(whole).broadcast(ctx.rows).data
        offsets = offsets_of(lists)
        keys, values = lists.values.field(0), lists.values.field(1)
        decoded_keys = from_arrow(keys, kind.key).decoded()
        hits = np.flatnonzero(find(decoded_keys.data) >= 0) if find is not None else np.zeros(0, np.int64)
        first = np.searchsorted(hits, offsets[:-1])
        padded = np.append(hits, np.iinfo(np.int64).max)
        at = padded[first]
        return _pick(values, kind.value, np.where(at < offsets[1:], at, 0), at < offsets[1:])

    return Resolved(kind.value, run=run, cost=40, args=(whole, key))


@special("has", 2)
def _has(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    lists, member = args
    kind = t.inner_type(lists.type)
    if not isinstance(kind, t.Array):
        raise illegal("has", lists.type, member.type)
    if not isinstance(member, BoundLiteral):
        raise error("NOT_IMPLEMENTED", "The element that has() looks for must be constant")
    either = (t.inner_type(kind.inner), t.inner_type(member.type))
    if any(
        isinstance(a, (t.String, t.FixedString)) and isinstance(b, (t.Int, t.Float)) for a, b in (either, either[::-1])
    ):
        raise error("NO_COMMON_TYPE", f"There is no supertype for types {kind.inner}, {member.type} of function has")
    wanted = convert_member(member.value, member.type, kind.inner)
    if wanted is None and member.value is not None:
        return Resolved(t.UINT8, node=BoundLiteral(0, t.UINT8))
    return Resolved(t.UINT8, run=_has_run(lists, kind.inner, wanted), cost=40, args=(lists, member))


def _has_several(name: str, join: str) -> None:
    """Register `hasAny` or `hasAll` of a constant array: `has` of each member, combined by the function `join`."""

    @special(name, 2)
    def rule(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
        lists, members = args
        kind = t.inner_type(members.type)
        if not isinstance(t.inner_type(lists.type), t.Array) or not isinstance(kind, t.Array):
            raise illegal(name, lists.type, members.type)
        if not isinstance(members, BoundLiteral):
            raise error("NOT_IMPLEMENTED", f"The array that {name} looks for must be constant")
        has_calls = [environment.call("has", (lists, BoundLiteral(value, kind.inner))) for value in members.value]
        if not has_calls:
            return Resolved(t.UINT8, node=BoundLiteral(int(join == "and"), t.UINT8))
        return Resolved(t.UINT8, node=has_calls[0] if len(has_calls) == 1 else environment.call(join, tuple(has_calls)))


_has_several("hasAny", "or")
_has_several("hasAll", "and")


def _has_run(lists: BoundNode, inner: t.DataType, wanted: object) -> Callable[[EvaluationContext], Vec]:
    find = positions([wanted], t.inner_type(inner))

    def run(ctx: EvaluationContext) -> Vec:
        data = ctx.eval(lists).broadcast(ctx.rows).data
        items = from_arrow(data.values, inner).decoded()
        if wanted is None:
            hit = np.zeros(items.rows, np.bool_) if items.valid is None else ~items.valid
        else:
            hit = find(items.data) >= 0
            hit = hit if items.valid is None else hit & items.valid
        offsets = offsets_of(data)
        total = np.zeros(len(hit) + 1, np.int64)
        np.cumsum(hit, out=total[1:])
        return Vec(total[offsets[1:]] > total[offsets[:-1]])

    return run


@special("map", 0, 1 << 20)
def _map(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    if len(args) % 2:
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", f"map() takes keys and values by turns, not {len(args)} values")
    sides = tuple(environment.call("array", args[first::2]) for first in (0, 1))
    key, value = (side.type.inner for side in sides if isinstance(side.type, t.Array))
    result = t.Map(key, value)
    return Resolved(result, node=cast_node(environment.call("tuple", sides), result, environment))


def _map_part(name: str, part: int) -> None:
    @special(name, 1)
    def rule(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
        kind = t.inner_type(args[0].type)
        if not isinstance(kind, t.Map):
            raise illegal(name, args[0].type)
        inner = (kind.key, kind.value)[part]
        target = storage_type(t.Array(inner))

        def run(ctx: EvaluationContext) -> Vec:
            data = ctx.eval(args[0]).data
            offsets = pa.array(offsets_of(data), pa.int32())
            return Vec(pa.ListArray.from_arrays(offsets, data.values.field(part), type=target))

        return Resolved(t.Array(inner), run=run, cost=2)


_map_part("mapKeys", 0)
_map_part("mapValues", 1)


@special("mapContains", 2)
def _map_contains(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    keys = environment.call("mapKeys", (args[0],))
    return Resolved(t.UINT8, node=environment.call("has", (keys, args[1])))
