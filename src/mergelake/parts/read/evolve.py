"""Conversion of a column from the type that it had when its part was written to its current type.

A type that changed several times is converted step by step, as every change was made: `300` that became a UInt8 is 44,
whatever the type became afterwards. Each step is lossless, or converts as CAST does; ALTER has tried it on all values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.base.text import quote_string
from mergelake.core.model.schema import TypeChange
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr import Compiled, compile_expression
from mergelake.expr.functions.casts import can_raise
from mergelake.expr.functions.text_casts import gives_null

_BY_TEXT = (t.Enum, t.FixedString)
"""Types whose values become those of another such type by way of their text."""


_DECIMAL64 = 18
"""Digits of a Decimal that is stored as an integer of up to 64 bits."""


def converted(array: pa.Array, stored: t.DataType, wanted: t.DataType, changes: Iterable[TypeChange] = ()) -> pa.Array:
    """`array` of type `stored` as `wanted`, by way of the types of `changes`; all in storage form.

    Raises the errors of CAST.
    """
    for change in changes:
        array, stored = evolve(array, stored, change.type, change.null), change.type
    return evolve(array, stored, wanted)


def evolve(array: pa.Array, stored: t.DataType, wanted: t.DataType, null: str = "") -> pa.Array:
    """`array` of type `stored` as `wanted`, both in storage form, by one conversion. Raises the errors of CAST.

    `null` is a constant expression in place of NULL.
    """
    if stored == wanted:
        return array
    if not can_evolve(stored, wanted):
        return _cast(stored, wanted, null).evaluate(pa.table({"x": array}))
    target = storage_type(wanted)
    if pa.types.is_dictionary(target) and not pa.types.is_dictionary(array.type):
        return array.cast(target.value_type).dictionary_encode().cast(target)
    return array if array.type == target else array.cast(target)


@lru_cache(maxsize=1024)
def _cast(stored: t.DataType, wanted: t.DataType, null: str) -> Compiled:
    """The conversion of a column `x`."""
    final = quote_string(str(wanted))
    if null:
        own = quote_string(str(t.inner_type(wanted)))
        text = f"CAST(if(isNull(x), CAST({null}, {own}), CAST(x, {own})), {final})"
    elif any(isinstance(t.inner_type(stored), k) and isinstance(t.inner_type(wanted), k) for k in _BY_TEXT):
        text = f"CAST(CAST(x, {quote_string(str(_with_plain(stored, t.STRING)))}), {final})"
    else:
        text = f"CAST(x, {final})"
    return compile_expression(text, {"x": stored})


def _with_plain(kind: t.DataType, plain: t.DataType) -> t.DataType:
    """`plain`, Nullable if `kind` is."""
    return t.Nullable(plain) if t.is_nullable(kind) else plain


def check_conversion(stored: t.DataType, wanted: t.DataType, null: str = "") -> None:
    """Raise the error of CAST if no value of a type can be converted to another."""
    if stored == wanted or can_evolve(stored, wanted):
        return
    match t.inner_type(stored), t.inner_type(wanted):
        case t.FixedString(size), t.FixedString(new) if new < size:
            raise error("TOO_LARGE_STRING_SIZE", f"{stored} does not fit into {wanted}", "Make it a String")
    changed = next(_renumbered(stored, wanted), None)
    if changed is not None:
        message = f"Enum conversion changes value for element '{changed}': {stored} to {wanted}"
        raise error("CANNOT_CONVERT_TYPE", message, "Names keep their numbers")
    _cast(stored, wanted, null)


def _renumbered(stored: t.DataType, wanted: t.DataType) -> Iterator[str]:
    """The names of Enums, also within other types, that have another number in `wanted`."""
    before, after = t.inner_type(stored), t.inner_type(wanted)
    if isinstance(before, t.Enum) and isinstance(after, t.Enum):
        values = dict(after.items)
        yield from (name for name, value in before.items if values.get(name, value) != value)
    elif type(before) is type(after):
        for one, other in zip(_inner(before), _inner(after), strict=False):
            yield from _renumbered(one, other)


def _inner(kind: t.DataType) -> tuple[t.DataType, ...]:
    """The types of what values of an Array, a Map or a Tuple are made of; none for any other."""
    match kind:
        case t.Array(inner):
            return (inner,)
        case t.Map(key, value):
            return key, value
        case t.Tuple(elements):
            return elements
    return ()


def may_fail(stored: t.DataType, wanted: t.DataType, null: str = "") -> bool:
    """Whether some value may not be convertible."""
    if stored == wanted or can_evolve(stored, wanted):
        return False
    if t.is_nullable(stored) and not t.is_nullable(wanted) and not null:
        return True
    return not gives_null(stored, wanted) and can_raise(t.inner_type(stored), t.inner_type(wanted))


def can_evolve(stored: t.DataType, wanted: t.DataType) -> bool:
    """Whether every value of `stored` is a value of `wanted` with the same meaning."""
    if t.is_nullable(stored) and not t.is_nullable(wanted):
        return False
    match t.inner_type(stored), t.inner_type(wanted):
        case t.Int(a, True), t.Int(b, True) if max(a, b) <= 64:
            return a <= b
        case t.Int(a, False), t.Int(b, signed) if max(a, b) <= 64:
            return a < b or (a == b and not signed)
        case t.Float(a), t.Float(b):
            return a <= b
        case t.DateTime(), t.DateTime():
            return True
        case t.DateTime64(a), t.DateTime64(b):
            return a == b
        case t.Decimal(a, scale), t.Decimal(b, other) if b <= _DECIMAL64:
            return a <= b and scale == other
        case t.Enum(a, before), t.Enum(b, after):
            return a <= b and set(before) <= set(after)
        case (t.Array() | t.Map() | t.Tuple()) as before, after if before != after and type(before) is type(after):
            pairs = list(zip(_inner(before), _inner(after), strict=False))
            return storage_type(before) == storage_type(after) and all(can_evolve(*pair) for pair in pairs)
        case before, after:
            return before == after
