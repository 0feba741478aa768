"""CityHash64 of release 1.0.2 and SipHash-2-4 over rows of bytes, compiled by numba on first use.

A row is `data[offsets[i]:offsets[i + 1]]`; the callers make sure that offsets ascend and lie inside `data`.

Source: ClickHouse, `contrib/cityhash102/src/city.cc` and `src/Common/SipHash.h`; the names follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_K3 = np.uint64(0xC949D7C7509E6557)
_M = np.uint64(0x9DDFEA08EB382D69)
_R47 = np.uint64(47)

F = TypeVar("F", bound=Callable[..., Any])


def _kernel(function: F) -> F:
    """Compile without the GIL, cached on disk where that can be written."""
    try:
        compiled: Any = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        compiled = njit(nogil=True)(function)
    return cast("F", compiled)


@_kernel
def _load(data: Any, at: Any, count: Any) -> Any:
    """`count` bytes (at most 8) at `at` as a little-endian number."""
    value = np.uint64(0)
    for i in range(count):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@_kernel
def _rot(x: Any, n: Any) -> Any:
    return (x >> np.uint64(n)) | (x << np.uint64(64 - n))


@_kernel
def _mix(x: Any) -> Any:
    return x ^ (x >> _R47)


@_kernel
def _h16(u: Any, v: Any) -> Any:
    a = (u ^ v) * _M
    a ^= a >> _R47
    b = (v ^ a) * _M
    b ^= b >> _R47
    return b * _M


@_kernel
def _short(data: Any, s: Any, n: Any) -> Any:
    length = np.uint64(n)
    if n > 8:
        a, b = _load(data, s, 8), _load(data, s + n - 8, 8)
        return _h16(a, _rot(b + length, n)) ^ b
    if n >= 4:
        return _h16(length + (_load(data, s, 4) << np.uint64(3)), _load(data, s + n - 4, 4))
    if n > 0:
        y = np.uint64(data[s]) + (np.uint64(data[s + (n >> 1)]) << np.uint64(8))
        z = length + (np.uint64(data[s + n - 1]) << np.uint64(2))
        return _mix(y * _K2 ^ z * _K3) * _K2
    return _K2


@_kernel
def _medium(data: Any, s: Any, n: Any) -> Any:
    """17 to 32 bytes."""
    a, b = _load(data, s, 8) * _K1, _load(data, s + 8, 8)
    c, d = _load(data, s + n - 8, 8) * _K2, _load(data, s + n - 16, 8) * _K0
    return _h16(_rot(a - b, 43) + _rot(c, 30) + d, a + _rot(b ^ _K3, 20) - c + np.uint64(n))


@_kernel
def _weak(data: Any, s: Any, a: Any, b: Any) -> Any:
    w, x, y, z = _load(data, s, 8), _load(data, s + 8, 8), _load(data, s + 16, 8), _load(data, s + 24, 8)
    a += w
    b = _rot(b + a + z, 21)
    c = a
    a += x
    a += y
    b += _rot(a, 44)
    return a + z, b + c


@_kernel
def _long(data: Any, s: Any, n: Any) -> Any:
    """33 to 64 bytes."""
    length = np.uint64(n)
    z = _load(data, s + 24, 8)
    a = _load(data, s, 8) + (length + _load(data, s + n - 16, 8)) * _K0
    b = _rot(a + z, 52)
    c = _rot(a, 37)
    a += _load(data, s + 8, 8)
    c += _rot(a, 7)
    a += _load(data, s + 16, 8)
    vf, vs = a + z, b + _rot(a, 31) + c
    a = _load(data, s + 16, 8) + _load(data, s + n - 32, 8)
    z = _load(data, s + n - 8, 8)
    b = _rot(a + z, 52)
    c = _rot(a, 37)
    a += _load(data, s + n - 24, 8)
    c += _rot(a, 7)
    a += _load(data, s + n - 16, 8)
    wf, ws = a + z, b + _rot(a, 31) + c
    r = _mix((vf + ws) * _K2 + (wf + vs) * _K0)
    return _mix(r * _K0 + vs) * _K2


@_kernel
def _city64(data: Any, s: Any, n: Any) -> Any:
    if n <= 16:
        return _short(data, s, n)
    if n <= 32:
        return _medium(data, s, n)
    if n <= 64:
        return _long(data, s, n)
    length = np.uint64(n)
    x = _load(data, s, 8)
    y = _load(data, s + n - 16, 8) ^ _K1
    z = _load(data, s + n - 56, 8) ^ _K0
    vf, vs = _weak(data, s + n - 64, length, y)
    wf, ws = _weak(data, s + n - 32, length * _K1, _K0)
    z += _mix(vs) * _K1
    x = _rot(z + x, 39) * _K1
    y = _rot(y, 33) * _K1
    left = (n - 1) & ~63
    while left:
        x = _rot(x + y + vf + _load(data, s + 16, 8), 37) * _K1
        y = _rot(y + vs + _load(data, s + 48, 8), 42) * _K1
        x ^= ws
        y ^= vf
        z = _rot(z ^ wf, 33)
        vf, vs = _weak(data, s, vs * _K1, x + wf)
        wf, ws = _weak(data, s + 32, z + ws, y)
        z, x = x, z
        s += 64
        left -= 64
    return _h16(_h16(vf, wf) + _mix(y) * _K1 + z, _h16(vs, ws) + x)


@_kernel
def city64_rows(data: Any, offsets: Any) -> Any:
    """CityHash64 of each row."""
    out = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(out)):
        out[i] = _city64(data, offsets[i], offsets[i + 1] - offsets[i])
    return out


@_kernel
def _sip_round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _rot(v1, 51) ^ v0
    v0 = _rot(v0, 32)
    v2 += v3
    v3 = _rot(v3, 48) ^ v2
    v0 += v3
    v3 = _rot(v3, 43) ^ v0
    v2 += v1
    v1 = _rot(v1, 47) ^ v2
    v2 = _rot(v2, 32)
    return v0, v1, v2, v3


@_kernel
def sip64_rows(data: Any, offsets: Any) -> Any:
    """SipHash-2-4 with key zero of each row."""
    out = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(out)):
        start, n = offsets[i], offsets[i + 1] - offsets[i]
        v0, v1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
        v2, v3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
        whole = n // 8
        for j in range(whole):
            word = _load(data, start + 8 * j, 8)
            v3 ^= word
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
            v0 ^= word
        word = _load(data, start + 8 * whole, n - 8 * whole) | (np.uint64(n & 255) << np.uint64(56))
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        v2 ^= np.uint64(0xFF)
        for _ in range(4):
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        out[i] = v0 ^ v1 ^ v2 ^ v3
    return out
