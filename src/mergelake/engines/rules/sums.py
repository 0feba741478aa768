"""Sums of groups of rows, in the type of the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.engines.order.normalized_keys import fixed_bytes, numpy_values
from mergelake.engines.rules.mode import Mask

_SHORT = 32
"""Rows of a group that is added up together with others."""


def total(values: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """The sum of each group, in the type of the values; NULL if all are."""
    if pa.types.is_dictionary(values.type):
        return total(values.dictionary_decode(), begins).dictionary_encode()
    kind, count = values.type, len(begins)
    valid = None
    if values.null_count:
        present = np.asarray(values.is_valid())
        valid = np.logical_or.reduceat(present, begins)
    if pa.types.is_fixed_size_binary(kind):
        sums = _wide_sums(fixed_bytes(values, kind.byte_width), begins, None if valid is None else present)
    else:
        numbers = numpy_values(values)
        if valid is not None:
            numbers = np.where(present, numbers, numbers.dtype.type(0))
        sums = _sums(numbers, begins)
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(np.ascontiguousarray(sums))])


def _sums(numbers: NDArray[Any], begins: NDArray[np.int64]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        if numbers.dtype.kind == "f":
            return _add_floats(numbers, begins)
        return np.add.reduceat(numbers, begins, dtype=numbers.dtype)


def _wide_sums(raw: NDArray[np.uint8], begins: NDArray[np.int64], present: Mask | None) -> NDArray[np.uint32]:
    """Sums of integers of more than 64 bits: in 32-bit digits, which cannot overflow 64 bits, then carried."""
    digits = np.ascontiguousarray(raw).view("<u4").astype(np.uint64)
    if present is not None:
        digits[~present] = 0
    sums = np.add.reduceat(digits, begins, axis=0)
    for at in range(sums.shape[1] - 1):
        sums[:, at + 1] += sums[:, at] >> np.uint64(32)
    return sums.astype(np.uint32)


def _add_floats(numbers: NDArray[Any], begins: NDArray[np.int64]) -> NDArray[Any]:
    """Sums of floats, each rounded to the type of the numbers after each addition, from first to last."""
    lengths = np.diff(begins, append=len(numbers))
    sums = numbers[begins]
    for group in np.flatnonzero(lengths > _SHORT).tolist():
        sums[group] = np.add.accumulate(numbers[begins[group] : begins[group] + lengths[group]])[-1]
    left, at = np.flatnonzero((lengths > 1) & (lengths <= _SHORT)), 1
    while len(left):
        sums[left] += numbers[begins[left] + at]
        at += 1
        left = left[lengths[left] > at]
    return sums


def is_zero(values: pa.Array) -> Mask:
    """Which sums are 0."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_fixed_size_binary(values.type):
        zero: Mask = np.equal(fixed_bytes(values, values.type.byte_width).max(axis=1, initial=0), 0)
    else:
        zero = np.equal(numpy_values(values), 0)
    return zero
