"""Translation of a bound predicate into a `Condition` on a key.

NOT is pushed down to the comparisons, AND and OR keep their shape, and each comparison becomes an atom if one side is
a constant and the other is

1. a key expression, or monotonic functions of one (`toDate(ts) = …` with the key `ts`), or
2. an argument of a key expression (`ts > …` with the key `toYYYYMM(ts)`): then the function is applied to the
   constant too, and the comparison is *relaxed*: `toYYYYMM(ts) >= toYYYYMM(…)`.

`toYear(x)` and `toYYYYMM(x)` compared with a number become a range of `x` first. Anything else is `UnknownCondition`.

Source: ClickHouse, `KeyCondition::extractAtomFromTree`, `OptimizeDateOrDateTimeConverterWithPreimageVisitor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, unbind_typed
from mergelake.expr.functions.membership import convert_member
from mergelake.expr.nodes import Call, ColumnRef
from mergelake.expr.values import arrow_value
from mergelake.scan.prune.condition import (
    And,
    Condition,
    Constant,
    FunctionChain,
    InRange,
    InSet,
    IsNull,
    MonotonicFunction,
    Not,
    Or,
    UnknownCondition,
)
from mergelake.scan.prune.constants import comparable, in_type
from mergelake.scan.prune.monotonic import evaluator, monotonic_function_of
from mergelake.scan.prune.ordered import Value, is_native_integer, orderable
from mergelake.scan.prune.preimage import TURNED, preimage
from mergelake.scan.prune.set_values import leading_columns, same_type_values
from mergelake.scan.prune.simplify import simplify

_INVERSE = {
    "equals": "notEquals",
    "less": "greaterOrEquals",
    "greater": "lessOrEquals",
    "in": "notIn",
    "isNull": "isNotNull",
    "like": "notLike",
    "empty": "notEmpty",
}
_INVERSE |= {b: a for a, b in _INVERSE.items()}
_WEAKENED = {"less": "lessOrEquals", "greater": "greaterOrEquals"}
_PREFIX = {"like", "notLike", "startsWith"}


@dataclass(frozen=True, slots=True)
class Key:
    """Key expressions, bound against the table's columns."""

    nodes: tuple[BoundNode, ...]
    names: tuple[str, ...]
    """As EXPLAIN prints them."""
    single_point: bool = False
    """Each key is a single value (a part's partition), so functions of it need not be monotonic."""

    @property
    def types(self) -> tuple[t.DataType, ...]:
        """Type of each expression."""
        return tuple(node.type for node in self.nodes)


def analyze(predicate: BoundNode | None, key: Key) -> Condition:
    """The condition that `predicate` implies for `key`; Unknown if it implies none or `predicate` is None."""
    if predicate is None or not key.nodes:
        return UnknownCondition()
    return analyze_leaves(predicate, lambda node, function: _atom(node, function, key))


Leaf = Callable[[BoundNode, str], Condition]
"""Translates a comparison and its function name after NOT was pushed down to it into a condition."""


def analyze_leaves(predicate: BoundNode, leaf: Leaf) -> Condition:
    """The tree of ANDs, ORs and NOTs of `predicate`, each comparison replaced by what `leaf` returns for it.

    `leaf` is called in the order of the comparisons; the shape of the tree does not depend on its results.
    """
    return _tree(simplify(predicate), leaf, False)


def _tree(node: BoundNode, leaf: Leaf, negate: bool) -> Condition:
    if isinstance(node, BoundCall):
        if node.function == "not":
            return _tree(node.args[0], leaf, not negate)
        if node.function in ("and", "or"):
            is_and = (node.function == "and") != negate
            out = _tree(node.args[0], leaf, negate)
            for arg in node.args[1:]:
                following = _tree(arg, leaf, negate)
                out = And(out, following) if is_and else Or(out, following)
            return out
        rewritten = preimage(node)
        if rewritten is not None:
            return _tree(rewritten, leaf, negate)
    if isinstance(node, BoundLiteral) and isinstance(node.value, (int, float, type(None))):
        known = Constant(bool(node.value))
        return Not(known) if negate and node.value is not None else known
    function = node.function if isinstance(node, BoundCall) else ""
    if negate and function in _INVERSE and not _compares_floats(node):
        return leaf(node, _INVERSE[function])
    atom = leaf(node, function)
    return Not(atom) if negate else atom


def _compares_floats(node: BoundNode) -> bool:
    """Whether NaN may be compared: NOT x < 1 is true for NaN, x >= 1 is false."""
    args = node.args if isinstance(node, BoundCall) else ()
    return any(isinstance(t.inner_type(arg.type), t.Float) for arg in args if not isinstance(arg, BoundLiteral))


