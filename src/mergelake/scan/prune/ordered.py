"""Key values in comparable form, and their positions among constants.

Pruning compares, for many marks at once, ranges of key values with a range (or set) of a predicate. With the
predicate's constants c0 < c1 < … < c(m-1) as cut points, every value falls into one of the *cells* ::

    0        1        2           3       …   2m                 2m + 1
    v < c0   v = c0   c0<v<c1     v = c1      v > c(m-1)         NaN or NULL, greatest of all

so only small integers are compared afterwards, whatever the type of the key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.types import types as t
from mergelake.format.serializations.array_order import order_cells

Value = int | float | bytes
Cells = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Values of one column in a form whose order is the column's order.

    Numbers are int64, uint64 or float64; wide integers Python objects; everything else a pyarrow binary
    array whose byte order is the order of the type.
    """

    values: NDArray[np.generic] | pa.Array
    missing: NDArray[np.bool_] | None
    """True where the value is NULL or NaN (greatest of all); None if nowhere."""

    def __len__(self) -> int:
        return len(self.values)

    def item(self, i: int) -> Value | None:
        """The i-th value as a Python object; None for NULL and NaN."""
        if self.missing is not None and self.missing[i]:
            return None
        value = self.values[i]
        return _python(value.as_py() if isinstance(value, pa.Scalar) else value)

    def same(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the values at rows `left` equal those at rows `right` (NULL equals NULL, NaN equals NaN)."""
        if isinstance(self.values, pa.Array):
            equal = pc.equal(self.values.take(pa.array(left)), self.values.take(pa.array(right)))
            out = np.asarray(equal.fill_null(False))
        else:
            out = np.asarray(self.values[left] == self.values[right], dtype=bool)
        if self.missing is not None:
            a, b = self.missing[left], self.missing[right]
            both = a & b
            if isinstance(self.values, np.ndarray) and self.values.dtype.kind == "f":  # NaN comes before NULL
                both &= np.isnan(self.values[left]) == np.isnan(self.values[right])
            out = (out & ~a & ~b) | both
        return out

    def less(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the values at rows `left` are less than those at rows `right`; False next to NULL or NaN."""
        if isinstance(self.values, pa.Array):
            out = np.asarray(
                pc.less(self.values.take(pa.array(left)), self.values.take(pa.array(right))).fill_null(False)
            )
        else:
            out = np.asarray(np.less(self.values[left], self.values[right]), dtype=bool)
        return out if self.missing is None else out & ~self.missing[left] & ~self.missing[right]

    def cells(self, cuts: Sequence[Value], step: int = 0) -> Cells:
        """Cell of each value (plus `step`, for integers) among the ascending `cuts`."""
        out = np.zeros(len(self.values), dtype=np.int64)
        if len(cuts) > 4 and isinstance(self.values, np.ndarray) and self.values.dtype.kind in "iuf":
            out = _searched(self.values, cuts, step)
        elif len(cuts) > min(len(self.values), 64):
            out[:] = [_bisected(cuts, value, step) for value in self._as_python()]
        else:
            for cut in cuts:
                bound = cut - step if step and isinstance(cut, int) else cut
                out += 2 * self._compare(pc.greater, np.greater, bound).astype(np.int64)
                out += self._compare(pc.equal, np.equal, bound)
        if self.missing is not None:
            out[self.missing] = 2 * len(cuts) + 1
        return out

    def _as_python(self) -> list[Value | None]:
        held: list[Value | None] = (
            self.values.to_pylist() if isinstance(self.values, pa.Array) else self.values.tolist()
        )
        return held

    def _compare(self, arrow: object, numpy: object, cut: Value) -> NDArray[np.bool_]:
        if isinstance(self.values, pa.Array):
            assert callable(arrow)
            return np.asarray(arrow(self.values, pa.scalar(cut, self.values.type)).fill_null(False))
        assert callable(numpy)
        return np.asarray(numpy(self.values, cut), dtype=bool)


def _bisected(cuts: Sequence[Value], value: Any, step: int) -> int:
    """Cell of one value; 0 for NULL."""
    if value is None:
        return 0
    wanted = value + step if step and isinstance(value, int) else value
    return bisect_left(cuts, wanted) + bisect_right(cuts, wanted)


def _searched(values: NDArray[np.generic], cuts: Sequence[Value], step: int) -> Cells:
    kind = values.dtype
    bounds = [cut - step if isinstance(cut, int) else cut for cut in cuts] if step else cuts
    below = 0
    if kind.kind in "iu":
        # Cut points outside the type lie below or above every value: they only shift the cells.
        low, high = (0, (1 << 64) - 1) if kind.kind == "u" else (-(1 << 63), (1 << 63) - 1)
        below, end = bisect_left(bounds, low), bisect_right(bounds, high)
        bounds = bounds[below:end]
    edges = np.array(bounds, dtype=kind)
    return np.searchsorted(edges, values, "left") + np.searchsorted(edges, values, "right") + 2 * below


def _python(value: object) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    assert isinstance(value, (int, float, bytes))
    return value


def orderable(data_type: t.DataType) -> bool:
    """Whether `ordered` supports the type; conditions on others are `Unknown`."""
    inner = t.inner_type(data_type)
    return not isinstance(inner, (t.Array, t.Tuple, t.BFloat16, *t.UNORDERED))


def is_native_integer(data_type: t.DataType) -> bool:
    """Whether ClickHouse's range arithmetic turns open bounds of the type into closed ones, one apart."""
    inner = t.inner_type(data_type)
    if isinstance(inner, t.Int):
        return inner.bits <= 64
    return isinstance(inner, (t.Bool, t.Date, t.Date32, t.DateTime, t.Enum, t.Time, t.Interval))


def ordered(array: pa.Array, data_type: t.DataType) -> Ordered:
    """`array` (storage form of `data_type`) in comparable form."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    inner = t.inner_type(data_type)
    missing = np.asarray(array.is_null()) if array.null_count else None
    if isinstance(inner, t.Nothing):
        return Ordered(np.zeros(len(array), np.int64), missing)
    if isinstance(inner, (t.Array, t.Map, t.Tuple, t.BFloat16)):  # not compared themselves, but later key columns are
        return Ordered(order_cells(array, inner).to_arrow(), missing)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return Ordered(array, missing)
    if pa.types.is_fixed_size_binary(array.type):
        if isinstance(inner, (t.Int, t.Decimal)):
            return Ordered(_wide_numbers(array, not isinstance(inner, t.Int) or inner.signed), missing)
        return Ordered(_bytes_in_order(array, inner), missing)
    if array.null_count:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        nan = np.isnan(wide)
        if nan.any():
            missing = nan if missing is None else missing | nan
        return Ordered(wide, missing)
    return Ordered(values.astype(np.uint64 if values.dtype.kind == "u" else np.int64), missing)


def _bytes_in_order(array: pa.Array, inner: t.DataType) -> pa.Array:
    """Fixed-width bytes whose byte order is the type's order: ClickHouse compares UUIDs as little-endian numbers."""
    if isinstance(inner, t.UUID):
        buffer = array.buffers()[1]
        raw = np.frombuffer(buffer, dtype=np.uint8, count=len(array) * 16, offset=array.offset * 16)
        turned = np.ascontiguousarray(raw.reshape(-1, 16)[:, ::-1])
        array = pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(turned)])
    return array.cast(pa.binary())


def _wide_numbers(array: pa.Array, signed: bool) -> NDArray[np.generic]:
    out = np.empty(len(array), dtype=object)
    out[:] = [int.from_bytes(value or b"", "little", signed=signed) for value in array.to_pylist()]
    return out
