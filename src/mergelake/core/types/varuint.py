"""Numbers of variable length (LEB128): seven bits a byte, the lowest first."""

from __future__ import annotations

from mergelake.core.base.errors import CorruptDataError

_SHORT = [bytes([value]) for value in range(128)]


def read_varuint(data: bytes, at: int) -> tuple[int, int]:
    """The varuint at `at` and the offset of its end. Raises `CorruptDataError` if it is cut off or exceeds 64 bits."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise CorruptDataError("A value ends too early", offset=at, expected="1 bytes", found="0 bytes")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise CorruptDataError("A varuint is longer than 64 bits", offset=at)


def write_varuint(value: int) -> bytes:
    """`value` as a varuint."""
    if value < 128:
        return _SHORT[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
