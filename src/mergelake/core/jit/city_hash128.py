"""CityHash128 of release 1.0.2 (later releases differ), as ClickHouse uses it, and its chained form for files.

All arithmetic wraps at 64 bits. Source: ClickHouse, `contrib/cityhash102/src/city.cc`; the names follow it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.city_hash import K0, K1, K3, hash16, mix, rotate, short_hash, weak_hash32
from mergelake.core.jit.intrinsics import copy, inlined, kernel, load64, peek64, store64

CHUNK = 2048
"""Bytes of a chunk of a stream in the file hash."""


@inlined
def _seeded(s: Any, n: Any, lo: Any, hi: Any) -> Any:
    """CityHash128WithSeed of `n` bytes at address `s`."""
    if n < 128:
        a, b = lo, hi
        if n <= 16:
            a = mix(a * K1) * K1
            c = b * K1 + short_hash(s, n)
            d = mix(a + (load64(s) if n >= 8 else c))
        else:
            c = hash16(load64(s + n - 8) + K1, a)
            d = hash16(b + np.uint64(n), c + load64(s + n - 16))
            a += d
            left = n - 16
            while left > 0:
                a = (a ^ mix(load64(s) * K1) * K1) * K1
                b ^= a
                c = (c ^ mix(load64(s + 8) * K1) * K1) * K1
                d ^= c
                s += 16
                left -= 16
        a = hash16(a, c)
        b = hash16(d, b)
        return a ^ b, hash16(b, a)
    x, y = lo, hi
    z = np.uint64(n) * K1
    v0 = rotate(y ^ K1, 49) * K1 + load64(s)
    v1 = rotate(v0, 42) * K1 + load64(s + 8)
    w0 = rotate(y + z, 35) * K1 + x
    w1 = rotate(x + load64(s + 88), 53) * K1
    left = n
    while left >= 128:
        for _ in range(2):
            x = rotate(x + y + v0 + load64(s + 16), 37) * K1
            y = rotate(y + v1 + load64(s + 48), 42) * K1
            x ^= w1
            y ^= v0
            z = rotate(z ^ w0, 33)
            v0, v1 = weak_hash32(s, v1 * K1, x + w0)
            w0, w1 = weak_hash32(s + 32, z + w1, y)
            x, z = z, x
            s += 64
        left -= 128
    y += rotate(w0, 37) * K0 + z
    x += rotate(v0 + z, 49) * K0
    done = 0
    while done < left:
        # These steps go backwards from the end and may overlap bytes that are already hashed.
        done += 32
        y = rotate(y - x, 42) * K0 + v1
        w0 += load64(s + left - done + 16)
        x = rotate(x, 49) * K0 + w0
        w0 += v0
        v0, v1 = weak_hash32(s + left - done, v0, v1)
    x = hash16(x, v0)
    y = hash16(y, w0)
    return hash16(x + v1, w1) + y, hash16(x + w1, y + v1)


@inlined
def city(s: Any, n: Any) -> Any:
    """CityHash128 of `n` bytes at address `s`, as two words in stored order (for other kernels)."""
    if n >= 16:
        return _seeded(s + 16, n - 16, load64(s) ^ K3, load64(s + 8))
    if n >= 8:
        return _seeded(s, 0, load64(s) ^ (np.uint64(n) * K0), load64(s + n - 8) ^ K1)
    return _seeded(s, n, K0, K1)


@kernel
def city128_at(source: int, size: int, out: int) -> None:
    """CityHash128 of `size` bytes at `source`; two u64 are stored at `out`."""
    first, second = city(source, size)
    store64(out, first)
    store64(out + 8, second)


@kernel
def file_hash_update(state: int, tail: int, tail_size: int, source: int, size: int) -> int:
    """Hash `size` bytes at `source`; `state` is two u64, `tail` holds `tail_size` < 2048 bytes not yet hashed.

    Returns the number of bytes that `tail` (of 2048 bytes) holds now. A full chunk is hashed at once: the last chunk
    of a stream may be short, but not empty.
    """
    first, second = load64(state), load64(state + 8)
    if tail_size:
        take = min(2048 - tail_size, size)
        copy(tail + tail_size, source, take)
        tail_size += take
        source += take
        size -= take
        if tail_size < 2048:
            return tail_size
        first, second = _seeded(tail, 2048, first, second)
    while size >= 2048:
        first, second = _seeded(source, 2048, first, second)
        source += 2048
        size -= 2048
    copy(tail, source, size)
    store64(state, first)
    store64(state + 8, second)
    return size


@kernel
def file_hash_finish(state: int, tail: int, tail_size: int) -> None:
    """Hash the short last chunk into `state`."""
    if tail_size:
        first, second = _seeded(tail, tail_size, load64(state), load64(state + 8))
        store64(state, first)
        store64(state + 8, second)


@kernel
def file_hash_each(source: int, ends: int, count: int, out: int) -> None:
    """The file hashes of `count` short consecutive files in `source`, whose end offsets are at `ends`.

    Stores two u64 for each at `out`.
    """
    position = 0
    for i in range(count):
        end = peek64(ends + 8 * i)
        first, second = load64(out + 16 * i), load64(out + 16 * i + 8)
        while end - position >= 2048:
            first, second = _seeded(source + position, 2048, first, second)
            position += 2048
        if end > position:
            first, second = _seeded(source + position, end - position, first, second)
            position = end
        store64(out + 16 * i, first)
        store64(out + 16 * i + 8, second)
