"""Kernels over rows and bits for skip indexes: hashing, finding distinct values, filling and probing Bloom filters.

Segments are runs of rows: `ends[i]` is the row after segment i. The callers check all bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.city_hash import city64, city64_seeded, hash16
from mergelake.core.jit.intrinsics import kernel, load8, load64, store8

_SEED_FACTOR, _SEED_SUMMAND = np.uint64(845897321), np.uint64(217728422)
"""The seed of the second hash from that of the first.

Source: ClickHouse, `BloomFilter.cpp`, `SEED_GEN_A` and `SEED_GEN_B`.
"""
_LEAD_2, _LEAD_3, _LEAD_4, _LEAD_END = (np.uint64(byte) for byte in (0xC0, 0xE0, 0xF0, 0xF8))
"""Least bytes that begin a UTF-8 sequence of 2, 3 and 4 bytes, and the first above them."""
_NOT_ASCII = np.uint64(0x80)
_LOWER_CASE = np.uint64(0x20)
"""Bit that is set in small letters only."""
_A, _Z, _0, _9 = (np.uint64(ord(character)) for character in "az09")


@kernel
def hash_rows(address: int, offsets: Any, out: Any) -> None:
    """CityHash64 of the bytes offsets[i] to offsets[i + 1] at `address`."""
    for i in range(len(out)):
        out[i] = city64(address + offsets[i], offsets[i + 1] - offsets[i])


@kernel
def _compare(a: int, a_size: int, b: int, b_size: int) -> Any:
    """Below zero, zero, above zero as the bytes at `a` come before, equal, come after those at `b`."""
    common = min(a_size, b_size)
    i = 0
    while i + 8 <= common and load64(a + i) == load64(b + i):
        i += 8
    while i < common:
        left, right = load8(a + i), load8(b + i)
        if left != right:
            return -1 if left < right else 1
        i += 1
    return a_size - b_size


@kernel
def extreme_rows(source: int, offsets: Any, missing: Any, ends: Any, low: Any, high: Any) -> None:
    """Rows of the least and of the greatest run of bytes in each segment; -1 where all are missing."""
    start = 0
    for segment in range(len(ends)):
        least = -1
        greatest = -1
        for row in range(start, ends[segment]):
            if missing[row]:
                continue
            if least < 0:
                least = row
                greatest = row
                continue
            at, size = source + offsets[row], offsets[row + 1] - offsets[row]
            if _compare(at, size, source + offsets[least], offsets[least + 1] - offsets[least]) < 0:
                least = row
            if _compare(at, size, source + offsets[greatest], offsets[greatest + 1] - offsets[greatest]) > 0:
                greatest = row
        low[segment] = least
        high[segment] = greatest
        start = ends[segment]


@kernel
def distinct_by_segment(hashes: Any, ends: Any, out: Any, counts: Any, table: Any, owner: Any) -> int:
    """The distinct hashes of each segment, in order of appearance, one segment behind the other in `out`.

    `table` and `owner` (int64, -1) have room for a power of two of at least twice the longest segment.
    """
    mask = np.uint64(len(table) - 1)
    written = 0
    start = 0
    for segment in range(len(ends)):
        first = written
        for i in range(start, ends[segment]):
            value = hashes[i]
            at = np.int64((value ^ (value >> np.uint64(32))) & mask)
            while owner[at] == segment and table[at] != value:
                at = (at + 1) & np.int64(mask)
            if owner[at] != segment:
                owner[at] = segment
                table[at] = value
                out[written] = value
                written += 1
        counts[segment] = written - first
        start = ends[segment]
    return written


@kernel
def first_rows(codes: Any, ends: Any, seen: Any, out: Any, counts: Any) -> int:
    """The rows at which a code appears for the first time in its segment; `seen` (-1) has room for every code."""
    written = 0
    start = 0
    for segment in range(len(ends)):
        first = written
        for row in range(start, ends[segment]):
            if seen[codes[row]] != segment:
                seen[codes[row]] = segment
                out[written] = row
                written += 1
        counts[segment] = written - first
        start = ends[segment]
    return written


@kernel
def fill_filters(hashes: Any, counts: Any, starts: Any, sizes: Any, seeds: Any, out: int) -> None:
    """Set the bits of each segment's hashes in its filter of `sizes` bytes at address `out + starts`."""
    at = 0
    for segment in range(len(counts)):
        base = out + starts[segment]
        bits = np.uint64(8 * sizes[segment])
        for i in range(at, at + counts[segment]):
            for k in range(len(seeds)):
                bit = np.int64(hash16(hashes[i], seeds[k]) % bits)
                place = base + (bit >> 3)
                store8(place, load8(place) | (np.uint64(1) << np.uint64(bit & 7)))
        at += counts[segment]


