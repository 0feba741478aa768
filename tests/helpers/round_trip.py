"""One round trip of a random table: what we write ClickHouse attaches, checks and reads; what it writes we read.

python -m tests.helpers.round_trip 7 1000 1200       # trips 1000 to 1199 of seed 7, telling each that fails
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.api.python.check import check_against, check_directory
from mergelake.api.sql.parser import parse_one
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.files.checksums import decode_checksums
from mergelake.format.files.columns_txt import decode_columns
from mergelake.format.serializations.values import encode_values
from mergelake.parts.read.listing import plain_files
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import check_schema
from mergelake.table.write.insert import insert_target, write_blocks
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import data_path
from tests.helpers.oracle import oracle
from tests.helpers.random_tables import RandomTable, random_table

SEED = 20261120
"""Of the trips of `tests/conformance/test_round_trips.py`."""
SESSION = {
    "enable_time_time64_type": 1,
    "allow_suspicious_low_cardinality_types": 1,
}


def prepare(clickhouse: Any) -> None:
    """Settings of the session, and the database of the trips."""
    for name, value in SESSION.items():
        clickhouse.query(f"SET {name} = {value}")
    clickhouse.query("CREATE DATABASE IF NOT EXISTS trips ENGINE = Atomic")
    clickhouse.query("USE trips")


def trip(clickhouse: Any, table: RandomTable, folder: Path) -> None:
    """Both ways; raises AssertionError, or what either side raises, where they differ."""
    statement: Any = parse_one(table.create("t", table.our_settings))
    schema = check_schema(statement.schema)
    names = list(schema.names)
    for name in ("theirs", "ours"):
        clickhouse.query(f"DROP TABLE IF EXISTS {name} SYNC")
    clickhouse.query(table.create("theirs", table.theirs))
    inserted = {name: table.types[name] for name in table.block.column_names}
    insert(clickhouse, "theirs", table.block, inserted, folder)
    stored = _selected(clickhouse, "theirs", names)
    parts = _parts(clickhouse, "theirs")
    # They wrote, we read and check.
    granularity = int(table.ours["index_granularity"])
    readers = []
    for path in parts.values():
        store = DirectoryStore(str(path.parent))
        opened = open_directory(store, path.name, granularity=granularity)
        assert list(opened.columns) == names
        readers.append(PartReader(store, opened.directory, opened.manifest, opened.columns, granularity=granularity))
    _expect_same(clickhouse, _read(readers, names), schema, stored, "what ClickHouse wrote")
    for reader in readers if table.is_checked else ():
        assert not (problems := check_directory(reader, schema)), list(map(str, problems))
    # We write, and read it ourselves.
    store = MemoryStore()
    manifests = write_blocks(insert_target(store, "t", schema, SeededIds(1), ManualClock()), [table.block])
    manifests.sort(key=lambda manifest: manifest.partition_id)
    ours = [PartReader(store, "t", manifest, {c.name: c for c in schema.columns}) for manifest in manifests]
    assert [m.partition_id for m in manifests] == [_partition(name) for name in parts], "partition ids differ"
    _expect_same(clickhouse, _read(ours, names), schema, stored, "what we wrote")
    for reader in ours if table.is_checked else ():
        assert not (problems := check_against(reader, schema)), list(map(str, problems))
    # ClickHouse attaches, checks and reads it.
    clickhouse.query("CREATE TABLE ours AS theirs")
    files = _attach(clickhouse, "ours", store, manifests, list(parts))
    if _selected(clickhouse, "ours", names) != stored:
        differ = [n for n in names if _selected(clickhouse, "ours", [n]) != _selected(clickhouse, "theirs", [n])]
        raise AssertionError(f"what we wrote is read otherwise by ClickHouse: {differ}")
    told = str(clickhouse.query("CHECK TABLE ours SETTINGS check_query_single_value_result = 1", "TSV")).strip()
    assert told == "1", f"CHECK TABLE: {told}"
    for name, path in parts.items():
        theirs = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
        _compare(table, schema, files[name], theirs)


def _partition(name: str) -> str:
    return PartInfo.parse(name).partition_id


def _parts(clickhouse: Any, name: str) -> dict[str, Path]:
    text = clickhouse.query(
        f"SELECT name, path FROM system.parts WHERE database = 'trips' AND table = '{name}' AND active "
        "ORDER BY partition_id",
        "TSVRaw",
    )
    return {line.split("\t")[0]: Path(line.split("\t")[1]) for line in str(text).splitlines()}


def _selected(clickhouse: Any, name: str, columns: list[str]) -> bytes:
    """These columns of all rows, in the order of the parts and of the rows in them."""
    shown = ", ".join(f"`{column}`" for column in columns)
    sql = f"SELECT {shown} FROM {name} ORDER BY _partition_id, _part_offset"
    found: bytes = clickhouse.query(sql, "RowBinary").bytes()
    return found


def _read(readers: list[PartReader], names: list[str]) -> pa.Table:
    return pa.Table.from_batches([batch for reader in readers for batch in reader.read(names)])


def _encoded(table: pa.Table, schema: TableSchema, names: list[str]) -> bytes:
    return encode_values([table.column(n).combine_chunks() for n in names], [schema.types[n] for n in names])


def _expect_same(clickhouse: Any, found: pa.Table, schema: TableSchema, stored: bytes, what: str) -> None:
    if _encoded(found, schema, found.column_names) == stored:
        return
    differ = [
        f"{name} {schema.types[name]}"
        for name in found.column_names
        if _encoded(found, schema, [name]) != _selected(clickhouse, "theirs", [name])
    ]
    raise AssertionError(f"{what} is read otherwise by us: {differ}")


def _attach(
    clickhouse: Any, table: str, store: MemoryStore, manifests: list[PartManifest], names: list[str]
) -> dict[str, dict[str, bytes]]:
    detached = data_path(clickhouse, table) / "detached"
    out = {}
    for name, manifest in zip(names, manifests, strict=True):
        (detached / name).mkdir(parents=True)
        out[name] = {file: b"".join(map(bytes, chunks)) for file, chunks in plain_files(store, "t", manifest)}
        for file, data in out[name].items():
            (detached / name / file).write_bytes(data)
    clickhouse.query(f"ALTER TABLE {table} " + ", ".join(f"ATTACH PART '{name}'" for name in names))
    return out


def _compare(table: RandomTable, schema: TableSchema, ours: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    """Equal to the byte: index of the primary key, extremes, partition, counts, columns; marks of the twin."""
    names = {file for file in theirs if file.startswith("minmax_")} | {"partition.dat", "count.txt"}
    names &= theirs.keys()
    # Geo types are aliases of which we keep what they stand for.
    assert decode_columns(ours["columns.txt"]) == decode_columns(theirs["columns.txt"])
    for file in sorted(names):
        assert ours.get(file) == theirs[file], f"{file} differs: {ours.get(file)!r} {theirs[file]!r}"
    if not table.is_twin:
        return
    for file in theirs:
        if file.endswith((".idx", ".cidx", ".idx2")) or ".mrk" in file or ".cmrk" in file:
            assert file in ours, f"{file} is missing in ours"
            mine, their = ours[file], theirs[file]
            if ".c" in file[-7:] or (file.startswith("skp_idx") and "mrk" not in file):
                mine, their = decode_compressed_blocks(mine), decode_compressed_blocks(their)
            if "mrk" in file and not _same_blocks(table):
                mine, their = _rows_of_marks(file, mine), _rows_of_marks(file, their)
            assert mine == their, f"{file} differs: {_words(mine)} {_words(their)}"
    extra = set(ours) - set(theirs)
    assert not extra, f"files that ClickHouse does not write: {extra}"
    left = set(theirs) - set(ours)
    assert left <= {"columns_substreams.txt", "metadata_version.txt", "serialization.json"}, left
    sums, told = decode_checksums(ours["checksums.txt"]), decode_checksums(theirs["checksums.txt"])
    for file, entry in sums.items():
        several = table.layout == "Compact" and any(table.codecs.values())  # hashes of hashes, in any order of codecs
        if file.endswith(".bin") and _same_blocks(table) and not several:
            assert told[file].uncompressed_hash == entry.uncompressed_hash, f"{file} holds other bytes"


def _same_blocks(table: RandomTable) -> bool:
    """Whether compressed sizes are the same: not for ZSTD (another build), nor where a dictionary has any order."""
    codecs = [table.ours.get("default_compression_codec", "LZ4"), *table.codecs.values()]
    exact = all(codec in ("", "NONE", "LZ4") for codec in codecs)
    return exact and not any("LowCardinality" in str(kind) for kind in table.types.values())


def _words(data: bytes) -> str:
    return " ".join(str(word) for word in np.frombuffer(data[: len(data) & ~7], np.uint64).tolist()[:60])


def _rows_of_marks(file: str, data: bytes) -> bytes:
    words = np.frombuffer(data, np.uint64)
    if file.endswith("mrk3"):
        return words.tobytes()[-8:] + str(len(words)).encode()
    return words.reshape(-1, 3)[:, 2].tobytes()


def main(seed: int, first: int, end: int) -> None:
    """Run trips and tell how it went."""
    clickhouse = oracle()
    prepare(clickhouse)
    started, failed = time.monotonic(), 0
    folder = Path(tempfile.mkdtemp())
    for number in range(first, end):
        table = random_table(np.random.default_rng([seed, number]))
        try:
            trip(clickhouse, table, folder)
        except Exception as problem:
            failed += 1
            print(f"-- trip {seed} {number}: {type(problem).__name__}: {str(problem)[:600]}", flush=True)
            if end - first == 1:
                print(table.create("t", table.theirs), "\n", table.our_settings)
                traceback.print_exc()
        if (number + 1) % 100 == 0:
            print(f"{number + 1 - first} trips, {failed} failed, {time.monotonic() - started:.0f} s", flush=True)
    shutil.rmtree(folder)
    print(f"{end - first} round trips of seed {seed} in {time.monotonic() - started:.0f} s, {failed} failed")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
