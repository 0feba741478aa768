"""Compact parts and profiles without ClickHouse: what is written is read back, whatever the granules."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.codecs.hashes import file_hash
from mergelake.format.columns.compact import CompactColumn, compact_files
from mergelake.format.columns.wide import ColumnWriter
from mergelake.format.files.layout import detect_layout
from mergelake.format.files.profile import Profile
from tests.helpers.columns import read, reader
from tests.helpers.random_arrays import equal, random_array

KINDS = ["UInt8", "String", "LowCardinality(Nullable(String))", "Array(LowCardinality(String))", "Nullable(String)"]
GRANULES = np.array([100, 1, 250, 49], np.int64)


@pytest.mark.parametrize("modern", [False, True])
def test_a_compact_part_reads_back_in_any_run_of_granules(modern: bool) -> None:
    profile = Profile(modern, compact=True)
    rng = np.random.default_rng(3)
    types = {f"c{i}": parse_type(text) for i, text in enumerate(KINDS)}
    arrays = {name: random_array(rng, kind, 400) for name, kind in types.items()}
    columns = [CompactColumn(name, kind, parse_codec("LZ4"), profile) for name, kind in types.items()]
    for column in columns:
        column.append(arrays[column.name].slice(0, 101), GRANULES[:2])
        column.append(pa.chunked_array([arrays[column.name].slice(101)]), GRANULES[2:])
    files, digests = compact_files(columns, GRANULES, profile)
    assert list(files) == ["data.bin", "data.cmrk3" if modern else "data.mrk3"]
    assert all(digests[name].hash == file_hash(data) for name, data in files.items())
    if profile.serialization:
        files["serialization.json"] = profile.serialization
    layout = detect_layout(set(files), files, types)
    for name, kind in types.items():
        column_reader = reader(name, kind, files, layout)
        assert column_reader.granule_rows.tolist() == GRANULES.tolist()
        assert equal(read(column_reader, files), arrays[name])
        assert equal(read(column_reader, files, 1, 3), arrays[name].slice(100, 251))


def test_a_compact_part_without_rows_has_two_empty_files() -> None:
    column = CompactColumn("c", parse_type("LowCardinality(String)"), parse_codec("LZ4"), Profile(compact=True))
    files, digests = compact_files([column], np.empty(0, np.int64), Profile(compact=True))
    assert files == {"data.bin": b"", "data.mrk3": b""}
    assert {(d.size, d.hash) for d in digests.values()} == {(0, "0" * 32)}


def test_siblings_of_a_nested_column_must_agree_in_sizes() -> None:
    profile = Profile(compact=True)
    columns = []
    for name, lists in {"n.a": [[1], [2, 3]], "n.b": [[1, 2], [3]]}.items():
        column = CompactColumn(name, parse_type("Array(UInt8)"), parse_codec("NONE"), profile)
        column.append(pa.array(lists, pa.list_(pa.field("item", pa.uint8(), nullable=False))), np.array([2]))
        columns.append(column)
    with pytest.raises(MergelakeError, match=r"column n\.b have different array sizes"):
        compact_files(columns, np.array([2]), profile)


def test_a_modern_wide_column_has_lengths_apart_and_packed_marks() -> None:
    kind = parse_type("Array(String)")
    profile = Profile(modern=True)
    array = random_array(np.random.default_rng(1), kind, 400)
    writer = ColumnWriter("c", kind, parse_codec("LZ4"), profile=profile)
    files: dict[str, bytes] = {}
    start = 0
    for rows in GRANULES.tolist():
        writer.append(array.slice(start, rows), np.array([rows]))
        start += rows
        for name, data in writer.drain():
            files[name] = files.get(name, b"") + data
    for name, data in writer.finish():
        files[name] = files.get(name, b"") + data
    assert set(files) == {f"c{s}{e}" for s in ("", ".size", ".size0") for e in (".bin", ".cmrk2")}
    digests = writer.digests()
    for name, data in files.items():
        assert (digests[name].size, digests[name].hash) == (len(data), file_hash(data))
    assert profile.serialization is not None
    files["serialization.json"] = profile.serialization
    layout = detect_layout(set(files), files, {"c": kind})
    assert equal(read(reader("c", kind, files, layout), files), array)


def test_every_flipped_byte_of_a_compact_part_is_an_error_or_changes_nothing() -> None:
    profile = Profile(compact=True)
    types = {f"c{i}": parse_type(text) for i, text in enumerate(KINDS)}
    arrays = {name: random_array(np.random.default_rng(4), kind, 12) for name, kind in types.items()}
    columns = [CompactColumn(name, kind, parse_codec("NONE"), profile) for name, kind in types.items()]
    for column in columns:
        column.append(arrays[column.name], np.array([8, 4]))
    files, _ = compact_files(columns, np.array([8, 4], np.int64), profile)
    unnoticed = 0
    for name, data in files.items():
        for at in range(len(data)):
            broken = bytearray(data)
            broken[at] ^= 1 << (at % 8)
            damaged = {**files, name: bytes(broken)}
            try:
                layout = detect_layout(set(damaged), damaged, types)
                found = {n: read(reader(n, kind, damaged, layout), damaged) for n, kind in types.items()}
            except MergelakeError:
                continue
            # Rows of a granule stand in the marks alone; that they sum to the part's is checked by `PartReader`.
            assert name == "data.mrk3" or all(equal(found[n], arrays[n]) for n in types)
            unnoticed += 1
    assert unnoticed <= len(files["data.mrk3"]) // 8
