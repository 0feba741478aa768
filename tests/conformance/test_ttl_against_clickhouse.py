"""TTLs in merges: the rows, the files and `ttl.txt` of ClickHouse's own merges, for picked and for random tables.

Its clock cannot be moved: times are long ago or far in the future.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.ttl import TtlInfo
from mergelake.format.files.ttl_txt import encode_ttl
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.store import open_store
from tests.helpers import random_ttl
from tests.helpers.clickhouse_tables import CLASSIC, part_paths

pytestmark = pytest.mark.chdb

FIRST, END = int(os.environ.get("TTL_FIRST", "0")), int(os.environ.get("TTL_END", "12"))
# Merges of its own accord would come between.
SETTINGS = (
    f"{CLASSIC}, max_number_of_merges_with_ttl_in_pool = 0, min_parts_to_merge_at_once = 1000, "
    "max_bytes_to_merge_at_max_space_in_pool = 1, index_granularity = 8"
)
OURS = "index_granularity = 8, allow_nullable_key = 1"
ENGINE = "ENGINE = MergeTree ORDER BY k"
GROUPS = (
    "(d Date, k UInt8, b UInt8, x UInt8, n Nullable(Int32), s String) ENGINE = MergeTree ORDER BY (k, b) "
    "TTL d GROUP BY k SET x = sum(x) + 1, s = max(s), d = min(d)"
)
DEFAULTS = (
    "(d Date, k UInt8, x Int32 TTL d, y Int32 DEFAULT x + 1 TTL d + INTERVAL 50 YEAR, z Int32 DEFAULT k * 2 TTL d, "
    f"w String MATERIALIZED 'w' TTL d) {ENGINE}"
)
GROUPED = (
    "('2020-01-01', 1, 1, 200, NULL, 'a'), ('2020-01-02', 1, 2, 100, 5, 'b'), ('2099-01-02', 1, 2, 100, NULL, 'c'), "
    "('2020-01-01', 1, 4, 7, 8, 'd'), ('2099-01-02', 2, 3, 9, NULL, 'c'), ('2020-01-01', 3, 4, 7, 8, 'd')"
)
EPOCH = (
    "('2020-01-01 00:00:00.999', '2200-01-01', 1, 1), ('2090-01-01 00:00:00.999', '1950-01-01', 2, 1), "
    "('1950-01-01 00:00:00.999', '1970-01-01', 3, 3), ('1969-12-31 23:59:59.500', '1970-01-01', 4, 3)"
)
CASES = {
    "rows": (f"(d Date, k UInt8) {ENGINE} TTL d + INTERVAL 1 DAY", "('2020-01-01', 1), ('2099-01-01', 2)"),
    "rows of two parts": (f"(d Date, k UInt8) {ENGINE} TTL d", "('2020-01-01', 1); ('1970-01-01', 3)"),
    "before the epoch, and half a second before it": (
        f"(d DateTime64(3), e Date32, k UInt8, x Int32 TTL e) {ENGINE} TTL d",
        EPOCH,
    ),
    "where": (
        f"(d DateTime, k UInt8, v UInt8) {ENGINE} TTL d WHERE v = 1, d + 1 DELETE WHERE v = 2",
        "('2020-01-01 00:00:00', 1, 1), ('2020-01-01 00:00:00', 2, 2), ('2099-01-01 00:00:00', 3, 1); (1, 4, 7)",
    ),
    "columns with defaults": (
        DEFAULTS,
        "('2020-01-01', 1, 1, 1, 1), ('2099-01-02', 3, 2, 100, 7); ('1970-01-01', 1, 1, 1, 1)",
    ),
    "columns that are gone": (
        f"(d Date, k UInt8, x Int32 TTL d, s String DEFAULT 'q' TTL d) {ENGINE}",
        "('2020-01-01', 1, 1, 'a'); ('2020-01-01', 2, 1, 'b')",
    ),
    "groups": (
        GROUPS,
        GROUPED,
    ),
    "recompression": (
        f"(d Date, k UInt8) {ENGINE} TTL d RECOMPRESS CODEC(ZSTD(5)), d + INTERVAL 1 YEAR RECOMPRESS CODEC(LZ4HC(3))",
        "('2020-01-01', 1); ('2021-01-01', 2); ('2099-01-01', 3)",
    ),
    "after the engine": (
        "(d Date, k UInt8, v UInt8) ENGINE = ReplacingMergeTree(v) ORDER BY k TTL d",
        "('2099-01-01', 1, 1); ('2020-01-01', 1, 2), ('2020-01-01', 2, 1)",
    ),
    "of sums": (
        "(d Date, k UInt8, v UInt64) ENGINE = SummingMergeTree ORDER BY k TTL d WHERE v > 5",
        "('2020-01-01', 1, 2), ('2020-01-01', 2, 9); ('2099-01-01', 1, 4)",
    ),
}
"""Columns and clauses, and the rows of inserts."""


class Pair:
    """One table here, and the same in ClickHouse."""

    def __init__(self, oracle: Any, directory: Path, create: str) -> None:
        self.oracle, self.directory = oracle, directory
        self.db = ml.connect(str(directory))
        self.gone = self.dropped = False
        oracle.query("SET allow_suspicious_low_cardinality_types = 1")
        oracle.query("DROP TABLE IF EXISTS t SYNC")
        oracle.query(f"CREATE TABLE t {create} SETTINGS {SETTINGS}")
        self.db.sql(f"CREATE TABLE t {create} SETTINGS {OURS}")

    def run(self, sql: str) -> None:
        self.oracle.query(sql)
        self.db.sql(sql)

    def theirs(self) -> list[tuple[str, str, str, list[str]]]:
        """Name, `ttl.txt`, default codec and data files of each part that has rows."""
        out = []
        for name, path in sorted(part_paths(self.oracle, "t").items()):
            if (path / "count.txt").read_text() == "0":
                self.dropped = True
                continue
            ttl, codec = ((path / file) for file in ("ttl.txt", "default_compression_codec.txt"))
            files = sorted(file.name for file in path.iterdir() if file.suffix == ".bin")
            out.append((name, ttl.read_text() if ttl.exists() else "", codec.read_text(), files))
        return out

    def ours(self) -> list[tuple[str, str, str, list[str]]]:
        table = self.db.table("t")
        handle, out = table.handle, []
        columns = {column.name: column for column in handle.schema.stored}
        for part in handle.refresh().parts():
            if not part.manifest.rows:
                continue
            reader = PartReader(handle.store, handle.directory, part.manifest, columns)
            small = reader.small_files(["ttl.txt", "default_compression_codec.txt"])
            ttl, codec = (small.get(name, b"").decode() for name in ("ttl.txt", "default_compression_codec.txt"))
            files = sorted(name for name in part.manifest.file_table() if name.endswith(".bin"))
            out.append((str(part.info), ttl, codec, files))
        return sorted(out)

    def optimized(self) -> bool:
        """Merge everything; False if ClickHouse fails, as an expression reads a column that is gone: ours goes on."""
        self.db.sql("OPTIMIZE TABLE t FINAL")
        try:
            self.oracle.query("OPTIMIZE TABLE t FINAL")
        except Exception as failure:
            if "NOT_FOUND_COLUMN_IN_BLOCK" not in str(failure):
                raise
            return False
        return True

    def rows(self) -> tuple[str, str]:
        sql = "SELECT * FROM t ORDER BY ALL FORMAT CSV"
        return str(self.oracle.query(sql)), self.db.sql(sql).text()

    def same(self, note: object = "") -> None:
        """Whether parts and rows are the same.

        Once a column with a DEFAULT is gone from a part, a later merge of ClickHouse's brings it back: then only the
        rows are compared. Where it keeps a part without rows, there is none here, so that later parts
        have other names.
        """
        if not self.gone:
            ours, theirs = self.ours(), self.theirs()
            if self.dropped:
                ours, theirs = (sorted(("", *part[1:]) for part in parts) for parts in (ours, theirs))
            assert ours == theirs, note
            defaults = [c.name for c in self.db.table("t").schema.columns if c.default]
            self.gone = any(f"{name}.bin" not in files for name in defaults for *_, files in theirs)
        theirs, ours = self.rows()
        assert ours == theirs, note


# M-029
@pytest.mark.parametrize("case", CASES)
def test_a_merge_removes_what_clickhouse_removes(case: str, oracle: Any, tmp_path: Path) -> None:
    create, rows = CASES[case]
    inserts = rows.split("; ")
    pair = Pair(oracle, tmp_path, create)
    for values in inserts:
        pair.run(f"INSERT INTO t VALUES {values}")
    pair.same("inserted")
    pair.run("OPTIMIZE TABLE t FINAL")
    pair.same("merged")
    pair.run("OPTIMIZE TABLE t FINAL")
    pair.same("merged again")
    pair.run(f"INSERT INTO t VALUES {inserts[0]}")
    pair.run("OPTIMIZE TABLE t FINAL")
    pair.same("with new rows")


def test_the_times_of_a_part_of_clickhouse_are_read(oracle: Any, tmp_path: Path) -> None:
    ttl = "TTL d, d + 1 DELETE WHERE k = 1, d RECOMPRESS CODEC(ZSTD(5)), d + 2 GROUP BY k SET x = max(x)"
    pair = Pair(oracle, tmp_path, f'(d DateTime, k UInt8, `x "y` Int8 TTL d, x Int8) {ENGINE} {ttl}')
    pair.run("INSERT INTO t VALUES ('2020-01-01 00:00:00', 1, 5, 7), ('2099-01-01 00:00:00', 2, 6, 8)")
    pair.same("inserted")
    (path,) = part_paths(oracle, "t").values()
    opened = open_directory(open_store(str(path.parent)), path.name)
    assert opened.ttl.columns == {'x "y': TtlInfo(1577836800, 4070908800)}
    assert opened.ttl.rows_where == {"d + 1": TtlInfo(1577836801, 1577836801)}
    assert encode_ttl(opened.ttl) == (path / "ttl.txt").read_bytes()


def test_system_parts_tell_when_rows_expire(oracle: Any, tmp_path: Path) -> None:
    sql = "SELECT name, delete_ttl_info_min, delete_ttl_info_max FROM system.parts WHERE table = 't' AND active"
    for create in ("TTL d + 1", "TTL d + 1 WHERE k = 1", ""):
        pair = Pair(oracle, tmp_path / str(len(create)), f"(d DateTime, k UInt8) {ENGINE} {create}")
        pair.run("INSERT INTO t VALUES ('2020-01-01 00:00:00', 1), ('2099-01-01 00:00:00', 2)")
        here = sql.replace("WHERE", "WHERE database = currentDatabase() AND")
        assert pair.db.sql(f"{here} FORMAT CSV").text() == str(oracle.query(here, "CSV"))


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_random_tables(seed: int, oracle: Any, tmp_path: Path) -> None:
    rng = random.Random(seed)
    table = random_ttl.draw(rng)
    pair = Pair(oracle, tmp_path, table.create)
    for step in range(6):
        if rng.random() < 0.6 or step == 0:
            pair.run(f"INSERT INTO t VALUES {table.rows(rng)}")
        elif not pair.optimized():
            return
        pair.same((table.create, step))


REFUSED = [
    ("k", 450), ("k + now()", 36), ("d + rand()", 36), ("now()", 36), ("toDateTime('2020-01-01 00:00:00')", 36),
    ("e", 450), ("d, d + 1", 450), ("nope", 47), ("d WHERE nope", 47), ("a + 1", 47), ("d TO DISK 'x'", 450),
    ("d TO VOLUME 'x'", 450), ("d GROUP BY v SET d = max(d)", 450), ("d GROUP BY k SET v = v + 1", 450),
    ("d GROUP BY k SET nope = sum(v)", 16), ("d GROUP BY k SET v = max(v), v = min(v)", 450),
    ("d RECOMPRESS CODEC(NOPE)", 432), ("d SET v = 1", 62), ("d DELETE GROUP BY k", 62), ("d,", 62),
    ("d WHERE v = 1 GROUP BY k", 62),
]  # fmt: skip


@pytest.mark.parametrize(("ttl", "code"), REFUSED)
def test_bad_definitions_have_the_codes_of_clickhouse(ttl: str, code: int, oracle: Any, tmp_path: Path) -> None:
    columns = "d DateTime, e Nullable(DateTime), k UInt8, v UInt8, a DateTime ALIAS d + 1"
    _refused(f"CREATE TABLE u ({columns}) {ENGINE} TTL {ttl}", code, oracle, tmp_path)


@pytest.mark.parametrize(
    ("columns", "clauses", "code"),
    [
        ("d Date, k UInt8 TTL d", "ORDER BY k", 44),
        ("d Date, k UInt8, v UInt8 TTL d", "ORDER BY k PARTITION BY v", 44),
        ("d Date, k UInt8, v UInt8 TTL d", "ORDER BY (k, v % 2)", 44),
        ("d Date, k UInt8, v UInt8 TTL v", "ORDER BY k", 450),
        ("d Date, k UInt8, v UInt8 TTL now()", "ORDER BY k", 36),
        ("d Date, k UInt8, v UInt8 TTL nope + 1", "ORDER BY k", 47),
        ("d Date, k UInt8, v UInt8", "ORDER BY () TTL d GROUP BY () SET v = max(v)", 450),
    ],
)
def test_bad_columns_have_the_codes_of_clickhouse(
    columns: str, clauses: str, code: int, oracle: Any, tmp_path: Path
) -> None:
    _refused(f"CREATE TABLE u ({columns}) ENGINE = MergeTree {clauses}", code, oracle, tmp_path)


def _refused(create: str, code: int, oracle: Any, directory: Path) -> None:
    oracle.query("DROP TABLE IF EXISTS u SYNC")
    with pytest.raises(Exception, match=f"Code: {code}\\."):
        oracle.query(create)
    db = ml.connect(str(directory))
    with pytest.raises(MergelakeError) as failure:
        db.sql(create)
    assert failure.value.code == code, failure.value
    assert not db.sql("SHOW TABLES").rows()


def test_the_definition_is_printed_as_clickhouse_prints_it(oracle: Any, tmp_path: Path) -> None:
    create = (
        "(d DateTime, k UInt8, x Int32 ttl d + interval 1 hour, y String DEFAULT 'q' TTL toDate(d)+1, "
        f"`y z` UInt8 COMMENT 'it' TTL `d`) {ENGINE} "
        "ttl d + interval 1 day delete where k>3 and x = 2, "
        "d + interval 2 hour + interval 1 day, d group by k set x=max(x), `y z`=any(`y z`), "
        "d+1 recompress codec(ZSTD(5)) SETTINGS index_granularity = 8192"
    )
    oracle.query("DROP TABLE IF EXISTS t SYNC")
    oracle.query(f"CREATE TABLE t {create}")
    db = ml.connect(str(tmp_path))
    db.sql(f"CREATE TABLE t {create}")
    assert db.sql("SHOW CREATE TABLE t FORMAT TSVRaw").text() == str(oracle.query("SHOW CREATE TABLE t", "TSVRaw"))
    described = "DESCRIBE TABLE t FORMAT TSV"
    assert db.sql(described).text() == str(oracle.query(described))