@kernel
def probe_filters(source: int, starts: Any, sizes: Any, hashes: Any, seeds: Any, out: Any) -> None:
    """out[g, i]: whether filter g, `sizes[g]` bytes at `source + starts[g]`, may hold hashes[i]."""
    for g in range(len(starts)):
        bits = np.uint64(8 * sizes[g])
        for i in range(len(hashes)):
            all_set = sizes[g] > 0
            k = 0
            while all_set and k < len(seeds):
                bit = np.int64(hash16(hashes[i], seeds[k]) % bits)
                all_set = (load8(source + starts[g] + (bit >> 3)) >> np.uint64(bit & 7)) & np.uint64(1) != 0
                k += 1
            out[g, i] = all_set


@kernel
def _add_piece(source: int, size: int, out: int, bits: np.uint64, hashes: int, seed: np.uint64) -> None:
    """Set the bits of one piece: bit i is a + i b + i² modulo `bits`, a and b being hashes of the piece."""
    plain = city64(source, size)
    step = city64_seeded(plain, _SEED_FACTOR * seed + _SEED_SUMMAND)
    at = city64_seeded(plain, seed)
    for i in range(hashes):
        bit = np.int64((at + np.uint64(i) * np.uint64(i)) % bits)
        place = out + (bit >> 3)
        store8(place, load8(place) | (np.uint64(1) << np.uint64(bit & 7)))
        at += step


@kernel
def add_piece(source: int, size: int, out: int, filter_bytes: int, hashes: int, seed: int) -> None:
    """Set the bits of one piece of `size` bytes in the filter at address `out`."""
    _add_piece(source, size, out, np.uint64(8 * filter_bytes), hashes, np.uint64(seed))


@kernel
def _sequence_bytes(byte: Any) -> Any:
    """Bytes of the UTF-8 sequence that begins with `byte`; 1 for a byte that begins none."""
    if byte < _LEAD_2:
        return 1
    if byte < _LEAD_3:
        return 2
    if byte < _LEAD_4:
        return 3
    return 4 if byte < _LEAD_END else 1


@kernel
def _is_word(byte: Any) -> Any:
    """Whether a byte is part of a word: an ASCII letter or digit, or not ASCII."""
    letter = byte | _LOWER_CASE
    return byte >= _NOT_ASCII or (letter >= _A and letter <= _Z) or (byte >= _0 and byte <= _9)


@kernel
def text_filters(
    source: int, offsets: Any, ends: Any, ngram: int, filter_bytes: int, hashes: int, seed: int, out: int
) -> None:
    """Add the pieces of each segment's strings to the segment's filter; filters lie one behind the other at `out`."""
    bits = np.uint64(8 * filter_bytes)
    first = 0
    for segment in range(len(ends)):
        target = out + segment * filter_bytes
        for row in range(first, ends[segment]):
            at = source + offsets[row]
            stop = source + offsets[row + 1]
            if ngram:
                while at < stop:
                    end = at
                    count = 0
                    while count < ngram and end < stop:
                        end += _sequence_bytes(load8(end))
                        count += 1
                    if count < ngram:
                        break
                    end = min(end, stop)
                    _add_piece(at, end - at, target, bits, hashes, np.uint64(seed))
                    at += _sequence_bytes(load8(at))
            else:
                while at < stop:
                    while at < stop and not _is_word(load8(at)):
                        at += 1
                    end = at
                    while end < stop and _is_word(load8(end)):
                        end += 1
                    if end > at:
                        _add_piece(at, end - at, target, bits, hashes, np.uint64(seed))
                    at = end
        first = ends[segment]
