"""Functions of strings. Strings are bytes: lengths and positions count bytes, case folding is ASCII only.

Source: ClickHouse, `src/Functions/FunctionsString*.h`, `like.cpp`; regular expressions are RE2's there and here
(through Arrow). A LIKE or regular expression must be constant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions import casts
from mergelake.expr.functions.comparison import scalars
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal
from mergelake.expr.values import Data, mask_array

_TEXT = (t.String, t.FixedString)
_U64 = t.Int(64, signed=False)


def as_binary(kind: t.DataType) -> Kernel:
    """Data of String, FixedString or Enum as a binary Arrow array."""
    if isinstance(kind, t.String):
        return lambda data: data
    if isinstance(kind, t.FixedString):
        return lambda data: data.cast(pa.binary())
    return casts.kernel(kind, t.STRING)


def _texts(name: str, args: tuple[Operand, ...], kinds: tuple[type, ...] = (*_TEXT, t.Enum)) -> None:
    if not all(isinstance(arg.type, kinds) for arg in args):
        raise illegal(name, *(arg.type for arg in args))


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """An Arrow number array as numpy, NULL as 0."""
    return np.asarray((array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False))


def lengths(data: pa.Array) -> npt.NDArray[np.int64]:
    """Length of each binary value in bytes."""
    return numbers(pc.binary_length(data)).astype(np.int64)


# --- patterns


def like_to_regex(pattern: bytes) -> bytes:
    """A LIKE pattern as a regular expression over bytes: `%` any bytes, `_` one character, backslash escapes both."""
    out: list[bytes] = []
    at = 0
    # `%` at an end leaves out the anchor: `.*` would not match bytes that are not UTF-8.
    inner = pattern.lstrip(b"%")
    start = b"" if len(inner) < len(pattern) else b"^"
    pattern, end = inner, b"$"
    if pattern.endswith(b"%") and not re.search(rb"(?<!\\)(\\\\)*\\%$", pattern):
        pattern, end = pattern.rstrip(b"%"), b""
        if pattern.endswith(b"\\") and (len(pattern) - len(pattern.rstrip(b"\\"))) % 2:
            pattern += b"%"  # the first of the trailing `%` was escaped
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"%":
            out.append(b".*")
        elif char == b"_":
            out.append(b".")
        elif char == b"\\" and at + 1 < len(pattern):
            follow = pattern[at + 1 : at + 2]
            # An escape of anything but % _ \ stands for itself, backslash included.
            out.append(_quote(follow if follow in b"%_\\" else char + follow))
            at += 1
        else:
            out.append(_quote(char))
        at += 1
    return b"(?s)" + start + b"".join(out) + end


def _quote(raw: bytes) -> bytes:
    return b"".join(b"\\" + raw[i : i + 1] if raw[i] in b"\\^$.|?*+()[]{}" else raw[i : i + 1] for i in range(len(raw)))


def _pieces(pattern: bytes) -> list[bytes] | None:
    """The literal pieces between the `%` of a LIKE pattern; None if it has `_` or escapes."""
    return None if b"_" in pattern or b"\\" in pattern else pattern.split(b"%")


def like_kernel(pattern: bytes, *, ignore_case: bool) -> Callable[[pa.Array], npt.NDArray[np.bool_]]:
    """A test of binary values against a LIKE pattern; patterns of one literal need no regular expression."""
    pieces = _pieces(pattern)
    if pieces is not None and not ignore_case:
        if len(pieces) == 1:
            return lambda data: mask_array(pc.equal(data, pa.scalar(pattern, pa.binary())))
        filled = [piece for piece in pieces if piece]
        if not filled:
            return lambda data: np.ones(len(data), np.bool_)
        if len(filled) == 1 and not pieces[0] and not pieces[-1]:
            return lambda data: mask_array(pc.match_substring(data, filled[0]))
        if len(filled) == 1 and pieces[0]:
            return lambda data: mask_array(pc.starts_with(data, filled[0]))
        if len(filled) == 1 and pieces[-1]:
            return lambda data: mask_array(pc.ends_with(data, filled[0]))
    return regex_kernel(like_to_regex(pattern), ignore_case=ignore_case)


def regex_kernel(pattern: bytes, *, ignore_case: bool = False) -> Callable[[pa.Array], npt.NDArray[np.bool_]]:
    """A test whether binary values contain a match of an RE2 pattern."""
    try:
        text = pattern.decode()
        pc.match_substring_regex(pa.array([""]), text, ignore_case=ignore_case)
    except (pa.ArrowException, UnicodeDecodeError) as failure:
        shown = pattern.decode(errors="backslashreplace")
        raise error("CANNOT_COMPILE_REGEXP", f"Cannot compile the regular expression '{shown}': {failure}") from failure
    # On Arrow strings RE2 reads UTF-8, as in ClickHouse; on binary it would match single bytes.
    return lambda data: mask_array(pc.match_substring_regex(as_text(data), text, ignore_case=ignore_case))


def as_text(data: pa.Array) -> pa.Array:
    """Binary data as a string array, without a check that it is UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(data), data.buffers(), data.null_count, data.offset)


