"""A growing set of distinct keys, each with a number: the dictionary of a LowCardinality column while it is written."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError
from mergelake.format.kernels.kernels_dictionary import number_rows, place_keys
from mergelake.format.kernels.memory import region
from mergelake.format.serializations.serialization import Ids, as_numpy, validity

T = TypeVar("T", bound=np.generic)


class DistinctKeys:
    """Keys in order of appearance, found by an open-addressed hash table.

    The first `reserved` keys are the default value: key 0 of a plain type; of Nullable keys 0 (NULL) and 1.
    """

    def __init__(self, width: int, reserved: int) -> None:
        self.width = width
        """Bytes of a key, 0 for strings."""
        self.reserved = reserved
        self._offsets = np.zeros(64, np.int64)
        self._data = np.zeros(1024, np.uint8)
        self._slots = np.full(64, -1, np.int32)
        self.count = 0
        """Keys, the reserved ones included."""
        self.clear()

    def clear(self) -> None:
        """Forget all keys but the reserved ones."""
        self._slots[:] = -1
        self.count = self.reserved
        self._offsets[: self.reserved + 1] = np.arange(self.reserved + 1) * self.width
        self._data[: self.size] = 0
        # Of the two defaults of Nullable the first stands for NULL and must never be found.
        self._place(max(self.reserved - 1, 0))

    @property
    def size(self) -> int:
        """Bytes of all keys."""
        return int(self._offsets[self.count])

    def _place(self, first: int) -> None:
        place_keys(
            self._offsets.ctypes.data, self._data.ctypes.data, first, self.count, self._slots.ctypes.data,
            len(self._slots) - 1,
        )  # fmt: skip

    def _reserve(self, keys: int, size: int) -> None:
        """Room for so many more keys and bytes."""
        self._offsets = _grown(self._offsets, self.count + keys + 2)
        self._data = _grown(self._data, self.size + size + 16)
        if 2 * (self.count + keys) > len(self._slots):
            self._slots = np.full(1 << (2 * (self.count + keys)).bit_length(), -1, np.int32)
            self._place(max(self.reserved - 1, 0))

    def number(self, array: pa.DictionaryArray, known: Ids | None = None) -> Ids:
        """The id of each row of `array`; new keys are added. NULL is 0.

        `known` is a result of `unknown_ids`, in which the ids that are found are noted; pass it again with the same
        dictionary.
        """
        entries, keys = array.dictionary, array.indices
        rows = len(array)
        out = np.empty(rows, np.int32)
        if not rows:
            return out
        if known is None:
            known = unknown_ids(entries)
        offsets, data, size = key_bytes(entries, self.width)
        self._reserve(min(len(entries), rows), size)
        bits, bit = validity(keys)
        count = number_rows(
            keys.buffers()[1].address + 4 * keys.offset, rows, bits, bit, len(entries), known.ctypes.data,
            offsets.ctypes.data, data, self._offsets.ctypes.data, self._data.ctypes.data, self.count,
            self._slots.ctypes.data, len(self._slots) - 1, 0, out.ctypes.data,
        )  # fmt: skip
        if count < 0:
            raise InternalError("a dictionary index is out of range")
        self.count = count
        return out

    def keys(self, arrow: pa.DataType, first: int = 0) -> pa.Array:
        """Keys from `first` on as an array of the storage form `arrow`."""
        rows = self.count - first
        start = int(self._offsets[first])
        body = pa.py_buffer(self._data[start : self.size].copy())
        if self.width:
            return pa.Array.from_buffers(arrow, rows, [None, body])
        offsets = (self._offsets[first : self.count + 1] - start).astype(np.int32)
        return pa.Array.from_buffers(arrow, rows, [None, pa.py_buffer(offsets), body])


def unknown_ids(entries: pa.Array) -> Ids:
    """-1 in place of the id of each dictionary entry, and one more for NULL."""
    return np.full(len(entries) + 1, -1, np.int32)


def key_bytes(entries: pa.Array, width: int) -> tuple[Ids, int, int]:
    """The i32 offsets of dictionary entries (entries + 1), the address they count from, the bytes they span."""
    buffers, rows = entries.buffers(), len(entries)
    if width:
        start = buffers[1].address + entries.offset * width if buffers[1] is not None else 0
        return np.arange(rows + 1, dtype=np.int32) * np.int32(width), start, rows * width
    if buffers[1] is None or not buffers[1].size:
        return np.zeros(1, np.int32), 0, 0
    offsets = as_numpy(region(buffers[1]), np.int32)[entries.offset : entries.offset + rows + 1]
    return offsets, buffers[2].address if buffers[2] is not None else 0, int(offsets[-1]) - int(offsets[0])


def _grown(array: NDArray[T], room: int) -> NDArray[T]:
    if room <= len(array):
        return array
    fresh = np.zeros(max(room, 2 * len(array)), array.dtype)
    fresh[: len(array)] = array
    return fresh
