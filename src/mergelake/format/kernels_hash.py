"""CityHash128 of release 1.0.2 (later releases differ), as ClickHouse uses it, and its chained form for files.

All arithmetic wraps at 64 bits. Source: ClickHouse, `contrib/cityhash102/src/city.cc`; the names follow it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.format.jit import copy, inlined, kernel, load8, load32, load64, store64

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_K3 = np.uint64(0xC949D7C7509E6557)
_M = np.uint64(0x9DDFEA08EB382D69)
_R47 = np.uint64(47)
_64 = np.uint64(64)

CHUNK = 2048
"""The file hash takes a stream in pieces of this many bytes."""


@inlined
def _rot(x: Any, n: Any) -> Any:
    return (x >> np.uint64(n)) | (x << (_64 - np.uint64(n)))


@inlined
def _mix(x: Any) -> Any:
    return x ^ (x >> _R47)


@inlined
def _h16(u: Any, v: Any) -> Any:
    a = (u ^ v) * _M
    a ^= a >> _R47
    b = (v ^ a) * _M
    b ^= b >> _R47
    return b * _M


@inlined
def _s16(s: Any, n: Any) -> Any:
    length = np.uint64(n)
    if n > 8:
        a, b = load64(s), load64(s + n - 8)
        shifted = b + length
        return _h16(a, (shifted >> length) | (shifted << (_64 - length))) ^ b
    if n >= 4:
        return _h16(length + (load32(s) << np.uint64(3)), load32(s + n - 4))
    if n > 0:
        y = load8(s) + (load8(s + (n >> 1)) << np.uint64(8))
        z = length + (load8(s + n - 1) << np.uint64(2))
        return _mix(y * _K2 ^ z * _K3) * _K2
    return _K2


@inlined
def _weak(o: Any, a: Any, b: Any) -> Any:
    z = load64(o + 24)
    a += load64(o)
    b = _rot(b + a + z, 21)
    c = a
    a += load64(o + 8) + load64(o + 16)
    b += _rot(a, 44)
    return a + z, b + c


@inlined
def _seeded(s: Any, n: Any, lo: Any, hi: Any) -> Any:
    """CityHash128WithSeed of `n` bytes at address `s`."""
    if n < 128:
        a, b = lo, hi
        if n <= 16:
            a = _mix(a * _K1) * _K1
            c = b * _K1 + _s16(s, n)
            d = _mix(a + (load64(s) if n >= 8 else c))
        else:
            c = _h16(load64(s + n - 8) + _K1, a)
            d = _h16(b + np.uint64(n), c + load64(s + n - 16))
            a += d
            left = n - 16
            while left > 0:
                a = (a ^ _mix(load64(s) * _K1) * _K1) * _K1
                b ^= a
                c = (c ^ _mix(load64(s + 8) * _K1) * _K1) * _K1
                d ^= c
                s += 16
                left -= 16
        a = _h16(a, c)
        b = _h16(d, b)
        return a ^ b, _h16(b, a)
    x, y = lo, hi
    z = np.uint64(n) * _K1
    v0 = _rot(y ^ _K1, 49) * _K1 + load64(s)
    v1 = _rot(v0, 42) * _K1 + load64(s + 8)
    w0 = _rot(y + z, 35) * _K1 + x
    w1 = _rot(x + load64(s + 88), 53) * _K1
    left = n
    while left >= 128:
        for _ in range(2):
            x = _rot(x + y + v0 + load64(s + 16), 37) * _K1
            y = _rot(y + v1 + load64(s + 48), 42) * _K1
            x ^= w1
            y ^= v0
            z = _rot(z ^ w0, 33)
            v0, v1 = _weak(s, v1 * _K1, x + w0)
            w0, w1 = _weak(s + 32, z + w1, y)
            x, z = z, x
            s += 64
        left -= 128
    y += _rot(w0, 37) * _K0 + z
    x += _rot(v0 + z, 49) * _K0
    done = 0
    while done < left:
        # These steps go backwards from the end and may reach into bytes already taken.
        done += 32
        y = _rot(y - x, 42) * _K0 + v1
        w0 += load64(s + left - done + 16)
        x = _rot(x, 49) * _K0 + w0
        w0 += v0
        v0, v1 = _weak(s + left - done, v0, v1)
    x = _h16(x, v0)
    y = _h16(y, w0)
    return _h16(x + v1, w1) + y, _h16(x + w1, y + v1)


@inlined
def city(s: Any, n: Any) -> Any:
    """CityHash128 of `n` bytes at address `s`, as two words in stored order (for other kernels)."""
    if n >= 16:
        return _seeded(s + 16, n - 16, load64(s) ^ _K3, load64(s + 8))
    if n >= 8:
        return _seeded(s, 0, load64(s) ^ (np.uint64(n) * _K0), load64(s + n - 8) ^ _K1)
    return _seeded(s, n, _K0, _K1)


@kernel("void(int64, int64, int64)")
def city128_at(source: int, size: int, out: int) -> None:
    """CityHash128 of `size` bytes at `source`; two u64 are stored at `out`."""
    first, second = city(source, size)
    store64(out, first)
    store64(out + 8, second)


@kernel("int64(int64, int64, int64, int64, int64)")
def file_hash_update(state: int, tail: int, tail_size: int, source: int, size: int) -> int:
    """Feed `size` bytes at `source`; `state` is two u64, `tail` holds `tail_size` < 2048 bytes not yet hashed.

    Returns how many bytes `tail` (2048 bytes of room) holds now. A full chunk is hashed at once: the last chunk of a
    stream may be short, never empty.
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


@kernel("void(int64, int64, int64)")
def file_hash_finish(state: int, tail: int, tail_size: int) -> None:
    """Hash the short last chunk into `state`."""
    if tail_size:
        first, second = _seeded(tail, tail_size, load64(state), load64(state + 8))
        store64(state, first)
        store64(state + 8, second)
