"""Columns of 5M rows to bytes and back, against ClickHouse on the same data, type family by type family.

    python -m benchmarks.bench_format [rows] [only families whose line contains this]

ClickHouse (chdb, one thread, classic Wide parts) makes the data. Then both sides take turns in one process:

- write: `ColumnWriter` (encode, compress, hash) and the files that it fills, against INSERT SELECT of one block from a
  Memory table into MergeTree ORDER BY tuple(); neither side syncs;
- read: the files of ClickHouse's own part to Arrow arrays by `ColumnReader`, 16 granules at a time, checksums verified,
  against `SELECT column FORMAT Null`, which decodes every value and computes nothing.

Files are in the page cache. The least of several turns counts, of processor time (our thread's; for ClickHouse the
process's) and of time by the clock. A ratio above 1 says that we are slower. Targets are judged by processor time,
which a busy machine disturbs least.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.columns.reader import ColumnReader, concatenate
from mergelake.format.columns.wide import ColumnWriter, stream_files
from mergelake.format.files.layout import classic_layout

CLASSIC = """min_bytes_for_wide_part=0, serialization_info_version='basic',
string_serialization_version='single_stream',
propagate_types_serialization_versions_to_nested_types=0, ratio_of_defaults_for_sparse_serialization=1,
compress_marks=0, compress_primary_key=0, auto_statistics_types='', fsync_after_insert=0"""
ONE_THREAD = "max_threads = 1, max_insert_threads = 1, local_filesystem_read_method = 'pread'"
ONE_BLOCK = (
    "max_block_size = 100000000, max_insert_block_size = 100000000, min_insert_block_size_rows = 100000000, "
    "min_insert_block_size_bytes = 0"
)
GRANULE, RUN, TURNS = 8192, 16, 5
GENERAL = ("LZ4", "ZSTD(1)")


@dataclass(frozen=True)
class Family:
    """One line of the table."""

    type: str
    values: str
    """SQL over `number`."""
    target: float
    codecs: tuple[str, ...] = GENERAL


_WORD = "hex(sipHash64(rand(1) % 100000))"
FAMILIES = (
    Family("UInt8", "rand(1) % 200", 1.0),
    Family("UInt32", "number * 3 + rand(1) % 100", 1.0),
    Family("Int64", "number * 25 + rand(1) % 50", 1.0),
    Family("UInt64", "rand64(1)", 1.0),
    Family("Float32", "round(randNormal(100, 15), 2)", 1.0),
    Family("Float64", "round(randNormal(100, 15), 2)", 1.0),
    Family("Date", "19000 + intDiv(number, 10000)", 1.0),
    Family("DateTime('UTC')", "1700000000 + intDiv(number, 40)", 1.0),
    Family("DateTime64(3, 'UTC')", "fromUnixTimestamp64Milli(toInt64(1.7e12 + number * 25 + rand(1) % 25))", 1.0),
    Family("Enum8('a' = 1, 'b' = 2, 'c' = 3)", "rand(1) % 3 + 1", 1.0),
    Family("UUID", "reinterpretAsUUID(sipHash128(number))", 1.0),
    Family("FixedString(16)", "sipHash128(number)", 1.0),
    Family("LowCardinality(String)", "concat('host-', toString(rand(1) % 100), '.example')", 1.0),
    Family("LowCardinality(Nullable(String))", "if(rand(2) % 5 = 0, NULL, toString(rand(1) % 100))", 1.0),
    Family("String", "hex(rand(1) % 65536)", 1.2),
    Family("String", f"concat({_WORD}, ' GET /', {_WORD}, ' ', toString(rand(2)), {_WORD}, {_WORD})", 1.2),
    # arrayElement leaves a zero under NULL, as inserted data have it; `if` would leave the value.
    Family("Nullable(Int64)", "[toNullable(number * 25 + rand(1) % 50)][1 + (rand(2) % 5 = 0)]", 1.2),
    Family("Nullable(Float64)", "[toNullable(round(randNormal(100, 15), 2))][1 + (rand(2) % 5 = 0)]", 1.2),
    Family("Nullable(String)", "[toNullable(hex(rand(1) % 65536))][1 + (rand(2) % 5 = 0)]", 1.2),
    Family("Array(UInt32)", "arrayMap(x -> rand(1) % 1000 + x, range(rand(2) % 6))", 1.5),
    Family("Array(String)", "arrayMap(x -> toString(x * 7919), range(rand(2) % 6))", 1.5),
    Family("Map(String, String)", "map('host', toString(rand(1) % 100), 'path', hex(rand(2) % 65536))", 1.5),
    Family("Decimal(18, 2)", "toDecimal64(rand(1) % 1000000, 2) / 7", 1.5),
    Family("Decimal(38, 4)", "toDecimal128(rand(1) % 1000000, 4) / 7", 1.5),
    Family(
        "Int64",
        "number * 25 + rand(1) % 50",
        1.0,
        ("Delta, LZ4", "Delta, ZSTD(1)", "DoubleDelta, LZ4", "T64, LZ4"),
    ),
    Family("DateTime('UTC')", "1700000000 + intDiv(number, 40)", 1.0, ("Delta, LZ4", "DoubleDelta", "T64")),
    Family("Float64", "round(sin(number / 1000) * 100, 1)", 1.0, ("Gorilla", "FPC", "Gorilla, LZ4")),
    Family("UInt32", "rand(1) % 1000 * 60", 1.0, ("GCD, LZ4",)),
)


@dataclass
class Least:
    """The least processor and clock seconds so far."""

    cpu: float = float("inf")
    wall: float = float("inf")

    def take(self, clock: Callable[[], float], work: Callable[[], object]) -> None:
        """Run `work` once more."""
        wall, cpu = time.perf_counter(), clock()
        work()
        self.cpu = min(self.cpu, clock() - cpu)
        self.wall = min(self.wall, time.perf_counter() - wall)


def process_cpu() -> float:
    """Processor seconds of the process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class ClickHouse:
    """The other side, and the source of the data."""

    def __init__(self, folder: Path) -> None:
        import chdb.session

        self._session = chdb.session.Session(str(folder / "clickhouse"))
        self.query("CREATE DATABASE b ENGINE = Atomic")

    def query(self, sql: str) -> str:
        """The answer as text."""
        return str(self._session.query(sql, "TabSeparatedRaw")).strip()

    def fill(self, family: Family, rows: int) -> None:
        """Make the family's values, in memory."""
        self.query("DROP TABLE IF EXISTS b.m SYNC")
        self.query(f"CREATE TABLE b.m (c {family.type}) ENGINE = Memory")
        values = f"CAST({family.values}, $${family.type}$$) AS c"
        self.query(f"INSERT INTO b.m SELECT {values} FROM numbers({rows}) SETTINGS {ONE_BLOCK}, max_threads = 1")

    def fresh(self, family: Family, codec: str) -> None:
        """An empty table."""
        self.query("DROP TABLE IF EXISTS b.t SYNC")
        column = f"c {family.type} CODEC({codec})"
        self.query(f"CREATE TABLE b.t ({column}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {CLASSIC}")

    def write(self) -> None:
        """One part."""
        self.query(f"INSERT INTO b.t SELECT c FROM b.m SETTINGS {ONE_BLOCK}, {ONE_THREAD}")

    def read(self) -> None:
        """All of it."""
        self.query(f"SELECT c FROM b.t FORMAT Null SETTINGS {ONE_THREAD}")

    def part(self) -> Path:
        """Where the part lies."""
        return Path(self.query("SELECT path FROM system.parts WHERE database = 'b' AND table = 't' AND active"))


