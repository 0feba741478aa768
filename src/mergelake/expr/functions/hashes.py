"""intHash32, intHash64, cityHash64, sipHash64: the functions of SAMPLE BY and of sharding keys.

Source: ClickHouse, `src/Functions/FunctionsHashing.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.evaluate import Kernel
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal
from mergelake.expr.values import Data, data_to_arrow

Hashes = npt.NDArray[np.uint64]
_U32, _U64 = t.Int(32, signed=False), t.Int(64, signed=False)
_FIXED = (t.Int, t.Float, t.Bool, t.Date, t.Date32, t.DateTime, t.DateTime64, t.Enum, t.IPv4, t.Decimal, t.Interval)
_BYTES = (t.String, t.FixedString, t.UUID, t.IPv6)
_MUL = np.uint64(0x9DDFEA08EB382D69)


def _bits(data: npt.NDArray[Any]) -> Hashes:
    """The stored bits of each number as UInt64, without sign extension."""
    if data.dtype == np.bool_:
        data = data.view(np.uint8)
    return np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}").astype(np.uint64)


def _mix64(x: Hashes) -> Hashes:
    """The finaliser of MurmurHash3."""
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xFF51AFD7ED558CCD)
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def int_hash64(x: Hashes) -> Hashes:
    """ClickHouse's intHash64."""
    return _mix64(x ^ np.uint64(0x4CF2D2BAAE6DA887))


def int_hash32(key: Hashes) -> Hashes:
    """ClickHouse's intHash32, in the lower half of 64 bits."""
    key = ~key + (key << np.uint64(18))
    key = key ^ ((key >> np.uint64(31)) | (key << np.uint64(33)))
    key = key * np.uint64(21)
    key = key ^ ((key >> np.uint64(11)) | (key << np.uint64(53)))
    key = key + (key << np.uint64(6))
    return key ^ ((key >> np.uint64(22)) | (key << np.uint64(42)))


def _int_hash(name: str, result: t.Int, compute: Callable[[Hashes], Hashes], seed: int) -> None:
    @function(name, 1)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        if not isinstance(kind, (t.Int, t.Bool, t.Date, t.Date32, t.DateTime)) or getattr(kind, "bits", 8) > 64:
            raise illegal(name, kind)
        dtype = np.dtype(f"u{result.bits // 8}")
        # These sign-extend a negative number; the other hashes do not.
        return Resolved(result, lambda x: compute(x.astype(np.uint64) ^ np.uint64(seed)).astype(dtype), cost=8)


# The functions XOR their input with a seed; inside other hashes no seed is used.
_int_hash("intHash32", _U32, int_hash32, 0x75D9543DE018BF45)
_int_hash("intHash64", _U64, int_hash64, 0)


def _rows(data: Data, kind: t.DataType) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The stored bytes of all values one after another, and the offset of each."""
    array = data if not isinstance(data, np.ndarray) else data_to_arrow(data, None, storage_type(kind))
    if pa.types.is_binary(array.type):
        offsets = np.frombuffer(array.buffers()[1], np.int32, count=len(array) + 1, offset=array.offset * 4)
        return np.frombuffer(array.buffers()[2] or b"", np.uint8), offsets.astype(np.int64)
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return raw, (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width


def _city_one(kind: t.DataType) -> Kernel:
    # Decimals, and DateTime64, which is a Decimal too, are hashed as bytes like wide numbers.
    as_bytes = isinstance(kind, (t.Decimal, t.DateTime64)) or (isinstance(kind, t.Int) and kind.bits > 64)
    if isinstance(kind, _FIXED) and not as_bytes:
        return lambda data: int_hash64(_bits(data))
    return _hash_bytes(kind, city=True)


def _hash_bytes(kind: t.DataType, *, city: bool) -> Kernel:
    return lambda data: (_city64 if city else _sip64)(*_rows(data, kind))


# The imports are local so that Numba is loaded only when bytes are hashed.
def _city64(raw: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Hashes:
    from mergelake.core.jit.city_hash import city64_rows

    hashes: Hashes = city64_rows(raw.ctypes.data, offsets)
    return hashes


def _sip64(raw: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Hashes:
    from mergelake.core.jit.sip_hash import siphash_rows

    words: Hashes = siphash_rows(raw, offsets)
    return words[:, 0] ^ words[:, 1]


def _combine_city(first: Hashes, second: Hashes) -> Hashes:
    """CityHash's Hash128to64."""
    a = (first ^ second) * _MUL
    a = a ^ (a >> np.uint64(47))
    b = (second ^ a) * _MUL
    b = b ^ (b >> np.uint64(47))
    return b * _MUL


def _combine_sip(first: Hashes, second: Hashes) -> Hashes:
    """SipHash of both hashes concatenated."""
    first, second = np.broadcast_arrays(first, second)
    pairs = np.column_stack([first, second]).view(np.uint8).ravel()
    return _sip64(pairs, np.arange(len(first) + 1, dtype=np.int64) * 16)


def _any_hash(name: str, one: Callable[[t.DataType], Kernel], combine: Callable[[Hashes, Hashes], Hashes]) -> None:
    @function(name, 1, 1 << 20)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        if any(t.is_nullable(arg.node.type) for arg in args):
            raise error("NOT_IMPLEMENTED", f"{name} of Nullable values is not supported", "Give a value with ifNull()")
        for arg in args:
            if not isinstance(arg.type, (*_FIXED, *_BYTES)):
                raise error("NOT_IMPLEMENTED", f"{name} of {arg.type} is not supported")
        kernels = [one(arg.type) for arg in args]

        def kernel(*data: Data) -> Hashes:
            combined = kernels[0](data[0])
            for compute, each in zip(kernels[1:], data[1:], strict=True):
                combined = combine(combined, compute(each))
            return np.asarray(combined)

        return Resolved(_U64, kernel, cost=20)


_any_hash("cityHash64", _city_one, _combine_city)
_any_hash("sipHash64", lambda kind: _hash_bytes(kind, city=False), _combine_sip)
