"""IN and NOT IN over constant sets.

Each member is converted to the type of the left side; a member that this type cannot hold exactly never matches
and is left out, as is NULL. A tuple on the left is looked up element by element: each element gives its position
among the distinct members, and the positions are combined into one number.

Source: ClickHouse, `src/Interpreters/Set.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, UnsupportedError, error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.bound import BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.functions import casts
from mergelake.expr.functions.comparison import read_constant
from mergelake.expr.nodes import Literal
from mergelake.expr.registry import BindingEnvironment, Resolved, illegal, special
from mergelake.expr.values import (
    Data,
    Vec,
    arrow_values,
    constant_vec,
    data_to_arrow,
    mask_array,
    python_value,
    storage_value,
)

_TEXT = (t.String, t.FixedString)


def convert_member(value: Any, source: t.DataType, target: t.DataType) -> Any:
    """A constant as a storage value of `target`, or None if no value of `target` is equal to it.

    Raises TOO_LARGE_STRING_SIZE for a text longer than a FixedString, and TYPE_MISMATCH for types that never match.

    Source: ClickHouse, `src/Interpreters/convertFieldToType.cpp`.
    """
    plain, kind = t.inner_type(source), t.inner_type(target)
    if value is None or plain == kind:
        return value
    if isinstance(plain, t.Array) and isinstance(kind, t.Array):
        elements = [convert_member(each, plain.inner, kind.inner) for each in value]
        lost = any(after is None and before is not None for before, after in zip(value, elements, strict=True))
        return None if lost or (None in elements and not t.is_nullable(kind.inner)) else elements
    if isinstance(kind, _TEXT):
        return _as_text(value, plain, kind)
    if isinstance(kind, t.Enum):
        return _as_element(value, plain, kind)
    if isinstance(plain, _TEXT):
        return python_value(read_constant(value, kind)[0], kind)
    if isinstance(kind, t.Int) and isinstance(plain, (t.Int, t.Bool, t.Float)):
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            return None
        low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.signed else (0, (1 << kind.bits) - 1)
        return int(value) if low <= value <= high else None
    if isinstance(kind, t.Float) and isinstance(plain, (t.Int, t.Bool, t.Float)):
        number = float(np.float32(value)) if kind.bits == 32 else float(value)
        return number if number == value or value != value else None
    # A DateTime matches a Date by its day, a finer DateTime64 a coarser one by the digits that both have.
    exact = not (isinstance(plain, t.DateTime) and isinstance(kind, (t.Date, t.Date32)))
    exact = exact and not (isinstance(plain, t.DateTime64) and isinstance(kind, t.DateTime64))
    return _cast_member(value, t.Float(64) if isinstance(plain, t.Float) else plain, kind, exact=exact)


def _cast_member(value: Any, plain: t.DataType, kind: t.DataType, *, exact: bool) -> Any:
    """`value` cast to `kind`; None if that fails or, with `exact`, if casting back gives another value."""
    try:
        converted = casts.kernel(plain, kind)(constant_vec(value, plain).data)
        back = casts.kernel(kind, plain)(converted) if exact else None
    except UnsupportedError:
        raise
    except MergelakeError as failure:
        if failure.name == "CANNOT_CONVERT_TYPE":
            raise error("TYPE_MISMATCH", f"Type mismatch in IN: cannot look for {plain} among {kind}") from failure
        return None
    member = storage_value(Vec(converted), kind)
    return member if back is None or storage_value(Vec(back), plain) == value else None


def _as_text(value: Any, plain: t.DataType, kind: t.DataType) -> bytes | None:
    """A constant as text: a string with its padding, a number as its literal, a date as its stored number."""
    match plain:
        case t.String() | t.FixedString():
            text: bytes = value
        case t.Enum():
            text = next(name for name, number in plain.items if number == value).encode()
        case t.Bool():
            text = b"true" if value else b"false"
        case t.Float():
            text = str(Literal(float(value), t.Float(64))).encode()
        case t.Date() | t.Date32() | t.DateTime():
            text = str(value).encode()
        case t.Int(bits) if bits <= 64:
            text = str(value).encode()
        case _:
            return None
    if not isinstance(kind, t.FixedString):
        return text
    if len(text) > kind.length:
        raise error("TOO_LARGE_STRING_SIZE", f"The string {Literal(text, t.STRING)} is too long for {kind}")
    return text.ljust(kind.length, b"\0")


def _as_element(value: Any, plain: t.DataType, kind: t.Enum) -> int | None:
    """A constant as an element of an Enum: by name, by the text of its number, or by number."""
    names, numbers = dict(kind.items), {number for _, number in kind.items}
    if isinstance(plain, _TEXT):
        text = value.decode(errors="replace")
        value = names.get(text, int(text) if re.fullmatch(r"-?\d{1,5}", text) else None)
    elif not isinstance(plain, (t.Int, t.Enum)):
        value = _cast_member(value, plain, t.Int(kind.bits, signed=True), exact=True)
    return value if value in numbers else None


def _converted(right: BoundNode, kind: t.DataType) -> list[Any]:
    """The distinct members as storage values of `kind`, without those that cannot match."""
    if isinstance(right, BoundLiteral):
        inner = t.inner_type(right.type)
        if isinstance(inner, t.Array) and t.inner_type(inner.inner) == kind:
            return _distinct([value for value in right.value if value is not None], kind)
    pairs = _members(right, wide=False)
    if isinstance(right, BoundLiteral) and 0 < _depth(right.type) <= _depth(kind):  # `x IN ([1])` of an array
        pairs = [(right.value, t.inner_type(right.type))]
    converted = [convert_member(value, source, kind) for value, source in pairs]
    return _distinct([value for value in converted if value is not None], kind)


def _depth(kind: t.DataType) -> int:
    """How many arrays are in each other."""
    inner = t.inner_type(kind)
    return 1 + _depth(inner.inner) if isinstance(inner, t.Array) else 0


def _distinct(values: list[Any], kind: t.DataType) -> list[Any]:
    return list(dict(zip(_identities(values, kind), values, strict=True)).values())


def _identities(values: list[Any], kind: t.DataType) -> list[Any]:
    """Equal for equal members: 0.0 and -0.0 are two, as sets compare floats by their bits; arrays are not hashable."""
    return values if isinstance(kind, (t.Int, t.Decimal, t.String, t.FixedString, t.UUID)) else list(map(repr, values))


def _members(right: BoundNode, wide: bool) -> list[tuple[Any, t.DataType]]:
    """The constants of the right side with their types; `wide`: the left side is a tuple, so one may be a member."""
    if not isinstance(right, BoundLiteral):
        raise error("NOT_IMPLEMENTED", "IN needs constants on its right side")
    kind = t.inner_type(right.type)
    if isinstance(kind, t.Array):
        return [(value, kind.inner) for value in right.value]
    if isinstance(kind, t.Tuple):
        single = wide and not all(isinstance(t.inner_type(e), t.Tuple) for e in kind.elements)
        return [(right.value, kind)] if single else list(zip(right.value, kind.elements, strict=True))
    return [(right.value, kind)]


def _membership(name: str, *, negate: bool) -> None:
    @special(name, 2)
    def rule(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
        left, right = args
        kind = t.inner_type(left.type)
        if isinstance(kind, t.Nothing):
            return Resolved(left.type, node=left)
        if isinstance(kind, t.Tuple):
            return Resolved(t.UINT8, run=_tuples(name, left, kind, right, environment, negate), cost=20, args=args)
        values = _converted(right, kind)
        lookup = contains(values, kind)
        folded = BoundLiteral(values, t.Array(kind))
        result = t.Nullable(t.UINT8) if t.is_nullable(left.type) else t.UINT8

        def run(ctx: EvaluationContext) -> Vec:
            vec = ctx.eval(left)
            flags = lookup(vec.data)
            return Vec(~flags if negate else flags, vec.valid, vec.codes)

        return Resolved(result, run=run, cost=4, args=(left, folded))


_membership("in", negate=False)
_membership("notIn", negate=True)


def contains(values: list[Any], kind: t.DataType) -> Callable[[Data], npt.NDArray[np.bool_]]:
    """A test of data of plain type `kind`: whether each value is one of the storage values `values`."""
    if not values:
        return lambda data: np.zeros(len(data), np.bool_)
    if isinstance(kind, (t.Array, t.Map)):
        raise illegal("in", kind)
    position = positions(values, kind)
    target = storage_type(kind)
    if isinstance(kind, (t.String, t.FixedString)):
        members = pa.array(values, target)
        return lambda data: mask_array(pc.is_in(data, value_set=members))
    if pa.types.is_fixed_size_binary(target):
        return lambda data: position(data) >= 0
    dtype = casts.number_dtype(kind)
    if isinstance(kind, t.Float):
        bits = np.array(values, dtype).view(f"u{dtype.itemsize}")
        return lambda data: np.isin(np.ascontiguousarray(data, dtype).view(bits.dtype), bits)
    if len(values) <= 4:
        fixed = [dtype.type(value) for value in values]

        def equals_any(data: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
            flags = np.asarray(data == fixed[0])
            for value in fixed[1:]:
                flags |= data == value
            return flags

        return equals_any
    members_array = np.array(values, dtype)
    return lambda data: np.isin(data, members_array)


def positions(values: list[Any], kind: t.DataType) -> Callable[[Data], npt.NDArray[np.int64]]:
    """A lookup of data: for each value its position in `values`, or -1."""
    target = storage_type(kind)
    members = pa.array(arrow_values(values, kind), target)

    def find(data: Data) -> npt.NDArray[np.int64]:
        array = data if not isinstance(data, np.ndarray) else data_to_arrow(data, None, target)
        return np.asarray(pc.index_in(array, value_set=members).fill_null(-1).cast(pa.int64()).to_numpy())

    return find


def _converted_rows(name: str, kind: t.Tuple, right: BoundNode) -> list[tuple[Any, ...]]:
    """The tuples on the right as storage values of the elements of `kind`, without those that cannot match."""
    wanted = [t.inner_type(element) for element in kind.elements]
    array = t.inner_type(right.type)
    member = t.inner_type(array.inner) if isinstance(array, t.Array) else None
    own = [t.inner_type(element) for element in member.elements] if isinstance(member, t.Tuple) else []
    if isinstance(right, BoundLiteral) and own == wanted:
        same: list[tuple[Any, ...]] = right.value
        return [row for row in same if None not in row]
    rows: list[tuple[Any, ...]] = []
    for value, source in _members(right, wide=True):
        plain = t.inner_type(source)
        if not isinstance(plain, t.Tuple) or len(plain.elements) != len(wanted):
            raise illegal(name, kind, plain)
        pairs = zip(value, plain.elements, kind.elements, strict=True)
        rows.append(tuple(convert_member(item, from_kind, to_kind) for item, from_kind, to_kind in pairs))
    return [row for row in rows if all(item is not None for item in row)]


def _tuples(
    name: str, left: BoundNode, kind: t.Tuple, right: BoundNode, environment: BindingEnvironment, negate: bool
) -> Callable[[EvaluationContext], Vec]:
    """Each element gives its position among the distinct members; positions are combined from left to right.

    `known` has the combinations that occur in the set, and the position among them is the code for the next element: so
    numbers stay below the square of the number of rows, whatever the number of elements.
    """
    width = len(kind.elements)
    columns = [environment.call("tupleElement", (left, BoundLiteral(i + 1, t.UINT8))) for i in range(width)]
    rows = _converted_rows(name, kind, right)
    steps = []
    codes = np.zeros(len(rows), np.int64)
    for i in range(width):
        element = t.inner_type(kind.elements[i])
        values = [row[i] for row in rows]
        distinct = _distinct(values, element)
        place = {identity: at for at, identity in enumerate(_identities(distinct, element))}
        numbers = np.array([place[identity] for identity in _identities(values, element)], np.int64)
        known, codes = np.unique(codes * len(distinct) + numbers, return_inverse=True)
        steps.append((positions(distinct, element), len(distinct), known))

    def run(ctx: EvaluationContext) -> Vec:
        if not rows:
            return Vec(np.full(1, negate))
        row_codes = np.zeros(ctx.rows, np.int64)
        hit = np.ones(ctx.rows, np.bool_)
        for column, (lookup, count, known) in zip(columns, steps, strict=True):
            vec = ctx.eval(column)
            at = lookup(vec.data)
            at = at if vec.valid is None else np.where(vec.valid, at, -1)
            at = at if vec.codes is None else at[vec.codes]
            combined = row_codes * count + at
            row_codes = np.minimum(np.searchsorted(known, combined), len(known) - 1)
            hit &= (at >= 0) & (known[row_codes] == combined)
        return Vec(~hit if negate else hit)

    return run