def write(folder: Path, family: Family, codec: str, array: pa.Array, granules: np.ndarray) -> None:
    """One column to its files, in runs."""
    data_type = parse_type(family.type)
    writer = ColumnWriter("c", data_type, parse_codec(codec))
    with ExitStack() as stack:
        files = {f: stack.enter_context((folder / f).open("wb", buffering=0)) for f in stream_files("c", data_type)}
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


def read(folder: Path, family: Family, out: list[pa.Array] | None = None) -> None:
    """One column from its files, in runs."""
    data_type = parse_type(family.type)
    layout = classic_layout({"c": data_type}, stream_files("c", data_type))
    marks = {file: layout.parse_marks(file, (folder / file).read_bytes()) for file in layout.mark_files("c", data_type)}
    sizes = {file: (folder / file).stat().st_size for file in layout.data_files("c", data_type)}
    reader = ColumnReader("c", data_type, layout, marks, sizes)
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


def compare(other: ClickHouse, folder: Path, family: Family, codec: str) -> dict[str, tuple[Least, Least]]:
    """Both sides, in turns: times of ours and theirs, for `write` and `read`."""
    times = {what: (Least(), Least()) for what in ("write", "read")}
    other.fresh(family, codec)
    other.write()
    pieces: list[pa.Array] = []
    read(other.part(), family, pieces)
    array = concatenate(pieces)
    granules = np.full(-(-len(array) // GRANULE), GRANULE)
    granules[-1] = len(array) - GRANULE * (len(granules) - 1)
    for _ in range(TURNS):
        for file in folder.iterdir():
            file.unlink()
        times["write"][0].take(time.thread_time, lambda: write(folder, family, codec, array, granules))
        other.fresh(family, codec)
        times["write"][1].take(process_cpu, other.write)
        part = other.part()
        times["read"][0].take(time.thread_time, lambda part=part: read(part, family))
        times["read"][1].take(process_cpu, other.read)
    check_same(folder, part, family)
    return times


def check_same(ours: Path, theirs: Path, family: Family) -> None:
    """What we wrote is what ClickHouse wrote, to the byte; LowCardinality, whose keys may stand otherwise, by value."""
    if family.type.startswith("LowCardinality"):
        found: tuple[list[pa.Array], list[pa.Array]] = [], []
        for folder, pieces in zip((ours, theirs), found, strict=True):
            read(folder, family, pieces)
        same = all(a.dictionary_decode().equals(b.dictionary_decode()) for a, b in zip(*found, strict=True))
    else:
        names = stream_files("c", parse_type(family.type))
        same = all((ours / name).read_bytes() == (theirs / name).read_bytes() for name in names)
    if not same:
        print(f"note: {family.type}: the bytes are not those of ClickHouse")


def show(label: str, target: float, times: dict[str, tuple[Least, Least]]) -> None:
    """One line of the table."""
    cells = []
    for ours, theirs in times.values():
        ratio = ours.cpu / theirs.cpu
        verdict = " " if ratio <= target else "!"
        clock = ours.wall / theirs.wall
        cells.append(f"{ours.cpu * 1000:7.0f} {theirs.cpu * 1000:6.0f} {ratio:6.2f}{verdict}{clock:6.2f}")
    print(f"{label:42} {target:4.1f} {'   '.join(cells)}", flush=True)


def main() -> None:
    """Print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    print(f"{rows:,} rows: processor ms (ours, chdb's), their ratio, ratio by the clock; ! misses the target")
    print(f"{'':42} target  write   chdb  ratio  clock      read   chdb  ratio  clock")
    folder = Path(tempfile.mkdtemp(prefix="bench-format-"))
    try:
        (folder / "ours").mkdir()
        other = ClickHouse(folder)
        for family in FAMILIES:
            codecs = [codec for codec in family.codecs if only in f"{family.type} {codec}"]
            if codecs:
                other.fill(family, rows)
            for codec in codecs:
                show(f"{family.type} {codec}", family.target, compare(other, folder / "ours", family, codec))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
