"""Whatever happened to the bytes: CorruptDataError or the right answer, never a crash, never memory without end."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import CorruptDataError, UnsupportedError
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import CODEC_LZ4, CODEC_NONE
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks, encode_compressed_blocks
from mergelake.format.files.layout import Layout
from mergelake.format.serializations.serialization_json import ColumnKind, SerializationInfo
from mergelake.format.serializations.values import encode_values
from tests.helpers.columns import read, reader, written
from tests.helpers.random_arrays import random_array

TYPES = [
    "UInt32",
    "String",
    "Nullable(String)",
    "LowCardinality(String)",
    "LowCardinality(Nullable(String))",
    "Array(String)",
    "Array(LowCardinality(Nullable(String)))",
    "Map(String, UInt8)",
]
GRANULES = [50, 60, 70]


@pytest.mark.parametrize("text", TYPES)
def test_flipped_and_cut_data_files_are_corrupt_or_unchanged(text: str) -> None:
    rng = np.random.default_rng(1)
    data_type = parse_type(text)
    array = random_array(rng, data_type, sum(GRANULES))
    files = written("c", data_type, array, GRANULES, CODEC_LZ4)
    want = encode_values([array], [data_type])
    for file in [name for name in files if name.endswith(".bin")]:
        size = len(files[file])
        for at in rng.integers(0, size, 40).tolist():
            broken = bytearray(files[file])
            broken[at] ^= 1 << int(rng.integers(0, 8))
            with pytest.raises(CorruptDataError):
                _read(text, {**files, file: bytes(broken)})
            with pytest.raises(CorruptDataError):
                _read(text, {**files, file: files[file][:at]})
    assert encode_values([_read(text, files)], [data_type]) == want


@pytest.mark.parametrize("text", TYPES)
def test_marks_that_lie_never_change_the_rows_in_silence(text: str) -> None:
    rng = np.random.default_rng(2)
    data_type = parse_type(text)
    array = random_array(rng, data_type, sum(GRANULES))
    files = written("c", data_type, array, GRANULES, CODEC_LZ4)
    for file in [name for name in files if name.endswith(".mrk2")]:
        for _ in range(60):
            broken = bytearray(files[file])
            at = int(rng.integers(0, len(broken)))
            broken[at] ^= 1 << int(rng.integers(0, 8))
            with contextlib.suppress(CorruptDataError):
                found = _read(text, {**files, file: bytes(broken)})
                assert len(found) <= sum(GRANULES)


@pytest.mark.parametrize("text", TYPES)
def test_hostile_streams_with_right_checksums_never_crash(text: str) -> None:
    """Random damage below the checksums: lengths, indexes, counts and flags all lie at times."""
    rng = np.random.default_rng(3)
    data_type = parse_type(text)
    array = random_array(rng, data_type, sum(GRANULES))
    files = written("c", data_type, array, GRANULES, CODEC_NONE)
    caught = 0
    for file in [name for name in files if name.endswith(".bin")]:
        plain = decode_compressed_blocks(files[file])
        for _ in range(150):
            broken = np.frombuffer(plain, np.uint8).copy()
            for at in rng.integers(0, len(broken), int(rng.integers(1, 4))).tolist():
                broken[at] = rng.choice([0, 1, 127, 128, 255, int(rng.integers(0, 256))])
            if rng.random() < 0.3:
                broken = broken[: int(rng.integers(0, len(broken)))]
            try:
                found = _read(text, {**files, file: encode_compressed_blocks(broken, CODEC_NONE)})
                found.validate(full=True)
                assert len(found) == sum(GRANULES)
            except CorruptDataError:
                caught += 1
    assert caught


def _read(text: str, files: dict[str, bytes]) -> pa.Array:
    return read(reader("c", parse_type(text), files), files)


def test_row_counts_that_lie_allocate_nothing() -> None:
    for text in TYPES:
        data_type = parse_type(text)
        array = random_array(np.random.default_rng(4), data_type, 10)
        files = written("c", data_type, array, [10])
        for file in [name for name in files if name.endswith(".mrk2")]:
            table = np.frombuffer(files[file], np.uint64).copy()
            table[2] = 1 << 39
            files[file] = table.tobytes()
        with pytest.raises(CorruptDataError):
            _read(text, files)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\x03",
        b"\x05" + bytes([0] * 8),
        b"\xff" * 20,
        bytes([2, 3]) + (1 << 62 | 50).to_bytes(8, "little"),
        bytes([0x80] * 8) + b"\x40",
    ],
)
def test_sparse_offsets_that_do_not_fit_the_rows_are_corrupt(plain: bytes) -> None:
    files = {
        "c.bin": encode_compressed_blocks(b"\x01" * 8, CODEC_NONE),
        "c.sparse.idx.bin": encode_compressed_blocks(plain, CODEC_NONE) if plain else b"",
        "c.mrk2": np.array([0, 0, 10], np.uint64).tobytes(),
        "c.sparse.idx.mrk2": np.array([0, 0, 10], np.uint64).tobytes(),
    }
    info = SerializationInfo({"c": ColumnKind(sparse=True)})
    layout = Layout(".mrk2", {"c": parse_type("UInt8")}, frozenset(files), info)
    with pytest.raises(CorruptDataError):
        read(reader("c", parse_type("UInt8"), files, layout), files)


def test_a_codec_that_we_lack_is_unsupported_not_corrupt() -> None:
    data_type = parse_type("UInt8")
    files = written("c", data_type, pa.array([1, 2], pa.uint8()), [2], CODEC_NONE)
    body = b"\x9c" + (13).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"\x01\x00\x01\x01"
    from mergelake.format.codecs.hashes import city128

    files["c.bin"] = city128(body) + body
    with pytest.raises(UnsupportedError, match="ALP"):
        _read("UInt8", files)