def _atom(node: BoundNode, function: str, key: Key) -> Condition:
    if not isinstance(node, BoundCall):
        return _as_flag(node, key)
    if function in ("isNull", "isNotNull"):
        key_use = _find_key(node.args[0], key)
        if key_use is None or key_use[1]:
            return _as_flag(node, key, negated=function != node.function)  # the key may be the test itself: `n.null`
        return IsNull(key_use[0], function == "isNotNull")
    if function in ("empty", "notEmpty") and isinstance(t.inner_type(node.args[0].type), t.String):
        return _compare(
            "equals" if function == "empty" else "notEquals", node.args[0], BoundLiteral(b"", t.STRING), key
        )
    if len(node.args) != 2:
        return _as_flag(node, key, negated=function != node.function)
    left, right = node.args
    if function in ("in", "notIn"):
        return _in_set(left, right, function == "notIn", key) if isinstance(right, BoundLiteral) else UnknownCondition()
    if function in _PREFIX and isinstance(right, BoundLiteral) and isinstance(right.value, bytes):
        return _prefix(function, left, right.value, key)
    if function not in TURNED:
        return _as_flag(node, key, negated=function != node.function)
    if isinstance(right, BoundLiteral):
        return _compare(function, left, right, key)
    if isinstance(left, BoundLiteral):
        return _compare(TURNED[function], right, left, key)
    return UnknownCondition()


def _as_flag(node: BoundNode, key: Key, *, negated: bool = False) -> Condition:
    """A key used as a condition by itself: `WHERE flag` is `flag != 0`; `negated` if NOT was pushed down to it."""
    key_use = _find_key(node, key)
    if key_use is None or t.is_nullable(node.type) or not isinstance(t.inner_type(node.type), (t.Int, t.Bool)):
        return UnknownCondition()
    return InRange(key_use[0], key_use[1], 0, True, 0, True, negated=not negated, shrink=True, type=node.type)


# --- where the key is


def _find_key(node: BoundNode, key: Key) -> tuple[int, FunctionChain] | None:
    """The key column that `node` is a monotonic function of, and that function."""
    for i, expression in enumerate(key.nodes):
        if node == expression:
            return i, ()
    if not isinstance(node, BoundCall):
        return None
    try:
        step = _any_function(node) if key.single_point else monotonic_function_of(node)
    except MergelakeError:
        return None
    if step is None:
        return None
    inner = _find_key(step[0], key)
    return None if inner is None else (inner[0], (*inner[1], step[1]))


def _any_function(call: BoundCall) -> tuple[BoundNode, MonotonicFunction] | None:
    """Like `monotonic_function_of`, for any function of one varying argument: for keys that are a single value."""
    known = monotonic_function_of(call)
    if known is not None:
        return known[0], known[1]
    varying = [i for i, arg in enumerate(call.args) if not isinstance(arg, BoundLiteral)]
    if len(varying) != 1 or call.can_raise or t.is_nullable(call.args[varying[0]].type) or len(call.args) > 2:
        return None
    argument = call.args[varying[0]]
    over = tuple(unbind_typed(a) if isinstance(a, BoundLiteral) else ColumnRef("x") for a in call.args)
    apply, result = evaluator(Call(call.function, over), argument.type)
    return (argument, MonotonicFunction(apply, result, f"{call.function}(", ")")) if result == call.type else None


def _through_key(node: BoundNode, key: Key) -> list[tuple[int, list[BoundCall]]]:
    """Key columns that are functions of `node`: their numbers and the calls from `node` outwards."""
    out = []
    for i, expression in enumerate(key.nodes):
        calls: list[BoundCall] = []
        at: BoundNode = expression
        while isinstance(at, BoundCall) and at != node:
            varying = [arg for arg in at.args if not isinstance(arg, BoundLiteral)]
            calls.append(at)
            if len(varying) != 1:
                break
            at = varying[0]
        if calls and at == node:
            out.append((i, calls[::-1]))
    return out


def _mapped(value: BoundLiteral, calls: Sequence[BoundCall], start: t.DataType) -> BoundLiteral | None:
    """`value` with the functions of a key expression applied to it."""
    literal = in_type(value, start)
    if literal is None:
        return None
    array = pa.array([arrow_value(literal, start)], storage_type(start))
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    data_type = start
    for call in calls:
        over = tuple(unbind_typed(a) if isinstance(a, BoundLiteral) else ColumnRef("x") for a in call.args)
        apply, data_type = evaluator(Call(call.function, over), data_type)
        array = apply(array)
    scalar = array[0].as_py()
    return None if scalar is None or isinstance(scalar, (list, dict)) else BoundLiteral(scalar, data_type)


# --- atoms


