"""Encoding and decoding columns against ClickHouse on the same data, one thread each.

    python benchmarks/bench_format.py [rows] [granules a run]

Write: `ColumnWriter` (encode, compress, hash) plus writing the files, against INSERT SELECT from a Memory table into
MergeTree with the classic settings. Read: files to Arrow arrays, a run of granules at a time, checksums verified,
against a SELECT that decodes the column and computes nothing with it (`ignore`). Both from the page cache, best of 5.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mergelake.core.types import parse_type
from mergelake.format.codec import CODEC_LZ4
from mergelake.format.layout import classic_layout
from mergelake.format.reader import ColumnReader
from mergelake.format.wide import ColumnWriter, stream_files

COLUMNS = {
    "id": "Int64",
    "value": "Float64",
    "time": "DateTime('UTC')",
    "host": "LowCardinality(String)",
    "text": "String",
}
CLASSIC = """min_bytes_for_wide_part=0, serialization_info_version='basic',
string_serialization_version='single_stream',
propagate_types_serialization_versions_to_nested_types=0, ratio_of_defaults_for_sparse_serialization=1,
compress_marks=0, compress_primary_key=0, auto_statistics_types='', fsync_after_insert=0"""
GRANULE = 8192
RUN = int(sys.argv[2]) if len(sys.argv) > 2 else 16


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of a few runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def make_data(rows: int) -> dict[str, pa.Array]:
    """Ids that go up in steps, prices, a time series, 100 host names, 20-byte strings."""
    rng = np.random.default_rng(1)
    letters = rng.integers(97, 123, rows * 20, dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * 20
    hosts = pa.array([f"host-{i:03}.example".encode() for i in range(100)], pa.binary())
    return {
        "id": pa.array(np.cumsum(rng.integers(1, 50, rows))),
        "value": pa.array(np.round(rng.normal(100, 15, rows), 2)),
        "time": pa.array((1_700_000_000 + np.arange(rows) // 40).astype(np.uint32)),
        "host": pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 100, rows, dtype=np.int32)), hosts),
        "text": pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]),
    }


def write(folder: Path, name: str, array: pa.Array, granules: np.ndarray) -> None:
    """One column to its files, in runs."""
    data_type = parse_type(COLUMNS[name])
    writer = ColumnWriter(name, data_type, CODEC_LZ4)
    with ExitStack() as stack:
        files = {f: stack.enter_context((folder / f).open("wb", buffering=0)) for f in stream_files(name, data_type)}
        row = 0
        for first in range(0, len(granules), RUN):
            counts = granules[first : first + RUN]
            writer.append(array.slice(row, int(counts.sum())), counts)
            row += int(counts.sum())
            for file, data in writer.drain():
                files[file].write(data)
        for file, data in writer.finish():
            files[file].write(data)
    writer.digests()


def read(folder: Path, name: str, out: list[pa.Array] | None = None) -> None:
    """One column from its files, in runs."""
    data_type = parse_type(COLUMNS[name])
    names = stream_files(name, data_type)
    layout = classic_layout({name: data_type}, names)
    mark_files = layout.mark_files(name, data_type)
    marks = {file: layout.parse_marks(file, (folder / file).read_bytes()) for file in mark_files}
    sizes = {file: (folder / file).stat().st_size for file in layout.data_files(name, data_type)}
    reader = ColumnReader(name, data_type, layout, marks, sizes)
    with ExitStack() as stack:
        handles = {file: stack.enter_context((folder / file).open("rb", buffering=0)).fileno() for file in sizes}
        count = len(reader.granule_rows)
        for first in range(0, count, RUN):
            end = min(first + RUN, count)
            ranges = reader.byte_ranges(first, end)
            data = {file: os.pread(handles[file], stop - start, start) for file, (start, stop) in ranges.items()}
            found = reader.decode(first, end, data)
            if out is not None:
                out.append(found)


def main(rows: int) -> None:
    """Print the table."""
    folder = Path(tempfile.mkdtemp(prefix="bench-format-"))
    try:
        compare(rows, folder)
    finally:
        shutil.rmtree(folder)


def compare(rows: int, folder: Path) -> None:
    """Measure both sides and print the ratios."""
    arrays = make_data(rows)
    granules = np.full(-(-rows // GRANULE), GRANULE)
    granules[-1] = rows - GRANULE * (len(granules) - 1)
    # Ours first: once ClickHouse is loaded, its background threads share the processor with us.
    ours = {name: measure_ours(folder / name, name, array, granules) for name, array in arrays.items()}
    theirs = measure_clickhouse(folder, arrays)
    print(f"{rows:,} rows{'':12} write ms   ClickHouse   ratio     read ms   ClickHouse   ratio")
    totals = np.zeros(4)
    for name, data_type in COLUMNS.items():
        times = np.array([ours[name][0], theirs[name][0], ours[name][1], theirs[name][1]]) * 1000
        totals += times
        report(data_type, times)
    report("all", totals)


def measure_ours(folder: Path, name: str, array: pa.Array, granules: np.ndarray) -> tuple[float, float]:
    """Seconds to write and to read a column; what is read is compared once."""
    folder.mkdir()
    wrote = min(timed_write(folder, name, array, granules) for _ in range(5))
    took = best(lambda: read(folder, name))
    check: list[pa.Array] = []
    read(folder, name, check)
    plain = [piece.dictionary_decode() if name == "host" else piece for piece in check]
    if not pa.chunked_array(plain).equals(pa.chunked_array([array.dictionary_decode() if name == "host" else array])):
        raise SystemExit(f"{name} does not read as it was written")
    return wrote, took


def measure_clickhouse(folder: Path, arrays: dict[str, pa.Array]) -> dict[str, tuple[float, float]]:
    """Seconds in which ClickHouse writes and reads each column."""
    import chdb.session

    session = chdb.session.Session(str(folder / "clickhouse"))
    session.query("CREATE DATABASE b ENGINE = Atomic")
    public = {n: a.dictionary_decode() if n == "host" else a for n, a in arrays.items()}
    pa.parquet.write_table(pa.table(public), folder / "data.parquet")
    out: dict[str, tuple[float, float]] = {}
    for name, data_type in COLUMNS.items():
        session.query(f"CREATE TABLE b.m_{name} ({name} {data_type}) ENGINE = Memory")
        session.query(f"INSERT INTO b.m_{name} SELECT {name} FROM file('{folder}/data.parquet')")
        wrote = min(timed_insert(session, name, data_type) for _ in range(5))
        query = f"SELECT ignore({name}) FROM b.t_{name} WHERE NOT ignore({name}) FORMAT Null SETTINGS max_threads = 1"
        out[name] = wrote, best(lambda query=query: session.query(query))
    return out


def timed_insert(session: Any, name: str, data_type: str) -> float:
    """Seconds of one INSERT of the whole column into a new table, as one block."""
    session.query(f"DROP TABLE IF EXISTS b.t_{name} SYNC")
    session.query(
        f"CREATE TABLE b.t_{name} ({name} {data_type}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {CLASSIC}"
    )
    start = time.perf_counter()
    session.query(
        f"INSERT INTO b.t_{name} SELECT * FROM b.m_{name} SETTINGS max_block_size = 100000000, max_threads = 1,"
        "min_insert_block_size_rows = 100000000, min_insert_block_size_bytes = 0, max_insert_block_size = 100000000,"
        "max_insert_threads = 1"
    )
    return time.perf_counter() - start


def timed_write(folder: Path, name: str, array: pa.Array, granules: np.ndarray) -> float:
    """Seconds to write new files."""
    for file in folder.iterdir():
        file.unlink()
    start = time.perf_counter()
    write(folder, name, array, granules)
    return time.perf_counter() - start


def report(label: str, times: np.ndarray) -> None:
    """One line."""
    w, cw, r, cr = times
    print(f"{label:24} {w:9.1f} {cw:12.1f} {w / cw:7.2f} {r:11.1f} {cr:12.1f} {r / cr:7.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000)