def _pattern(name: str, args: tuple[Operand, ...]) -> bytes:
    _texts(name, args[:1])
    if isinstance(args[1].type, t.FixedString):
        raise illegal(name, *(arg.type for arg in args))
    if not isinstance(args[1].value, bytes):
        if isinstance(args[1].type, _TEXT):
            raise error("NOT_IMPLEMENTED", f"The pattern of {name} must be constant")
        raise illegal(name, *(arg.type for arg in args))
    return args[1].value


def _like(name: str, *, negate: bool, ignore_case: bool) -> None:
    @function(name, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        test, binary = like_kernel(_pattern(name, args), ignore_case=ignore_case), as_binary(args[0].type)
        if negate:
            return Resolved(t.UINT8, lambda x, _: ~test(binary(x)), cost=40)
        return Resolved(t.UINT8, lambda x, _: test(binary(x)), cost=40)


_like("like", negate=False, ignore_case=False)
_like("notLike", negate=True, ignore_case=False)
_like("ilike", negate=False, ignore_case=True)
_like("notILike", negate=True, ignore_case=True)


@function("match", 2, any_case=True)
def _match(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    test, binary = regex_kernel(b"(?s)" + _pattern("match", args)), as_binary(args[0].type)
    return Resolved(t.UINT8, lambda x, _: test(binary(x)), cost=80)


def _affix(name: str, compute: Callable[..., Any]) -> None:
    @function(name, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        _texts(name, args, _TEXT)
        x_binary, y_binary = as_binary(args[0].type), as_binary(args[1].type)
        if args[1].is_constant:
            affix = y_binary(pa.array([args[1].value], pa.binary())) if isinstance(args[1].type, t.String) else None
            if affix is not None:
                piece = affix[0].as_py()
                return Resolved(t.UINT8, lambda x, _: mask_array(compute(x_binary(x), piece)), cost=8)
        start = name == "startsWith"

        def kernel(x: Data, y: Data) -> npt.NDArray[np.bool_]:
            texts, affixes = _broadcast(x_binary(x), y_binary(y))
            size = lengths(affixes)
            begin = np.zeros(len(texts), np.int64) if start else np.maximum(lengths(texts) - size, 0)
            edges = slices(texts, begin, np.minimum(size, lengths(texts)))
            return mask_array(pc.equal(edges, affixes))

        return Resolved(t.UINT8, kernel, cost=30)


_affix("startsWith", pc.starts_with)
_affix("endsWith", pc.ends_with)


def _broadcast(*arrays: pa.Array) -> list[pa.Array]:
    rows = 0 if any(len(array) == 0 for array in arrays) else max(len(array) for array in arrays)
    return [array if len(array) == rows else array.take(pa.array(np.zeros(rows, np.int32))) for array in arrays]


# --- length, case, pieces


def _length(name: str, of_lengths: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]], result: t.DataType) -> None:
    @function(name, 1, any_case=name == "length", aliases=("OCTET_LENGTH",) if name == "length" else ())
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        if isinstance(kind, (t.Array, t.Map)):
            return Resolved(result, lambda x: of_lengths(numbers(pc.list_value_length(x)).astype(np.int64)), cost=2)
        if isinstance(kind, t.FixedString) and name != "length":
            return Resolved(result, lambda x: of_lengths(lengths(casts.strip_padding(x))), cost=30)
        if isinstance(kind, t.FixedString):
            return Resolved(result, lambda x: of_lengths(np.full(len(x), kind.length)), cost=2)
        if isinstance(kind, (t.UUID, t.IPv6)) and name != "length":
            return Resolved(result, lambda x: of_lengths(((x["hi"] != 0) | (x["lo"] != 0)).astype(np.int64)), cost=2)
        _texts(name, args)
        if isinstance(kind, t.Enum):
            raise illegal(name, kind)
        return Resolved(result, lambda x: of_lengths(lengths(x)), cost=2)


_length("length", lambda sizes: sizes.astype(np.uint64), _U64)
_length("empty", lambda sizes: sizes == 0, t.UINT8)
_length("notEmpty", lambda sizes: sizes != 0, t.UINT8)

_LOWER, _UPPER = np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8)
_LOWER[65:91] += 32
_UPPER[97:123] -= 32