def _compare(function: str, node: BoundNode, constant: BoundLiteral, key: Key) -> Condition:
    if constant.value is None:
        return Constant(False)
    if isinstance(constant.value, float) and constant.value != constant.value:
        return UnknownCondition()
    key_use = _find_key(node, key)
    if key_use is not None:
        return _range(function, key_use[0], key_use[1], node.type, constant, relaxed=False)
    for column, calls in _through_key(node, key):
        rising = True
        if function not in ("equals", "notEquals"):
            steps = [monotonic_function_of(call) for call in calls]
            if any(step is None or step[1].monotonic != "always" for step in steps):
                continue
            for step in steps:
                rising = rising == (step is not None and step[1].rising)
        try:
            value = _mapped(constant, calls, node.type)
        except MergelakeError:
            continue
        if value is None:
            continue
        weakened = _WEAKENED.get(function, function)
        if not rising:
            weakened = TURNED[weakened]
        return _range(weakened, column, (), key.nodes[column].type, value, relaxed=True)
    return UnknownCondition()


def _range(
    function: str, column: int, chain: FunctionChain, data_type: t.DataType, constant: BoundLiteral, *, relaxed: bool
) -> Condition:
    if not orderable(data_type):
        return UnknownCondition()
    shrink = is_native_integer(data_type)
    if shrink and isinstance(constant.value, float):
        rounded = _round(function, constant.value)
        if isinstance(rounded, Constant):
            return rounded
        function, constant = rounded
    value = comparable(constant, data_type)
    if value is None:
        return UnknownCondition()
    low: Value | None = None
    high: Value | None = None
    low_included = high_included = False
    if function in ("equals", "notEquals"):
        low = high = value
        low_included = high_included = True
    elif function in ("less", "lessOrEquals"):
        high, high_included = value, function == "lessOrEquals"
        if shrink and not high_included and isinstance(value, int) and value != 0:
            high, high_included = value - 1, True
    else:
        low, low_included = value, function == "greaterOrEquals"
        if shrink and not low_included and isinstance(value, int) and value < (1 << 63) - 1:
            low, low_included = value + 1, True
    return InRange(
        column, chain, low, low_included, high, high_included, function == "notEquals", relaxed, shrink, data_type
    )


