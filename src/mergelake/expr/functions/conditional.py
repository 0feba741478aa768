"""if, multiIf, CASE, coalesce, ifNull, nullIf, isNull: a branch is evaluated only on its own rows.

Source: ClickHouse, `src/Functions/if.cpp`, `multiIf.cpp`, `coalesce.cpp`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.types import types as t
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.functions.cast_functions import cast_node
from mergelake.expr.registry import BindingEnvironment, Resolved, illegal, special
from mergelake.expr.supertype import common_type
from mergelake.expr.values import Data, Vec

_NULL = BoundLiteral(None, t.Nullable(t.Nothing()))


def merge(mask: npt.NDArray[np.bool_], yes: Vec, no: Vec) -> Vec:
    """Rows of `yes` where `mask` holds, else of `no`; each holds only the rows taken from it, or is constant."""
    rows, hits = len(mask), int(np.count_nonzero(mask))
    yes, no = yes.broadcast(hits), no.broadcast(rows - hits)
    at = np.empty(rows, np.int64)
    at[mask] = np.arange(hits)
    at[~mask] = np.arange(hits, rows)
    data = concat(yes.data, no.data)
    valid = None
    if yes.valid is not None or no.valid is not None:
        both = [np.ones(v.rows, np.bool_) if v.valid is None else v.valid for v in (yes, no)]
        valid = np.concatenate(both)[at]
    return Vec(data, valid).filter(at) if valid is None else Vec(Vec(data).filter(at).data, valid)


def concat(first: Data, second: Data) -> Data:
    """Two pieces of data one after the other."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    return pa.concat_arrays([first, second])


def _choose(ctx: EvaluationContext, mask: npt.NDArray[np.bool_], yes: BoundNode, no: BoundNode) -> Vec:
    if mask.all():
        return ctx.eval(yes).broadcast(ctx.rows)
    if not mask.any():
        return ctx.eval(no).broadcast(ctx.rows)
    return merge(mask, _on_rows(ctx, yes, mask), _on_rows(ctx, no, ~mask))


def _on_rows(ctx: EvaluationContext, node: BoundNode, mask: npt.NDArray[np.bool_]) -> Vec:
    keep = np.flatnonzero(mask)
    if isinstance(node, BoundCall) and (node.can_raise or node.cost * (len(mask) - len(keep)) > 4 * len(keep)):
        return ctx.narrowed(keep).eval(node)
    vec = ctx.eval(node)
    return vec if isinstance(node, BoundLiteral) else vec.broadcast(len(mask)).filter(keep)


def _condition(name: str, node: BoundNode) -> None:
    if t.inner_type(node.type) not in (t.UINT8, t.Bool(), t.Nothing()):
        raise illegal(name, node.type)


