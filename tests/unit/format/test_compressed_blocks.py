"""Compressed blocks: vectors, cuts, and bytes that are not what they should be."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import zstandard
from hypothesis import given, strategies as st

from mergelake.core.base.errors import CorruptDataError, InvalidInputError, UnsupportedError
from mergelake.format.codecs.codec import CODEC_LZ4, CODEC_NONE, Codec, parse_codec
from mergelake.format.codecs.compressed_blocks import (
    CompressedBlockWriter,
    decode_compressed_blocks,
    encode_compressed_blocks,
)
from mergelake.format.codecs.hashes import city128, file_hash
from mergelake.format.kernels import libraries
from mergelake.format.kernels.memory import region

CODECS = ["NONE", "LZ4", "ZSTD(3)"]


def compressed_block(method: int, payload: bytes, plain: int) -> bytes:
    body = bytes([method]) + (len(payload) + 9).to_bytes(4, "little") + plain.to_bytes(4, "little") + payload
    return city128(body) + body


def test_blocks_of_hello_are_those_of_clickhouse() -> None:
    assert (
        encode_compressed_blocks(b"hello", CODEC_NONE).hex()
        == "6bd486683f80652ca2c707484941f28d020e0000000500000068656c6c6f"
    )
    stored = bytes.fromhex("faf2f0b877e57c9ed79b154ade427b0f8218000000640000005f68656c6c6f0500475068656c6c6f")
    assert decode_compressed_blocks(stored) == b"hello" * 20


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=3000), block=st.integers(1, 1500))
def test_what_is_encoded_is_decoded(codec: str, data: bytes, block: int) -> None:
    assert decode_compressed_blocks(encode_compressed_blocks(data, parse_codec(codec), max_block=block)) == data


def test_no_bytes_are_no_blocks() -> None:
    assert encode_compressed_blocks(b"", CODEC_LZ4) == b""
    assert decode_compressed_blocks(b"") == b""


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_is_noticed(codec: str) -> None:
    stored = encode_compressed_blocks(b"abcabcabc" * 10, parse_codec(codec), max_block=40)
    for at in range(len(stored)):
        for bit in (0, 7):
            broken = bytearray(stored)
            broken[at] ^= 1 << bit
            with pytest.raises(CorruptDataError) as caught:
                decode_compressed_blocks(broken)
            assert 0 <= caught.value.offset <= at


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_noticed_but_between_blocks(codec: str) -> None:
    first = encode_compressed_blocks(b"abc" * 10, parse_codec(codec))
    stored = first + encode_compressed_blocks(b"xyz" * 10, parse_codec(codec))
    for size in range(1, len(stored)):
        if size == len(first):
            continue
        with pytest.raises(CorruptDataError):
            decode_compressed_blocks(stored[:size])


def test_a_bad_checksum_names_offset_expected_and_found() -> None:
    stored = bytearray(encode_compressed_blocks(b"abc", CODEC_NONE) + encode_compressed_blocks(b"def", CODEC_NONE))
    stored[-1] ^= 1
    with pytest.raises(CorruptDataError) as caught:
        decode_compressed_blocks(stored)
    assert caught.value.offset == 28
    assert caught.value.expected == bytes(stored[28:44]).hex()
    assert caught.value.found == city128(stored[44:]).hex()
    assert caught.value.name == "CHECKSUM_DOESNT_MATCH"


@pytest.mark.parametrize(
    "stored",
    [
        compressed_block(0x02, b"abc", 4),  # NONE of another size
        compressed_block(0x82, b"", 5),  # an empty LZ4 payload
        compressed_block(0x82, b"\x00" * 10, 1 << 29),  # LZ4 cannot grow so much
        compressed_block(0x82, b"\xff" * 30, 100),  # no LZ4
        compressed_block(0x90, b"not zstd", 8),
        compressed_block(0x90, zstandard.compress(b"abc"), 4),
        compressed_block(0x90, zstandard.compress(b"abc" * 1000), 10),
        compressed_block(0x02, b"", 0)[:24],
        city128(b"") + b"\x82" + (5).to_bytes(4, "little") + bytes(4),  # smaller than its own header
        compressed_block(0x82, b"", (1 << 30) + 1),
    ],
)
def test_blocks_with_right_checksums_and_wrong_content_are_corrupt(stored: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_compressed_blocks(stored)


@pytest.mark.parametrize(("method", "name"), [(0x96, "AES_128_GCM_SIV"), (0x9C, "ALP"), (0x9F, "ZXC"), (0x55, "0x55")])
def test_unknown_codecs_are_refused_by_name(method: int, name: str) -> None:
    with pytest.raises(UnsupportedError, match=name) as caught:
        decode_compressed_blocks(compressed_block(method, b"\x08\x00" + bytes(8), 8))
    assert caught.value.name == "UNKNOWN_COMPRESSION_METHOD"


@pytest.mark.parametrize("codec", [CODEC_LZ4, parse_codec("ZSTD(1)"), parse_codec("ZSTD(7)")])
def test_without_addresses_of_libraries_blocks_are_the_same(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"some words, some words, " * 500
    native = encode_compressed_blocks(data, codec, max_block=5000)
    assert decode_compressed_blocks(native) == data
    words = np.zeros(6, np.int64)
    monkeypatch.setattr(libraries, "table", SimpleNamespace(words=words, address=words.ctypes.data))
    assert encode_compressed_blocks(data, codec, max_block=5000) == native
    assert decode_compressed_blocks(native) == data


@given(
    granules=st.lists(st.lists(st.integers(0, 300), max_size=6), max_size=5),
    low=st.integers(1, 100),
    more=st.integers(0, 200),
)
def test_marks_find_every_granule_however_blocks_are_cut(granules: list[list[int]], low: int, more: int) -> None:
    """A model of ClickHouse's buffer beside it: flush at a mark from `low` bytes on, flush when full."""
    writer = CompressedBlockWriter(CODEC_NONE, low, low + more)
    rng = np.random.default_rng(0)
    waiting, position, expected, plain, stored, marks = 0, 0, [], b"", b"", []
    for sizes in granules:
        data = rng.integers(0, 256, sum(sizes), dtype=np.uint8).tobytes()
        marks.append(writer.append(region(data), np.cumsum(np.array(sizes, np.int64)), np.ones(len(sizes), np.int64)))
        stored += writer.drain()
        plain += data
        for size in sizes:
            if waiting >= low:
                position, waiting = position + waiting + 25, 0
            expected.append((position, waiting))
            while size > low + more - waiting:
                size -= low + more - waiting
                position, waiting = position + low + more + 25, 0
            waiting += size
    marks.append(writer.finish())
    stored += writer.drain()
    assert [(int(a), int(b)) for a, b, _ in np.concatenate(marks)[:-1]] == expected
    assert decode_compressed_blocks(stored) == plain
    found = writer.digest()
    assert (found.size, found.hash) == (len(stored), file_hash(stored))
    assert (found.uncompressed_size, found.uncompressed_hash) == (len(plain), file_hash(plain))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", "LZ4"),
        ("Default", "LZ4"),
        ("CODEC(NONE)", "NONE"),
        ("ZSTD", "ZSTD(1)"),
        ("CODEC(ZSTD(9))", "ZSTD(9)"),
        ("LZ4HC", "LZ4HC(0)"),
    ],
)
def test_codecs_are_parsed_and_printed(text: str, printed: str) -> None:
    assert str(parse_codec(text)) == printed


@pytest.mark.parametrize("text", ["ZSTD(23)", "LZ4(3)", "Zip", "lz4", "LZ4, ZSTD x"])
def test_bad_codecs_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_codec(text)


@pytest.mark.parametrize("text", ["ALP", "ZSTD(3, 24)", "CODEC(LZ4, AES_128_GCM_SIV)"])
def test_codecs_that_clickhouse_has_and_we_do_not_are_named(text: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        parse_codec(text)
