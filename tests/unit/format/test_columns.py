"""Columns written and read back: every type, any granules, slices, chunks, ranges; and the bytes that lie between."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mergelake.core.base.errors import InvalidInputError, UnsupportedError
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import CODEC_LZ4, CODEC_NONE, parse_codec
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.codecs.hashes import file_hash
from mergelake.format.columns.wide import ColumnWriter, empty_files, stream_files
from mergelake.format.files.marks import encode_marks, parse_marks
from mergelake.format.serializations import lowcardinality
from mergelake.format.serializations.values import encode_values
from tests.helpers.columns import read, reader, written
from tests.helpers.random_arrays import TYPES, random_array

MORE = [
    "Int256",
    "IPv6",
    "LowCardinality(UInt8)",
    "LowCardinality(FixedString(3))",
    "LowCardinality(Nullable(UUID))",
    "Array(LowCardinality(Nullable(String)))",
    "Array(Array(Nullable(String)))",
    "Array(Array(LowCardinality(String)))",
    "Tuple(a UInt8, b Tuple(c Nullable(String), d LowCardinality(String)))",
    "Array(Tuple(UInt8, Array(String)))",
    "Map(String, Array(UInt8))",
    "Map(LowCardinality(String), UInt8)",
    "SimpleAggregateFunction(sum, UInt64)",
]


@pytest.mark.parametrize("text", [*TYPES, *MORE])
@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**32),
    granules=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    appends=st.integers(1, 4),
    codec=st.sampled_from(["LZ4", "NONE", "ZSTD(1)"]),
    block=st.sampled_from([200, 3000, 65536]),
    chunked=st.booleans(),
)
def test_a_column_reads_as_it_was_written(
    text: str, seed: int, granules: list[int], appends: int, codec: str, block: int, chunked: bool
) -> None:
    rng = np.random.default_rng(seed)
    data_type = parse_type(text)
    total = sum(granules)
    array = random_array(rng, data_type, total + 13).slice(7, total)
    writer = ColumnWriter("c", data_type, parse_codec(codec), min_block=block, max_block=2 * block)
    files = dict.fromkeys(stream_files("c", data_type), b"")
    row = 0
    for part in np.array_split(np.array(granules), appends):
        if not len(part):
            continue
        piece = array.slice(row, int(part.sum()))
        half = len(piece) // 2
        writer.append(pa.chunked_array([piece.slice(0, half), piece.slice(half)]) if chunked else piece, part)
        row += len(piece)
        for file, data in writer.drain():
            files[file] += data
    for file, data in writer.finish():
        files[file] += data
    for file, digest in writer.digests().items():
        assert (digest.size, digest.hash) == (len(files[file]), file_hash(files[file]))
        if file.endswith(".bin"):
            plain = decode_compressed_blocks(files[file])
            assert (digest.uncompressed_size, digest.uncompressed_hash) == (len(plain), file_hash(plain))
    column = reader("c", data_type, files)
    assert column.granule_rows.tolist() == granules
    ends = np.concatenate([[0], np.cumsum(granules)])
    first = int(rng.integers(0, len(granules)))
    end = int(rng.integers(first + 1, len(granules) + 1))
    for low, high in ((0, len(granules)), (first, end)):
        found = read(column, files, low, high)
        assert found.type == storage_type(data_type)
        want = array.slice(ends[low], ends[high] - ends[low])
        assert encode_values([found], [data_type]) == encode_values([want], [data_type])


def test_the_minimal_part_has_the_bytes_of_the_specification() -> None:
    k = written("k", parse_type("UInt64"), pa.array([1, 2, 3], pa.uint64()), [3], CODEC_NONE)
    assert k["k.bin"].hex() == (
        "393297f220a10f9ed5824c8a1c64a774022100000018000000010000000000000002000000000000000300000000000000"
    )
    s = written("s", parse_type("String"), pa.array([b"a", b"", b"xyz"], pa.binary()), [3], CODEC_NONE)
    assert s["s.bin"].hex() == "bf054f18acba198b17e21264fb6ec4d50210000000070000000161000378797a"
    # The final mark is where ClickHouse puts it: the start of the last compressed block and the bytes in it.
    assert np.frombuffer(s["s.mrk2"], np.uint64).tolist() == [0, 0, 3, 0, 7, 0]


def test_low_cardinality_has_the_bytes_of_the_specification() -> None:
    data_type = parse_type("LowCardinality(String)")
    array = pa.array([str(i % 7).encode() for i in range(16)], pa.binary())
    files = written("c", data_type, array, [8, 8], CODEC_NONE)
    keys = b"".join(b"\x01" + str(i).encode() for i in range(7))
    assert decode_compressed_blocks(files["c.dict.bin"]) == bytes([1, *[0] * 7, 8, *[0] * 7, 0]) + keys
    rows = (8).to_bytes(8, "little")
    indexes = [bytes(int(v) + 1 for v in array.to_pylist()[i : i + 8]) for i in (0, 8)]
    first, second = (0x500).to_bytes(8, "little"), (0x100).to_bytes(8, "little")
    assert decode_compressed_blocks(files["c.bin"]) == first + rows + indexes[0] + second + rows + indexes[1]
    assert np.frombuffer(files["c.dict.mrk2"], np.uint64).reshape(-1, 3)[:2].tolist() == [[0, 8, 8], [0, 8, 8]]


@pytest.mark.parametrize("text", ["LowCardinality(String)", "LowCardinality(Nullable(UInt32))"])
def test_too_many_keys_are_kept_with_their_granules(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(lowcardinality, "KEYS_MAX", 500)
    monkeypatch.setattr(lowcardinality, "PROBE_KEYS", 100)
    data_type = parse_type(text)
    numbers = pa.array([None if i % 9 == 0 and "Nullable" in text else i for i in range(3000)], pa.uint32())
    array = numbers if "UInt32" in text else numbers.cast(pa.string()).cast(pa.binary())
    writer = ColumnWriter("c", data_type, CODEC_LZ4)
    for at in range(0, 3000, 300):
        writer.append(array.slice(at, 300), np.array([100, 200]))
    files = dict(writer.finish())
    keys = int(np.frombuffer(decode_compressed_blocks(files["c.dict.bin"]), np.uint64, 2)[1])
    assert keys <= 502
    column = reader("c", data_type, files)
    assert read(column, files).to_pylist() == array.to_pylist()
    assert read(column, files, 19, 20).to_pylist() == array.to_pylist()[2800:]


def test_a_dictionary_may_hold_null_and_unused_entries() -> None:
    data_type = parse_type("LowCardinality(Nullable(String))")
    entries = pa.array([b"unused", None, b"a", b"a"], pa.binary())
    array = pa.DictionaryArray.from_arrays(pa.array([3, 1, None, 2], pa.int8()), entries)
    files = written("c", data_type, array, [4])
    found = read(reader("c", data_type, files), files)
    assert found.to_pylist() == [b"a", None, None, b"a"]
    assert found.dictionary.to_pylist() == [b"", b"a"]


def test_what_lies_under_null_is_the_default() -> None:
    values = pa.Array.from_buffers(
        pa.binary(),
        2,
        [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"abc")],
    )
    files = written("c", parse_type("Nullable(String)"), values, [2], CODEC_NONE)
    assert decode_compressed_blocks(files["c.bin"]) == b"\x01a\x00"
    numbers = pa.Array.from_buffers(pa.int16(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(b"\x01\x02\x03\x04")])
    files = written("c", parse_type("Nullable(Int16)"), numbers, [2], CODEC_NONE)
    assert decode_compressed_blocks(files["c.bin"]) == b"\x00\x00\x03\x04"
    assert decode_compressed_blocks(files["c.null.bin"]) == b"\x01\x00"


@pytest.mark.parametrize("text", ["UInt8", "String", "LowCardinality(String)", "Array(UInt8)", "Array(String)"])
def test_null_is_refused_where_the_type_has_none(text: str) -> None:
    data_type = parse_type(text)
    cells = [None, [None]][text.startswith("Array") and 1]
    kind = storage_type(data_type)
    array = pa.array([cells], kind.value_type) if pa.types.is_dictionary(kind) else pa.nulls(1, kind)
    if text.startswith("Array"):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.nulls(1, kind.value_type))
    with pytest.raises(InvalidInputError, match="NULL"):
        ColumnWriter("c", data_type, CODEC_LZ4).append(array, np.array([1]))


def test_arrays_in_another_form_are_cast_or_refused() -> None:
    writer = ColumnWriter("c", parse_type("UInt8"), CODEC_LZ4)
    with pytest.raises(InvalidInputError, match="stored as Arrow uint8"):
        writer.append(pa.array(["x"]), np.array([1]))
    with pytest.raises(InvalidInputError, match="stored as Arrow"):
        ColumnWriter("c", parse_type("Tuple(UInt8, UInt8)"), CODEC_LZ4).append(pa.array([1]), np.array([1]))
    writer = ColumnWriter("c", parse_type("LowCardinality(String)"), CODEC_NONE)
    writer.append(pa.array(["a", "a"]).dictionary_encode(), np.array([2]))
    assert decode_compressed_blocks(dict(writer.finish())["c.dict.bin"])[16:] == b"\x00\x01a"
    writer = ColumnWriter("c", parse_type("Array(String)"), CODEC_NONE)
    writer.append(pa.array([["ä"]], pa.large_list(pa.large_string())), np.array([1]))
    assert decode_compressed_blocks(dict(writer.finish())["c.bin"]) == b"\x02\xc3\xa4"


@pytest.mark.parametrize("granules", [[1], [3], [2, 0], [3, -1]])
def test_granules_must_cover_the_rows(granules: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="Granules"):
        ColumnWriter("c", parse_type("UInt8"), CODEC_LZ4).append(pa.array([1, 2], pa.uint8()), np.array(granules))


def test_a_column_without_rows_has_empty_files() -> None:
    data_type = parse_type("Array(LowCardinality(String))")
    writer = ColumnWriter("n.a", data_type, CODEC_LZ4, skip={"n.size0"})
    assert writer.finish() == []
    assert writer.digests() == empty_files("n.a", data_type, skip={"n.size0"})
    assert stream_files("n.a", data_type) == (
        "n.size0.bin",
        "n.size0.mrk2",
        "n%2Ea.dict.bin",
        "n%2Ea.dict.mrk2",
        "n%2Ea.bin",
        "n%2Ea.mrk2",
    )


def test_types_that_we_cannot_store_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Tuple"):
        ColumnWriter("c", parse_type("Tuple()"), CODEC_LZ4)


def test_marks_of_every_extension_are_parsed() -> None:
    table = np.array([[0, 0, 5], [40, 7, 3], [90, 0, 0]], np.uint64)
    marks = parse_marks("x.mrk2", encode_marks(table))
    assert marks.granule_rows.tolist() == [5, 3]
    fixed = parse_marks("x.mrk", table[:2, :2].tobytes(), granularity=5, rows=8)
    assert fixed.granule_rows.tolist() == [5, 3]
    compact = parse_marks("data.mrk4", np.array([[0, 0, 9, 1, 8], [50, 0, 50, 0, 0]], np.uint64).tobytes(), streams=2)
    assert compact.offset.tolist() == [[0, 9], [50, 50]]
    assert compact.skip.tolist() == [[0, 1], [0, 0]]
