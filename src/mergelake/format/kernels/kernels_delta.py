"""Kernels of the Delta codec: values become differences to their predecessors, and back, modulo 2^(8 width)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import kernel, load8, load32, load64, peek16, store8, store16, store32, store64
from mergelake.format.kernels.kernels_bits import load, store

_ZERO = np.uint64(0)


@kernel
def delta_encode(source: int, count: int, width: int, out: int) -> int:
    """Differences of `count` values of `width` (1, 2, 4, 8) bytes; the first to zero. Returns the bytes written."""
    last: Any = _ZERO
    # A loop for each width, and no `load` and `store` of any width: only so does LLVM make vectors of it.
    if width == 8:
        for i in range(count):
            value = load64(source + 8 * i)
            store64(out + 8 * i, value - last)
            last = value
    elif width == 4:
        for i in range(count):
            value = load32(source + 4 * i)
            store32(out + 4 * i, value - last)
            last = value
    elif width == 2:
        for i in range(count):
            value = np.uint64(peek16(source + 2 * i))
            store16(out + 2 * i, value - last)
            last = value
    else:
        for i in range(count):
            value = load8(source + i)
            store8(out + i, value - last)
            last = value
    return count * width


@kernel
def delta_decode(source: int, count: int, width: int, out: int) -> None:
    """Running sums of `count` differences of `width` (1, 2, 4, 8) bytes."""
    value: Any = _ZERO
    for i in range(count):
        value += load(source + width * i, width)
        store(out + width * i, width, value)