def _case(name: str, table: npt.NDArray[np.uint8], alias: str) -> None:
    @function(name, 1, any_case=True, aliases=(alias,))
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        _texts(name, args)
        binary = as_binary(args[0].type)
        result = args[0].type if isinstance(args[0].type, t.FixedString) else t.STRING
        if isinstance(result, t.FixedString):
            return Resolved(
                result, lambda x: _mapped(x.cast(pa.binary()), table).cast(pa.binary(result.length)), cost=10
            )
        return Resolved(result, lambda x: _mapped(binary(x), table), cost=8)


def _mapped(data: pa.Array, table: npt.NDArray[np.uint8]) -> pa.Array:
    """Each byte of a binary array mapped by a table; offsets are shared, not copied."""
    valid, offsets, raw = data.buffers()
    if raw is None:
        return data
    mapped = table[np.frombuffer(raw, np.uint8)]
    return pa.Array.from_buffers(
        data.type, len(data), [valid, offsets, pa.py_buffer(mapped)], data.null_count, data.offset
    )


_case("lower", _LOWER, "lcase")
_case("upper", _UPPER, "ucase")


@function("concat", 1, 1 << 20, any_case=True)
def _concat(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    casted = [as_binary(arg.type) if isinstance(arg.type, _TEXT) else casts.kernel(arg.type, t.STRING) for arg in args]

    def kernel(*data: Data) -> pa.Array:
        pieces = [cast(each) for cast, each in zip(casted, data, strict=True)]
        return pc.binary_join_element_wise(*scalars(*pieces), pa.scalar(b"", pa.binary()), null_handling="replace")

    return Resolved(t.STRING, kernel, cost=30)


def slices(data: pa.Array, begin: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> pa.Array:
    """`size` bytes from byte `begin` of each value; both must lie inside the value."""
    offsets = np.frombuffer(data.buffers()[1], np.int32, count=len(data) + 1, offset=data.offset * 4).astype(np.int64)
    raw = np.frombuffer(data.buffers()[2] or b"", np.uint8)
    new = np.zeros(len(data) + 1, np.int64)
    np.cumsum(size, out=new[1:])
    # Position of each output byte in the input: a run of consecutive bytes for each row.
    at = np.arange(new[-1]) + np.repeat(offsets[:-1] + begin - new[:-1], size)
    return pa.Array.from_buffers(
        pa.binary(), len(data), [None, pa.py_buffer(new.astype(np.int32)), pa.py_buffer(raw[at])]
    )


@function("substring", 2, 3, any_case=True, aliases=("substr", "mid", "byteSlice"))
def _substring(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    _texts("substring", args[:1])
    if not all(isinstance(arg.type, t.Int) for arg in args[1:]):
        raise illegal("substring", *(arg.type for arg in args))
    binary = as_binary(args[0].type)
    zero = args[1].is_constant and args[1].value == 0 and not args[0].is_constant

    def kernel(x: Data, start: npt.NDArray[Any], count: npt.NDArray[Any] | None = None) -> pa.Array:
        texts = binary(x)
        rows = 0 if 0 in (len(texts), len(start)) else max(len(texts), len(start), 1 if count is None else len(count))
        if zero and rows:
            raise error("ZERO_ARRAY_OR_TUPLE_INDEX", "Indices in strings are 1-based")
        if len(texts) != rows:
            texts = texts.take(pa.array(np.zeros(rows, np.int32)))
        size = lengths(texts)
        first = np.broadcast_to(_clamped(start), (rows,))
        # Positions count from 1, -1 is the last byte; 0 is before the first byte and gives an empty string.
        begin = np.where(first > 0, first - 1, size + first)
        wanted = size if count is None else np.broadcast_to(_clamped(count), (rows,))
        # A negative length omits that many bytes at the end.
        end = size if count is None else np.where(wanted >= 0, begin + wanted, size + wanted)
        begin_inside = np.clip(begin, 0, size)
        size_inside = np.clip(np.minimum(end, size) - begin_inside, 0, None)
        return slices(texts, begin_inside, np.where(first == 0, 0, size_inside))

    return Resolved(t.STRING, kernel, can_raise=zero, cost=20)


@function("left", 2, any_case=True)
def _left(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    _texts("left", args[:1])
    first = BoundLiteral(1, t.UINT8)
    return Resolved(t.STRING, node=environment.call("substring", (args[0].node, first, args[1].node)))


@function("right", 2, any_case=True)
def _right(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    _texts("right", args[:1])
    if not isinstance(args[1].type, t.Int):
        raise illegal("right", *(arg.type for arg in args))
    binary = as_binary(args[0].type)

    def kernel(x: Data, count: npt.NDArray[Any]) -> pa.Array:
        texts = binary(x)
        rows = 0 if 0 in (len(texts), len(count)) else max(len(texts), len(count))
        if len(texts) != rows:
            texts = texts.take(pa.array(np.zeros(rows, np.int32)))
        size, wanted = lengths(texts), np.broadcast_to(_clamped(count), (rows,))
        # A negative number omits that many bytes at the beginning.
        begin = np.clip(np.where(wanted >= 0, size - wanted, -wanted), 0, size)
        return slices(texts, begin, size - begin)

    return Resolved(t.STRING, kernel, cost=20)


def _clamped(data: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Positions as int64 that can be added without overflow."""
    if data.dtype == np.uint64:
        data = np.minimum(data, np.uint64(1 << 32))
    return np.clip(data.astype(np.int64), -(1 << 32), 1 << 32)


@function("position", 2, 2, any_case=True)
def _position(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    _texts("position", args, (t.String,))
    if not isinstance(args[1].value, bytes):
        raise error("NOT_IMPLEMENTED", "The text that position looks for must be constant")
    needle, binary = args[1].value, as_binary(args[0].type)
    return Resolved(_U64, lambda x, _: (numbers(pc.find_substring(binary(x), needle)) + 1).astype(np.uint64), cost=20)


@function("reverse", 1, any_case=True)
def _reverse(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    _texts("reverse", args, (t.String,))
    return Resolved(t.STRING, lambda x: pc.binary_reverse(x), cost=10)


def _trim(name: str, compute: Callable[..., Any], alias: str) -> None:
    @function(name, 1, aliases=(alias,))
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        _texts(name, args)
        binary = as_binary(args[0].type)

        def kernel(x: Data) -> pa.Array:
            trimmed = compute(as_text(binary(x)), characters=" ")
            return pa.Array.from_buffers(
                pa.binary(), len(trimmed), trimmed.buffers(), trimmed.null_count, trimmed.offset
            )

        return Resolved(t.STRING, kernel, cost=15)


_trim("trimBoth", pc.ascii_trim, "trim")
_trim("trimLeft", pc.ascii_ltrim, "ltrim")
_trim("trimRight", pc.ascii_rtrim, "rtrim")