@special("if", 3, any_case=True)
def _if(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    condition, yes, no = args
    _condition("if", condition)
    result = common_type([yes.type, no.type])
    if isinstance(condition, BoundLiteral):
        return Resolved(result, node=cast_node(yes if condition.value else no, result, environment))
    yes, no = cast_node(yes, result, environment), cast_node(no, result, environment)

    def run(ctx: EvaluationContext) -> Vec:
        return _choose(ctx, np.asarray(ctx.mask(condition)), yes, no)

    return Resolved(result, run=run, cost=10, args=(condition, yes, no))


@special("multiIf", 3, 1 << 20, any_case=True, aliases=("caseWithoutExpression",))
def _multi_if(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    if len(args) % 2 == 0:
        raise illegal("multiIf", *(arg.type for arg in args))
    branches = [*args[1::2], args[-1]]
    result = common_type([branch.type for branch in branches])
    node = cast_node(args[-1], result, environment)
    for condition, branch in reversed(list(zip(args[:-1:2], args[1::2], strict=True))):
        node = environment.call("if", (condition, cast_node(branch, result, environment), node))
    return Resolved(result, node=node)


@special("isNull", 1, any_case=True)
def _is_null(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    return _null_test(args[0], null=True)


@special("isNotNull", 1, any_case=True)
def _is_not_null(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    return _null_test(args[0], null=False)


def _null_test(arg: BoundNode, *, null: bool) -> Resolved:
    if not t.is_nullable(arg.type):
        return Resolved(t.UINT8, node=BoundLiteral(int(not null), t.UINT8))

    def run(ctx: EvaluationContext) -> Vec:
        vec = ctx.eval(arg)
        if vec.valid is None:
            return Vec(np.full(1, not null))
        return Vec(~vec.valid if null else vec.valid, None, vec.codes)

    return Resolved(t.UINT8, run=run)


@special("assumeNotNull", 1, any_case=True)
def _assume_not_null(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    if not t.is_nullable(args[0].type):
        return Resolved(args[0].type, node=args[0])
    plain = t.inner_type(args[0].type)

    def run(ctx: EvaluationContext) -> Vec:
        vec = ctx.eval(args[0])
        data = vec.data if vec.valid is None else _with_defaults(vec.data, vec.valid)
        return Vec(data, None, vec.codes)

    return Resolved(plain, run=run)


def _with_defaults(data: Data, valid: npt.NDArray[np.bool_]) -> Data:
    """The data with zeros or empty strings where it is not valid, which is what ClickHouse keeps under NULL."""
    if isinstance(data, np.ndarray):
        data = data.copy()
        data[~valid] = np.zeros((), data.dtype) if data.dtype.names else 0
        return data
    empty = b"\0" * data.type.byte_width if pa.types.is_fixed_size_binary(data.type) else b""
    return pc.if_else(pa.array(valid), data, pa.scalar(empty, data.type)) if _is_binary(data.type) else data


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind))


@special("toNullable", 1, any_case=True)
def _to_nullable(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    return Resolved(t.Nullable(t.inner_type(args[0].type)), run=lambda ctx: ctx.eval(args[0]))


@special("ifNull", 2, any_case=True)
def _if_null(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    value, other = args
    if isinstance(value, BoundLiteral) and value.value is None:
        return Resolved(other.type, node=other)
    if not t.is_nullable(value.type):
        return Resolved(value.type, node=value)
    result = common_type([t.inner_type(value.type), other.type])
    target = t.Nullable(t.inner_type(result)) if not isinstance(result, t.Nullable) else result
    value = cast_node(value, target, environment)
    other = cast_node(other, result, environment)

    def run(ctx: EvaluationContext) -> Vec:
        vec = ctx.eval(value)
        if vec.valid is None or bool(vec.valid.all()):
            return Vec(vec.data, None, vec.codes)
        vec = vec.broadcast(ctx.rows)
        valid = np.ones(vec.rows, np.bool_) if vec.valid is None else vec.valid
        present = Vec(vec.filter(np.flatnonzero(valid)).data)
        return merge(valid, present, _on_rows(ctx, other, ~valid))

    return Resolved(result, run=run, cost=10, args=(value, other))


@special("coalesce", 1, 1 << 20, any_case=True)
def _coalesce(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    kept = [arg for arg in args if not (isinstance(arg, BoundLiteral) and arg.value is None)]
    for i, arg in enumerate(kept):
        if not t.is_nullable(arg.type):
            kept = kept[: i + 1]
            break
    if not kept:
        return Resolved(_NULL.type, node=_NULL)
    result = common_type([t.inner_type(arg.type) for arg in kept[:-1]] + [kept[-1].type])
    node = kept[-1] if len(kept) == 1 else cast_node(kept[-1], result, environment)
    for arg in reversed(kept[:-1]):
        node = environment.call("ifNull", (arg, node))
    return Resolved(result, node=node)


@special("nullIf", 2, any_case=True)
def _null_if(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    same = environment.call("equals", args)
    return Resolved(args[0].type, node=environment.call("if", (same, _NULL, args[0])))
