"""CityHash64 of release 1.0.2 (later releases differ), and the functions that it shares with CityHash128.

All functions but the last are compiled into the kernels that call them; addresses are not checked. All arithmetic wraps
at 64 bits. Source: ClickHouse, `contrib/cityhash102/src/city.cc`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergelake.core.jit.intrinsics import inlined, kernel, load8, load32, load64

K0 = np.uint64(0xC3A5C85C97CB3127)
K1 = np.uint64(0xB492B66FBE98F273)
K2 = np.uint64(0x9AE16A3B2F90404F)
K3 = np.uint64(0xC949D7C7509E6557)
_M = np.uint64(0x9DDFEA08EB382D69)
_R47 = np.uint64(47)
_64 = np.uint64(64)


@inlined
def rotate(x: Any, n: Any) -> Any:
    """`x` rotated right by `n` bits, 0 < n < 64."""
    return (x >> np.uint64(n)) | (x << (_64 - np.uint64(n)))


@inlined
def mix(x: Any) -> Any:
    """ShiftMix."""
    return x ^ (x >> _R47)


@inlined
def hash16(u: Any, v: Any) -> Any:
    """Hash128to64, also HashLen16."""
    a = (u ^ v) * _M
    a ^= a >> _R47
    b = (v ^ a) * _M
    b ^= b >> _R47
    return b * _M


@inlined
def short_hash(s: Any, n: Any) -> Any:
    """HashLen0to16: `n` bytes at address `s`."""
    length = np.uint64(n)
    if n > 8:
        a, b = load64(s), load64(s + n - 8)
        shifted = b + length
        return hash16(a, (shifted >> length) | (shifted << (_64 - length))) ^ b
    if n >= 4:
        return hash16(length + (load32(s) << np.uint64(3)), load32(s + n - 4))
    if n > 0:
        y = load8(s) + (load8(s + (n >> 1)) << np.uint64(8))
        z = length + (load8(s + n - 1) << np.uint64(2))
        return mix(y * K2 ^ z * K3) * K2
    return K2


@inlined
def weak_hash32(o: Any, a: Any, b: Any) -> Any:
    """WeakHashLen32WithSeeds: the 32 bytes at address `o`."""
    z = load64(o + 24)
    a += load64(o)
    b = rotate(b + a + z, 21)
    c = a
    a += load64(o + 8) + load64(o + 16)
    b += rotate(a, 44)
    return a + z, b + c


@inlined
def city64(s: Any, n: Any) -> Any:
    """CityHash64 of `n` bytes at address `s` (for other kernels)."""
    length = np.uint64(n)
    if n <= 16:
        return short_hash(s, n)
    if n <= 32:
        a, b = load64(s) * K1, load64(s + 8)
        c, d = load64(s + n - 8) * K2, load64(s + n - 16) * K0
        return hash16(rotate(a - b, 43) + rotate(c, 30) + d, a + rotate(b ^ K3, 20) - c + length)
    if n <= 64:
        z = load64(s + 24)
        a = load64(s) + (length + load64(s + n - 16)) * K0
        b = rotate(a + z, 52)
        c = rotate(a, 37)
        a += load64(s + 8)
        c += rotate(a, 7)
        a += load64(s + 16)
        vf, vs = a + z, b + rotate(a, 31) + c
        a = load64(s + 16) + load64(s + n - 32)
        z = load64(s + n - 8)
        b = rotate(a + z, 52)
        c = rotate(a, 37)
        a += load64(s + n - 24)
        c += rotate(a, 7)
        a += load64(s + n - 16)
        wf, ws = a + z, b + rotate(a, 31) + c
        r = mix((vf + ws) * K2 + (wf + vs) * K0)
        return mix(r * K0 + vs) * K2
    x = load64(s)
    y = load64(s + n - 16) ^ K1
    z = load64(s + n - 56) ^ K0
    vf, vs = weak_hash32(s + n - 64, length, y)
    wf, ws = weak_hash32(s + n - 32, length * K1, K0)
    z += mix(vs) * K1
    x = rotate(z + x, 39) * K1
    y = rotate(y, 33) * K1
    left = (n - 1) & ~63
    while left > 0:
        x = rotate(x + y + vf + load64(s + 16), 37) * K1
        y = rotate(y + vs + load64(s + 48), 42) * K1
        x ^= ws
        y ^= vf
        z = rotate(z ^ wf, 33)
        vf, vs = weak_hash32(s, vs * K1, x + wf)
        wf, ws = weak_hash32(s + 32, z + ws, y)
        z, x = x, z
        s += 64
        left -= 64
    return hash16(hash16(vf, wf) + mix(y) * K1 + z, hash16(vs, ws) + x)


@inlined
def city64_seeded(hashed: Any, seed: Any) -> Any:
    """CityHash64WithSeed, from the CityHash64 of the same bytes."""
    return hash16(hashed - K2, seed)


def city64_rows(address: int, offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """CityHash64 of each row: row i is the bytes from `address + offsets[i]` to `address + offsets[i + 1]`."""
    out = np.empty(len(offsets) - 1, np.uint64)
    _rows(address, offsets, out)
    return out


@kernel
def _rows(address: int, offsets: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for i in range(len(out)):
        out[i] = city64(address + offsets[i], offsets[i + 1] - offsets[i])
