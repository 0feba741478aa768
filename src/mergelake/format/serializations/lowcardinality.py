"""LowCardinality: keys in dictionaries, rows as indexes of them.

The dictionary stream holds u64 version 1, then dictionaries (u64 count, keys). The index stream holds blocks:
u64 flags, [u64 count, additional keys], u64 rows, indexes. Flags: bits 0-7 width of an index (0, 1, 2, 3 for 1, 2,
4, 8 bytes); 0x100 indexes count through the shared dictionary first; 0x200 the block brings additional keys; 0x400 a
new shared dictionary starts here. Key 0 of a shared dictionary is the default; of Nullable keys 0 is NULL and 1 the
default.

Written is one dictionary for the part at its end, and one block a granule (0x500 first, 0x100 after). A column whose
keys are too many for that keeps them with each granule (0x200), as does each granule after the dictionary has filled:
then it is written at once, so that the marks of those granules lie behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from mergelake.format.kernels.kernels_dictionary import (
    ADDITIONAL,
    NEW,
    SHARED,
    WIDTH_MASK,
    WIDTH_MAX,
    pack_blocks,
    unpack_ids,
    unpack_shared,
)
from mergelake.format.kernels.kernels_nulls import mark_nulls
from mergelake.format.kernels.memory import Region, allocate, region
from mergelake.format.serializations.keytable import DistinctKeys, unknown_ids
from mergelake.format.serializations.scalars import INT32_MAX, InlineString
from mergelake.format.serializations.serialization import (
    Bounds,
    Ids,
    OneCursor,
    Serialization,
    Sink,
    StreamCursor,
    StreamSource,
    coerced,
    refuse_nulls,
)

VERSION = 1
KEYS_MAX = 1 << 20
"""Most keys of the shared dictionary that we write."""
BYTES_MAX = 1 << 28
"""Most bytes of them."""
PROBE_KEYS = 1 << 16
"""Up to so many keys the dictionary is shared without asking whether that saves anything."""
_FLAGS = WIDTH_MASK | SHARED | ADDITIONAL | NEW
_CACHED = 4
"""Dictionaries of other places in the part that a reader keeps."""


class LowCardinalitySerialization(Serialization):
    """Indexes of type i32 into a dictionary, as Arrow has them."""

    def __init__(
        self, stream: str, keys: Serialization, *, nullable: bool, local: bool = False, continues: bool = False
    ) -> None:
        """`continues`: what is written will follow the streams of other rows, so the version is left out."""
        self.stream = stream
        self.dictionary = stream + ".dict"
        self.own_streams = (self.dictionary, stream)
        self.keys = keys
        self.arrow = pa.dictionary(pa.int32(), keys.arrow)
        self.reserved = 2 if nullable else 1
        self.nullable = nullable
        self._width = 0 if isinstance(keys, InlineString) else keys.arrow.bit_width // 8
        self._table = DistinctKeys(self._width, self.reserved)
        self._local: DistinctKeys | None = None
        self._full = local
        self._rows = 0
        self._opened = continues
        self._started = self._written = False
        self._known: tuple[pa.Array, Ids] | None = None
        self._cache: dict[tuple[int, int], tuple[pa.Array, int]] = {}

    # -- writing

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        array = self._as_dictionary(array)
        if not self.nullable:
            refuse_nulls(array, nulls=nulls)
        # The dictionary comes last: until then its stream holds the version only, and every mark is (0, 8).
        if not self._opened:
            out.put(self.dictionary, region(VERSION.to_bytes(8, "little")), None)
            self._opened = True
        if not self._full and self._too_many(array):
            self._full = True
            self.finish(out)
        out.put(self.dictionary, region(b""), bounds * 0)
        if self._full:
            self._encode_local(array, bounds, out)
            return
        self._rows += len(array)
        ids = self._table.number(array, self._known_ids(array.dictionary))
        packed = allocate(16 * len(bounds) + 4 * len(ids))
        ends = np.empty(len(bounds), np.int64)
        first = SHARED if self._started else SHARED | NEW
        written = pack_blocks(
            ids.ctypes.data, bounds.ctypes.data, len(bounds), SHARED, first, packed.address, ends.ctypes.data
        )
        self._started = self._started or written > 0
        out.put(self.stream, packed.part(0, written), ends)

    def _as_dictionary(self, array: pa.Array) -> pa.DictionaryArray:
        kind = self.keys.arrow
        if not pa.types.is_dictionary(array.type):
            return coerced(array, kind).dictionary_encode()
        if array.dictionary.null_count:
            return coerced(array.dictionary_decode(), kind).dictionary_encode()
        if array.type == self.arrow:
            return array
        indexes = coerced(array.indices, pa.int32())
        return pa.DictionaryArray.from_arrays(indexes, coerced(array.dictionary, kind), safe=False)

    def _known_ids(self, entries: pa.Array) -> Ids:
        """Ids of the entries of a dictionary, kept as long as the same dictionary comes."""
        if self._known is None or not _same_memory(self._known[0], entries):
            self._known = (entries, unknown_ids(entries))
        return self._known[1]

    def _too_many(self, array: pa.DictionaryArray) -> bool:
        """Whether a dictionary of the whole part would be too large, or would hardly save anything."""
        fresh = min(len(array), len(array.dictionary))
        count, rows = self._table.count + fresh, self._rows + len(array)
        if count <= PROBE_KEYS:
            return False
        return (
            count > KEYS_MAX
            or self._table.size + array.dictionary.nbytes > BYTES_MAX
            or (self._rows > 0 and self._table.count > PROBE_KEYS and 2 * self._table.count > rows)
        )

    def encode_alone(self, array: pa.Array, bounds: Bounds, out: Sink) -> None:
        """Write blocks with their own keys only, the default first, as a set index holds them."""
        self._local = DistinctKeys(self._width, self.reserved)
        self._encode_local(self._as_dictionary(array), bounds, out)

    def _encode_local(self, array: pa.DictionaryArray, bounds: Bounds, out: Sink) -> None:
        """A block with its own keys for each granule."""
        table = self._local = self._local or DistinctKeys(self._width, self.reserved if self.nullable else 0)
        pieces: list[bytes] = []
        ends = np.empty(len(bounds), np.int64)
        size = start = 0
        for g, stop in enumerate(bounds.tolist()):
            if stop > start:
                table.clear()
                ids = table.number(array.slice(start, stop - start))
                block = allocate(16 + 4 * len(ids))
                rows = np.array([len(ids)], np.int64)
                end = np.empty(1, np.int64)
                written = pack_blocks(
                    ids.ctypes.data, rows.ctypes.data, 1, ADDITIONAL, ADDITIONAL, block.address, end.ctypes.data
                )
                packed = block.part(0, written).tobytes()
                keys = plain_bytes(self.keys, table.keys(self.keys.arrow))
                # flags, the keys, then rows and indexes
                pieces += [packed[:8], table.count.to_bytes(8, "little"), keys, packed[8:]]
                size += written + 8 + len(keys)
                start = stop
            ends[g] = size
        out.put(self.stream, region(b"".join(pieces)), ends)

    def finish(self, out: Sink) -> None:
        """Write what had to wait for the end."""
        if not self._started or self._written:
            return
        self._written = True
        keys = plain_bytes(self.keys, self._table.keys(self.keys.arrow))
        body = self._table.count.to_bytes(8, "little") + keys
        out.put(self.dictionary, region(body), None)

    # -- reading

    def prefix(self, source: StreamSource) -> None:
        """Read what comes before a granule of a Compact part."""
        self._check_version(source.stream(self.dictionary))

    def _check_version(self, cursor: StreamCursor) -> None:
        version = cursor.word()
        if version != VERSION:
            raise cursor.corrupt("Unknown version of a LowCardinality dictionary", str(VERSION), str(version))

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        cursor = source.stream(self.stream)
        # Each index takes a byte at least; a row count that lies must not make us allocate.
        if rows > cursor.left:
            raise cursor.corrupt("The stream of dictionary indexes ends early", f"{rows} rows", f"{cursor.left} bytes")
        ids = np.empty(rows, np.int32)
        gathered = _Gathered(self)
        used = np.zeros(1, np.int64)
        shared: tuple[int, int] | None = None
        done = 0
        null_below = 1 if self.nullable else 0
        parts = iter(np.cumsum(granules).tolist()) if source.joined else iter(())
        end = 0 if source.joined else rows
        while done < rows:
            if done == end:  # a part of its own, with a dictionary of its own
                self._check_version(source.stream(self.dictionary))
                shared, end = None, next(parts)
            if shared is not None:
                unread = cursor.rest()
                read = unpack_shared(
                    unread.address, unread.size, end - done, shared[0], shared[1], null_below,
                    ids.ctypes.data + 4 * done, used.ctypes.data,
                )  # fmt: skip
                if read < 0:
                    raise cursor.corrupt("A block of dictionary indexes is broken")
                cursor.take(int(used[0]))
                done += read
                if done == end:
                    continue
            flags = cursor.word()
            width = flags & WIDTH_MASK
            if width > WIDTH_MAX or flags & ~_FLAGS or not flags & (SHARED | ADDITIONAL):
                raise cursor.corrupt("Unknown flags of a LowCardinality block", found=hex(flags))
            if flags & SHARED and (shared is None or flags & NEW):
                shared = gathered.add(self._next_dictionary(source, first=shared is None), drop=self.nullable)
            local = (0, 0)
            if flags & ADDITIONAL:
                local = gathered.add(self._read_keys(cursor), drop=self.nullable and not flags & SHARED)
            count = cursor.word()
            if count == 0 or count > end - done:
                raise cursor.corrupt(
                    "A LowCardinality block has a wrong number of rows", f"at most {end - done}", str(count)
                )
            data = cursor.take(count << width)
            base, base_at = shared if shared is not None and flags & SHARED else (0, 0)
            past_keys = unpack_ids(
                data.address, count, width, base, base_at, local[0], local[1], null_below, ids.ctypes.data + 4 * done
            )
            if past_keys:
                raise cursor.corrupt("An index of a LowCardinality block is past its keys", f"below {base + local[0]}")
            done += count
        return gathered.array(ids)

    def _next_dictionary(self, source: StreamSource, *, first: bool) -> pa.Array:
        """The next shared dictionary; the one that a range starts with is kept for the next ranges."""
        cursor = source.stream(self.dictionary)
        origin = source.origin(self.dictionary) if first and not source.joined else None
        cached = self._cache.get(origin) if origin is not None else None
        if cached is not None:
            keys, end = cached
            cursor.take(end - cursor.position)
            return keys
        if origin == (0, 0):
            self._check_version(cursor)
        keys = self._read_keys(cursor)
        if len(keys) < self.reserved:
            raise cursor.corrupt("A LowCardinality dictionary lacks its default key", found=f"{len(keys)} keys")
        if origin is not None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[origin] = (keys, cursor.position)
        return keys

    def _read_keys(self, cursor: StreamCursor) -> pa.Array:
        count = cursor.word()
        if count > cursor.left:
            raise cursor.corrupt("A LowCardinality dictionary ends early", f"{count} keys", f"{cursor.left} bytes")
        return self.keys.decode(OneCursor(cursor), count, np.array([count], np.int64))


class _Gathered:
    """Keys of all dictionaries that a range meets, one after another."""

    def __init__(self, node: LowCardinalitySerialization) -> None:
        self._serialization = node
        self._pieces: list[pa.Array] = []
        self._size = 0

    def add(self, keys: pa.Array, *, drop: bool) -> tuple[int, int]:
        """Add keys, without the first if `drop` (it stands for NULL).

        Returns how many they were and the place of the first: that before the second, if it was dropped.
        """
        count = len(keys)
        kept = keys.slice(1) if drop and count else keys
        at = self._size - (count - len(kept))
        self._pieces.append(kept)
        self._size += len(kept)
        return count, at

    def array(self, ids: Ids) -> pa.DictionaryArray:
        """Rows with these ids, -1 for NULL; equal keys of several dictionaries become one."""
        kind = self._serialization.keys.arrow
        keys = self._pieces[0] if len(self._pieces) == 1 else pa.concat_arrays(self._pieces or [pa.array([], kind)])
        if len(self._pieces) > 1:
            if self._size > INT32_MAX:
                raise OverflowError("more than 2^31 dictionary keys in one piece; read fewer granules at once")
            unique = keys.dictionary_encode()
            places = np.append(np.asarray(unique.indices), np.int32(-1))
            ids = places[ids]
            keys = unique.dictionary
        bits = None
        if self._serialization.nullable:
            valid = allocate((len(ids) + 7) // 8)
            if mark_nulls(ids.ctypes.data, len(ids), valid.address):
                bits = valid.buffer()
        indexes = pa.Array.from_buffers(pa.int32(), len(ids), [bits, pa.py_buffer(ids)])
        return pa.DictionaryArray.from_arrays(indexes, keys, safe=False)


def _same_memory(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays are the same rows of the same buffers."""
    if len(left) != len(right) or left.offset != right.offset:
        return False
    pairs = zip(left.buffers(), right.buffers(), strict=True)
    return all((a.address if a else 0) == (b.address if b else 0) for a, b in pairs)


class _Collect:
    """A sink that keeps one stream."""

    data = b""

    def put(self, stream: str, data: Region, ends: Bounds | None) -> None:
        self.data = data.tobytes()


def plain_bytes(node: Serialization, values: pa.Array) -> bytes:
    """`values` in the bulk form of `node`, a type with one stream."""
    sink = _Collect()
    node.encode(values, np.array([len(values)], np.int64), sink)
    return sink.data


def low_cardinality_within(node: Serialization) -> Iterator[LowCardinalitySerialization]:
    """The LowCardinality columns in a column: itself, or inside of tuples, arrays and maps."""
    if isinstance(node, LowCardinalitySerialization):
        yield node
    for child in node.children:
        yield from low_cardinality_within(child)
