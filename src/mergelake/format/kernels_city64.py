"""CityHash64 of release 1.0.2: hashes of the strings and words in Bloom filters.

Source: ClickHouse, `contrib/cityhash102/src/city.cc`; the names follow it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.format.jit import inlined, load64
from mergelake.format.kernels_hash import _h16, _mix, _rot, _s16, _weak

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)


@inlined
def city64(s: Any, n: Any) -> Any:
    """CityHash64 of `n` bytes at address `s` (for other kernels)."""
    length = np.uint64(n)
    if n <= 16:
        return _s16(s, n)
    if n <= 32:
        a, b = load64(s) * _K1, load64(s + 8)
        c, d = load64(s + n - 8) * _K2, load64(s + n - 16) * _K0
        return _h16(_rot(a - b, 43) + _rot(c, 30) + d, a + _rot(b ^ np.uint64(0xC949D7C7509E6557), 20) - c + length)
    if n <= 64:
        z = load64(s + 24)
        a = load64(s) + (length + load64(s + n - 16)) * _K0
        b = _rot(a + z, 52)
        c = _rot(a, 37)
        a += load64(s + 8)
        c += _rot(a, 7)
        a += load64(s + 16)
        vf, vs = a + z, b + _rot(a, 31) + c
        a = load64(s + 16) + load64(s + n - 32)
        z = load64(s + n - 8)
        b = _rot(a + z, 52)
        c = _rot(a, 37)
        a += load64(s + n - 24)
        c += _rot(a, 7)
        a += load64(s + n - 16)
        wf, ws = a + z, b + _rot(a, 31) + c
        r = _mix((vf + ws) * _K2 + (wf + vs) * _K0)
        return _mix(r * _K0 + vs) * _K2
    x = load64(s)
    y = load64(s + n - 16) ^ _K1
    z = load64(s + n - 56) ^ _K0
    vf, vs = _weak(s + n - 64, length, y)
    wf, ws = _weak(s + n - 32, length * _K1, _K0)
    z += _mix(vs) * _K1
    x = _rot(z + x, 39) * _K1
    y = _rot(y, 33) * _K1
    left = (n - 1) & ~63
    while left > 0:
        x = _rot(x + y + vf + load64(s + 16), 37) * _K1
        y = _rot(y + vs + load64(s + 48), 42) * _K1
        x ^= ws
        y ^= vf
        z = _rot(z ^ wf, 33)
        vf, vs = _weak(s, vs * _K1, x + wf)
        wf, ws = _weak(s + 32, z + ws, y)
        z, x = x, z
        s += 64
        left -= 64
    return _h16(_h16(vf, wf) + _mix(y) * _K1 + z, _h16(vs, ws) + x)


@inlined
def city64_seeded(hashed: Any, seed: Any) -> Any:
    """CityHash64WithSeed, from the CityHash64 of the same bytes."""
    return _h16(hashed - _K2, seed)


@inlined
def mix_pair(u: Any, v: Any) -> Any:
    """Hash128to64 of two words."""
    return _h16(u, v)
