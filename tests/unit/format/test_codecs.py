"""Column codecs: vectors of ClickHouse, what is encoded is decoded, hostile payloads, texts."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.errors import CorruptDataError, MergelakeError, UnsupportedError
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import CODEC_LZ4, CODEC_NONE, Codec, parse_codec, parse_default_codec
from mergelake.format.codecs.codec_types import check_codec, stream_codec, stream_types
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks, encode_compressed_blocks
from mergelake.format.codecs.hashes import city128
from mergelake.format.serializations.tree import build_serialization
from tests.helpers.series import SHAPES, series

FITTING = [
    *((of, codec) for of in ("UInt8", "Int16", "Int32", "UInt64", "Int64") for codec in ("T64", "T64('bit')", "GCD")),
    *((of, codec) for of in ("Int8", "UInt16", "Float32", "Int64") for codec in ("Delta", "DoubleDelta", "Gorilla")),
    *(("Float32", "FPC(3)"), ("Float64", "FPC"), ("Int128", "GCD"), ("UInt256", "GCD"), ("Int256", "GCD")),
    *(("Int64", "Delta, LZ4"), ("Int32", "GCD, Delta, T64, ZSTD(1)"), ("Float64", "Gorilla, DoubleDelta, LZ4HC(2)")),
]


def bound(text: str, codec: str) -> Codec:
    return stream_codec(parse_codec(codec), parse_type(text))


def compressed_block(method: int, payload: bytes, plain: int) -> bytes:
    body = bytes([method]) + (len(payload) + 9).to_bytes(4, "little") + plain.to_bytes(4, "little") + payload
    return city128(body) + body


@pytest.mark.parametrize(
    ("text", "codec", "values", "block"),
    [
        ("Int64", "GCD", [-6, 12], "9a23000000100000000800" + "0600000000000000" + "ff" * 8 + "0200000000000000"),
        ("Int64", "GCD", [-(1 << 63), 4], "9a230000001000000008000400000000000000" + "00" * 7 + "200100000000000000"),
        ("Int64", "T64", [7] * 5, "931a000000280000000907000000000000000700000000000000"),
        ("Int64", "DoubleDelta", [0, 1, 2, 3, 4], "942000000028000000080005000000" + "00" * 8 + "01" + "00" * 8),
        ("Int32", "DoubleDelta", [1] * 5, "941800000014000000040005000000010000000000000000"),
        (
            *("Float64", "FPC(12)", [0.0, 1.0, 2.0, 3.0, 4.0]),
            "982c00000028000000080c70000000000000f03f89000000000000e03f000000000000189700000000000018",
        ),
        (
            *("Int64", "Delta, LZ4", [0, 1, 2, 3, 4]),
            "913100000028000000029282822500000033000000b492330000002800000008000100130109000f080000500000000000",
        ),
    ],
)  # fmt: skip
def test_compressed_blocks_are_those_of_clickhouse(text: str, codec: str, values: list[float], block: str) -> None:
    kind = {"Int64": "<i8", "Int32": "<i4", "Float64": "<f8"}[text]
    plain = np.array(values, kind).tobytes()
    stored = encode_compressed_blocks(plain, bound(text, codec))
    assert decode_compressed_blocks(stored) == plain
    assert stored[16:].hex() == block


@pytest.mark.parametrize(("text", "codec"), FITTING)
def test_series_of_every_shape_come_back(text: str, codec: str) -> None:
    rng = np.random.default_rng(3)
    for shape in range(SHAPES):
        for rows in (0, 1, 2, 3, 63, 64, 65, 700):
            values = series(rng, parse_type(text), rows, shape)
            plain = bytes(values.buffers()[1])[: values.type.bit_width // 8 * rows]
            assert decode_compressed_blocks(encode_compressed_blocks(plain, bound(text, codec))) == plain, (shape, rows)


@pytest.mark.parametrize(("text", "codec"), FITTING)
@given(data=st.binary(max_size=700), block=st.integers(1, 300))
def test_bytes_that_are_no_whole_values_come_back(text: str, codec: str, data: bytes, block: int) -> None:
    assert decode_compressed_blocks(encode_compressed_blocks(data, bound(text, codec), max_block=block)) == data


@pytest.mark.parametrize(("text", "codec"), FITTING)
def test_hostile_payloads_with_right_checksums_never_crash(text: str, codec: str) -> None:
    rng = np.random.default_rng(8)
    for shape in (0, 1, 3, 9):
        values = series(rng, parse_type(text), 150, shape)
        plain = bytes(values.buffers()[1])
        stored = encode_compressed_blocks(plain, bound(text, codec))
        payload, size = stored[25:], len(plain)
        for at in [*range(min(len(payload), 40)), *rng.integers(0, len(payload), 60).tolist()]:
            broken = bytearray(payload)
            broken[at] = int(rng.integers(0, 256)) if at % 2 else broken[at] ^ (1 << int(rng.integers(0, 8)))
            for lie in (size, size + 1, size - 1, 8 * size, 0):
                for cut in (len(payload), at):
                    with contextlib.suppress(CorruptDataError, UnsupportedError):
                        assert (
                            len(decode_compressed_blocks(compressed_block(stored[16], bytes(broken[:cut]), lie))) == lie
                        )


@pytest.mark.parametrize(("text", "codec"), FITTING)
def test_flipped_bits_and_cuts_are_noticed(text: str, codec: str) -> None:
    rng = np.random.default_rng(9)
    plain = bytes(series(rng, parse_type(text), 100, 1).buffers()[1])
    stored = encode_compressed_blocks(plain, bound(text, codec))
    for at in rng.integers(0, len(stored), 30).tolist():
        broken = bytearray(stored)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        with pytest.raises(CorruptDataError):
            decode_compressed_blocks(broken)
        if at:
            with pytest.raises(CorruptDataError):
                decode_compressed_blocks(stored[:at])


@pytest.mark.parametrize(
    ("method", "payload", "plain"),
    [
        (0x92, b"", 8),
        (0x92, b"\x08\x00" + bytes(8), 1 << 30),
        (0x92, b"\x03\x00" + bytes(9), 9),
        (0x94, b"\x01\x00" + (1 << 30).to_bytes(4, "little"), 1 << 30),
        (0x95, b"\x08\x00" + (2).to_bytes(4, "little") + bytes(8) + b"\x80", 16),  # a window that never was
        (0x95, b"\x08\x00" + (2).to_bytes(4, "little") + bytes(8) + b"\xff" * 9, 16),  # one beyond the value
        (0x93, b"\x05" + bytes(16), 8),
        (0x93, b"\x01" + bytes(8) + b"\xff" * 8, 1),  # a UInt8 of 64 bits
        (0x98, b"\x08\x1d" + bytes(9), 16),
        (0x98, b"\x08\x1c\x77", 1 << 30),
        (0x98, b"\x04\x05\x77" + bytes(9), 8),  # seven zero bytes of four
        (0x9A, b"\x08\x00" + bytes(8), 1 << 30),
        (0x91, b"", 8),
        (0x91, b"\x00", 8),
        (0x91, b"\x05\x92", 8),
        (0x91, b"\x01\x92\x92" + (9).to_bytes(4, "little") + (8).to_bytes(4, "little"), 8),
        (0x91, b"\x02\x92\x93\x93\x1a\x00\x00\x00\x00\x00\x00\x40\x04" + bytes(16), 8),  # 1 GiB within 8 bytes
        (0x91, b"\x01\x91" * 200 + b"\x91" + (9).to_bytes(4, "little") + bytes(4), 8),
    ],
)  # fmt: skip
def test_payloads_that_lie_are_corrupt(method: int, payload: bytes, plain: int) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_compressed_blocks(compressed_block(method, payload, plain))
    assert caught.value.offset == 0


def test_codecs_within_a_chain_that_we_do_not_have_are_named() -> None:
    block = b"\x96" + (17).to_bytes(4, "little") + (8).to_bytes(4, "little") + bytes(8)
    with pytest.raises(UnsupportedError, match="AES_128_GCM_SIV"):
        decode_compressed_blocks(compressed_block(0x91, b"\x01\x96" + block, 8))


@pytest.mark.parametrize(
    ("text", "data_type", "spelled"),
    [
        ("Delta, ZSTD", "Int64", "Delta(8), ZSTD(1)"),
        ("CODEC(T64('bit'), LZ4HC(9))", "Array(Nullable(Date))", "T64('bit'), LZ4HC(9)"),
        ("DoubleDelta(8), Default", "DateTime", "DoubleDelta, Default"),
        ("FPC(7, 8)", "Float64", "FPC(7)"),
        ("Delta, LZ4", "Tuple(Int64, Int16)", "Delta, LZ4"),
        ("T64('byte')", "UInt8", "T64"),
        ("", "String", ""),
    ],
)
def test_codecs_are_spelled_out_for_their_type(text: str, data_type: str, spelled: str) -> None:
    assert check_codec(text, parse_type(data_type)) == spelled


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Delta", "BAD_ARGUMENTS"),
        ("Delta(3), LZ4", "ILLEGAL_CODEC_PARAMETER"),
        ("GCD(8), LZ4", "ILLEGAL_SYNTAX_FOR_CODEC_TYPE"),
        ("T64(1)", "BAD_GET"),
        ("LZ4(1)", "DATA_TYPE_CANNOT_HAVE_ARGUMENTS"),
        ("LZ4, ZSTD(1)", "BAD_ARGUMENTS"),
        ("Gorilla, LZ4", "BAD_ARGUMENTS"),
        ("delta, LZ4", "UNKNOWN_CODEC"),
        ("Delta,, LZ4", "SYNTAX_ERROR"),
        ("ZSTD(3, 24)", "NOT_IMPLEMENTED"),
        ("AES_128_GCM_SIV", "NOT_IMPLEMENTED"),
        ("ALP, LZ4", "NOT_IMPLEMENTED"),
    ],
)
def test_codecs_that_cannot_be_are_refused_with_clickhouses_name(text: str, name: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        check_codec(text, parse_type("Int64"))
    assert caught.value.name == name
    assert caught.value.code


@pytest.mark.parametrize("text", ["Delta, LZ4", "DoubleDelta", "DoubleDelta(8)", "GCD, LZ4", "T64"])
def test_a_dictionary_of_nullable_values_has_no_codecs_of_numbers(text: str) -> None:
    assert check_codec(text, parse_type("LowCardinality(Int64)"))
    with pytest.raises(MergelakeError):
        check_codec(text, parse_type("Array(LowCardinality(Nullable(Int64)))"))


def test_the_default_codec_is_a_general_one_in_any_case() -> None:
    assert [str(parse_default_codec(text)) for text in ("", "lz4", "zstd(3)", "none", "LZ4HC(4)")] == [
        *("LZ4", "LZ4", "ZSTD(3)", "NONE", "LZ4HC(4)"),
    ]
    for text in ("T64", "LZ4, ZSTD", "Delta"):
        with pytest.raises(MergelakeError):
            parse_default_codec(text)
    assert str(parse_codec("Delta(4), Default", parse_codec("ZSTD(5)"))) == "Delta(4), ZSTD(5)"


@pytest.mark.parametrize(
    "text",
    [
        *("Int8", "String", "Nullable(Int8)", "Array(Array(Nullable(String)))", "Map(String, Array(Date))"),
        *("LowCardinality(Nullable(String))", "Tuple(a Tuple(Int8, Nullable(Date)), b LowCardinality(String))"),
        *("SimpleAggregateFunction(sum, Int64)", "Array(Tuple(x String, y Array(UInt8)))"),
    ],
)
def test_there_is_a_type_for_every_stream(text: str) -> None:
    names = list(build_serialization("c", parse_type(text)).streams())
    kinds = list(stream_types(parse_type(text)))
    assert len(names) == len(kinds)
    for name, kind in zip(names, kinds, strict=True):
        assert (kind is None) == (name.endswith(".null") or ".size" in name or f"{name}.dict" in names)


def test_streams_without_values_get_the_general_part_of_a_chain() -> None:
    assert stream_codec(parse_codec("Delta, LZ4"), None) == CODEC_LZ4
    assert stream_codec(parse_codec("T64"), None) == CODEC_NONE
