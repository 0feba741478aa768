"""The loops for common chains do what codecs do step by step, and no more than that with bad bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.format.codecs import codec as c, compressed_blocks
from mergelake.format.codecs.codec import Codec, parse_codec
from mergelake.format.codecs.codec_types import stream_codec
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks, encode_compressed_blocks
from mergelake.format.codecs.hashes import city128
from mergelake.format.kernels import method_bytes

FIRST, LAST = ("Delta", "DoubleDelta", "Gorilla"), ("LZ4", "ZSTD(1)", "ZSTD(5)", "NONE")


def _codec(first: str, last: str, width: int) -> Codec:
    """The chain, bound to values of `width` bytes."""
    if last == "NONE":
        steps = _codec(first, "LZ4", width).steps
        return c.chained([steps[0], Codec(method_bytes.NONE)])
    kind = {1: "UInt8", 2: "UInt16", 4: "UInt32", 8: "UInt64"}[width]
    kind = {4: "Float32", 8: "Float64"}.get(width, kind) if first == "Gorilla" else kind
    return stream_codec(parse_codec(f"{first}, {last}"), parse_type(kind))


def _data(values: str, size: int) -> bytes:
    rng = np.random.default_rng(size)
    series = np.cumsum(rng.integers(0, 3, size // 8 + 1))
    noise = rng.integers(0, 1 << 62, size // 8 + 1)
    return {"series": series, "noise": noise, "zeros": series * 0}[values].tobytes()[:size]


def _stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_blocks, "_is_common", lambda steps: False)
    monkeypatch.setattr(compressed_blocks, "_decode_chains", lambda source, plain, state: False)


@pytest.mark.parametrize("values", ["series", "noise", "zeros"])
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize(("first", "width"), [(f, w) for f in FIRST for w in (1, 2, 4, 8) if f != "Gorilla" or w > 2])
def test_loops_and_steps_write_the_same_bytes_and_read_each_others(
    first: str, width: int, last: str, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = _codec(first, last, width)
    for size in (0, 1, 7, 8, 9, 17, 4001, 200_003):
        data = _data(values, size)
        with monkeypatch.context() as patch:
            _stepwise(patch)
            stepwise = encode_compressed_blocks(data, codec, max_block=65536)
        assert encode_compressed_blocks(data, codec, max_block=65536) == stepwise
        assert decode_compressed_blocks(stepwise) == data
        with monkeypatch.context() as patch:
            _stepwise(patch)
            assert decode_compressed_blocks(stepwise) == data


def _outcome(stored: bytes) -> bytes | str:
    try:
        return decode_compressed_blocks(stored)
    except MergelakeError as refused:
        return str(refused)


@given(st.sampled_from(FIRST), st.sampled_from(LAST), st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_a_changed_byte_under_a_right_checksum_ends_as_it_would_step_by_step(
    first: str, last: str, place: int, byte: int, near: bool
) -> None:
    stored = bytearray(encode_compressed_blocks(_data("series", 1200), _codec(first, last, 8)))
    at = 25 + place % (30 if near else len(stored) - 25)  # near: where the headers of the chain are
    stored[at] = byte
    stored[:16] = city128(bytes(stored[16:]))
    native = _outcome(bytes(stored))
    with pytest.MonkeyPatch.context() as patch:
        _stepwise(patch)
        slow = _outcome(bytes(stored))
        # A block that asks for a large window is decoded at once natively, where that takes no memory.
        assert slow == native or "too much memory" in str(slow)