def _round(function: str, value: float) -> Constant | tuple[str, BoundLiteral]:
    """Replace the float that an integer is compared with by the integer next to it."""
    if value in (float("inf"), float("-inf")):
        above = value > 0
        return Constant({"equals": False, "notEquals": True}.get(function, function.startswith("less") == above))
    down = int(value // 1)
    if down == value:
        return function, BoundLiteral(down, t.Int(256, signed=True))
    if function in ("equals", "notEquals"):
        return Constant(function == "notEquals")
    if function.startswith("less"):
        return "lessOrEquals", BoundLiteral(down, t.Int(256, signed=True))
    return "greaterOrEquals", BoundLiteral(down + 1, t.Int(256, signed=True))


def _prefix(function: str, node: BoundNode, pattern: bytes, key: Key) -> Condition:
    """LIKE and startsWith as the range of strings with the pattern's fixed prefix."""
    if not isinstance(t.inner_type(node.type), t.String):
        return UnknownCondition()
    prefix, exact = (pattern, True) if function == "startsWith" else like_prefix(pattern)
    if function != "startsWith" and exact is None:
        return _compare("equals" if function == "like" else "notEquals", node, BoundLiteral(prefix, t.STRING), key)
    if function == "notLike" and pattern[:1] == b"%" and not set(pattern[1:]) & set(b"%_\\"):
        return Not(
            UnknownCondition()
        )  # ClickHouse rewrites it to NOT endsWith(…), which its conjunction test does not accept
    key_use = _find_key(node, key)
    if not prefix or key_use is None or key_use[1]:
        return UnknownCondition()
    high = prefix.rstrip(b"\xff")
    above = high[:-1] + bytes([high[-1] + 1]) if high else None
    if function == "notLike" and not exact:
        return UnknownCondition()
    atom = InRange(key_use[0], (), prefix, True, above, False, relaxed=not exact, type=node.type)
    return Not(atom) if function == "notLike" else atom


def like_prefix(pattern: bytes) -> tuple[bytes, bool | None]:
    r"""The fixed prefix of a LIKE pattern, and whether the pattern matches every string with that prefix.

    None instead of True or False: the pattern has no wildcards.

    >>> like_prefix(b"ab\\_c%")
    (b'ab_c', True)
    >>> like_prefix(b"ab_c%")
    (b'ab', False)
    >>> like_prefix(b"ab")
    (b'ab', None)
    """
    out = bytearray()
    at = 0
    while at < len(pattern) and pattern[at] not in b"%_":
        if pattern[at] == 0x5C and at + 1 < len(pattern):
            if pattern[at + 1] not in b"%_\\":
                out.append(pattern[at])
            at += 1
        out.append(pattern[at])
        at += 1
    return bytes(out), (pattern[at:] == b"%" if at < len(pattern) else None)


def _in_set(left: BoundNode, right: BoundLiteral, negated: bool, key: Key) -> Condition:
    is_tuple = isinstance(left, BoundCall) and left.function == "tuple"
    items: Sequence[BoundNode] = left.args if is_tuple and isinstance(left, BoundCall) else (left,)
    chosen: dict[int, tuple[int, FunctionChain, list[BoundCall]]] = {}
    relaxed = False
    for position, item in enumerate(items):
        key_use = _find_key(item, key)
        if key_use is not None:
            relaxed |= key_use[0] in chosen
            chosen.setdefault(key_use[0], (position, key_use[1], []))
            continue
        for column, calls in _through_key(item, key):
            chosen.setdefault(column, (position, (), calls))
            relaxed = True
    if not chosen:
        return UnknownCondition()
    columns = tuple(sorted(chosen))
    values = _set_values(right, items, is_tuple, chosen, columns, key)
    if values is None:
        return UnknownCondition()
    leading = leading_columns(values) if values else len(columns)
    if leading < len(columns):
        columns, relaxed = columns[:leading], True
        values = {row[:leading] for row in values}
    compared = [chosen[c][1][-1].type if chosen[c][1] else key.nodes[c].type for c in columns]
    # 0.0 and -0.0 are equal in a key but are two members of a set, so a zero in the key may be either.
    floats = [i for i, kind in enumerate(compared) if isinstance(t.inner_type(kind), t.Float)]
    relaxed |= any(row[i] == 0 for row in values for i in floats)
    return InSet(
        columns,
        tuple(chosen[c][1] for c in columns),
        tuple(sorted(values)),
        negated,
        relaxed or len(chosen) < len(items),
        tuple(is_native_integer(data_type) for data_type in compared),
    )


def _set_values(
    right: BoundLiteral,
    items: Sequence[BoundNode],
    is_tuple: bool,
    chosen: Mapping[int, tuple[int, FunctionChain, list[BoundCall]]],
    columns: tuple[int, ...],
    key: Key,
) -> set[tuple[Value, ...]] | None:
    """The members' values for the chosen key columns; None if they cannot be compared with the key."""
    types = [item.type for item in items]
    if not any(chosen[column][2] for column in columns) and all(map(orderable, types)):
        bulk = same_type_values(right, types, is_tuple, [chosen[column][0] for column in columns])
        if bulk is not None:
            return set(bulk)
    rows = set_rows(right, len(items) if is_tuple else 0)
    if rows is None:
        return None
    try:
        converted = [_set_row(row, items, chosen, columns, key) for row in rows]
    except MergelakeError:
        return None
    return None if any(row is None for row in converted) else {row for row in converted if row}


def set_rows(right: BoundLiteral, width: int) -> list[tuple[BoundLiteral, ...]] | None:
    """Rows of the right side of IN, each a tuple of constants; NULLs match nothing and are omitted."""
    plain = t.inner_type(right.type)
    if isinstance(plain, t.Array):
        pairs = [(value, plain.inner) for value in right.value]
    elif isinstance(plain, t.Tuple):
        pairs = list(zip(right.value, plain.elements, strict=True))
        if width and not any(isinstance(t.inner_type(e), t.Tuple) for e in plain.elements):
            pairs = [(right.value, plain)]
    else:
        pairs = [(right.value, right.type)]
    rows: list[tuple[BoundLiteral, ...]] = []
    for value, data_type in pairs:
        if value is None:
            continue
        if not width:
            rows.append((BoundLiteral(value, data_type),))
            continue
        inner = t.inner_type(data_type)
        if not isinstance(inner, t.Tuple) or len(inner.elements) != width:
            return None
        row = tuple(BoundLiteral(v, e) for v, e in zip(value, inner.elements, strict=True))
        if all(cell.value is not None for cell in row):
            rows.append(row)
    return rows


def _set_row(
    row: tuple[BoundLiteral, ...],
    items: Sequence[BoundNode],
    chosen: Mapping[int, tuple[int, FunctionChain, list[BoundCall]]],
    columns: tuple[int, ...],
    key: Key,
) -> tuple[Value, ...] | None:
    """The row's values for the chosen key columns; empty if it cannot match, None if it cannot be converted."""
    out: list[Value] = []
    for column in columns:
        position, _, calls = chosen[column]
        constant, data_type = row[position], items[position].type
        if not orderable(data_type):
            return None
        if calls:
            mapped = _mapped(constant, calls, data_type)
            if mapped is None:
                return None
            constant, data_type = mapped, key.nodes[column].type
        elif t.inner_type(constant.type) != t.inner_type(data_type):
            member = convert_member(constant.value, constant.type, data_type)
            if member is None:  # no value of the key equals it
                return ()
            constant = BoundLiteral(member, t.inner_type(data_type))
        value = comparable(constant, data_type)
        if value is None or value != value:
            return None
        out.append(value)
    return tuple(out)
