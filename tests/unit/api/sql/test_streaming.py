"""Results of `Database.sql` larger than what is read ahead: piece by piece, closed early, failed, cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.query import answer, in_place
from mergelake.query.attach import attached
from mergelake.query.attach.attached import AttachedSets
from mergelake.query.embedded import streamed
from tests.helpers.attached import attach_at_once
from tests.unit.query.test_piping import settle

pytestmark = pytest.mark.chdb
ENDLESS = "SELECT number FROM numbers(1000000000000)"
ROWS = 3_000_000
TYPES = """
    number AS a, toDateTime('2026-01-01 00:00:00') + number AS b, toLowCardinality(toString(number % 99)) AS c,
    [number, 1] AS d, if(number % 3 = 0, NULL, number) AS e, reinterpretAsUUID(number) AS f,
    CAST(number % 2, 'Enum8(''x'' = 0, ''y'' = 1)') AS g,
    toDecimal64(number, 3) AS h, map('k', number) AS i, (number, toString(number)) AS j,
    toDateTime64(number, 3) AS k, toIPv4(toUInt32(number)) AS l, toDate(number % 50000) AS m, toBool(number % 2) AS n
"""


@pytest.fixture
def db() -> ml.Database:
    return ml.connect("memory://")


@pytest.fixture
def table(db: ml.Database) -> ml.Database:
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    db.sql(f"INSERT INTO t SELECT number, repeat('x', number % 20) FROM numbers({ROWS})")
    return db


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ml.Database:
    """The same table where ClickHouse reads it itself."""
    attach_at_once(monkeypatch)
    db = ml.connect(str(tmp_path / "lake"))
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    db.sql(f"INSERT INTO t SELECT number, repeat('x', number % 20) FROM numbers({ROWS})")
    return db


def rows(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def test_batches_are_what_arrow_is(db: ml.Database) -> None:
    sql = f"SELECT {TYPES} FROM numbers(400000)"
    one = {"max_threads": 1}
    result, whole = db.sql(sql, one), db.sql(sql, one)
    assert "and more" in repr(result)
    assert result.columns == whole.columns
    assert (result.types, result.schema) == (whole.types, whole.schema)
    batches = list(result.batches())
    assert len(batches) > 3
    assert pa.Table.from_batches(batches, result.schema).equals(whole.arrow())
    assert whole.arrow().schema == db.sql(f"SELECT {TYPES} FROM numbers(1)").schema
    assert len(result) == len(whole) == 400_000
    settle()


def test_of_a_large_result_no_more_is_read_than_is_asked_for(
    table: ml.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "HELD_BYTES", 1 << 20)
    monkeypatch.setattr(streamed, "AHEAD_BYTES", 1 << 20)
    monkeypatch.setattr("mergelake.scan.read.pieces.PIECE_BYTES", 1 << 20)
    result = table.sql("SELECT * FROM t")
    time.sleep(0.2)
    first = result.stats.rows_read
    assert 0 < first < ROWS / 3
    batches = result.batches()
    taken = 0
    while taken < ROWS / 4:
        taken += next(batches).num_rows
    time.sleep(0.2)
    assert first < result.stats.rows_read < ROWS * 3 / 4
    assert taken + rows(batches) == ROWS
    assert result.stats.rows_read == ROWS


def test_rows_are_given_once_or_kept(db: ml.Database) -> None:
    for number in (3, 5_000_000):
        given = db.sql(f"SELECT number FROM numbers({number})")
        assert rows(given.batches()) == len(given) == number
        for again in (given.arrow, given.batches, given.rows, given.reader):
            with pytest.raises(MergelakeError, match="arrow\\(\\) keeps it"):
                again()
        kept = db.sql(f"SELECT number FROM numbers({number})")
        assert kept.arrow().num_rows == number
        assert rows(kept.batches()) == rows(kept.batches()) == len(kept) == number


def test_the_first_rows_are_shown_without_the_others(db: ml.Database) -> None:
    with db.sql(ENDLESS) as result:
        assert result
        assert result.scalar() == 0
        assert result.drawn(2).endswith("│      1 │\n└────────┘\n2 rows, and more")
        assert "and more rows" in result._repr_html_()
        batches = result.batches()
        assert next(batches).column(0)[0].as_py() == 0  # none was given away
    settle()
    with db.sql(ENDLESS) as closed:
        pass
    with pytest.raises(MergelakeError, match="closed before its last row"):
        closed.arrow()


def test_a_reader_is_read_by_others_and_closed_early(db: ml.Database) -> None:
    polars = pytest.importorskip("polars")
    sql = "SELECT number AS n, toString(number) AS s FROM numbers(2000000)"
    assert polars.DataFrame(db.sql(sql)).height == pa.table(db.sql(sql)).num_rows == 2_000_000
    reader = db.sql(ENDLESS).reader()
    reader.read_next_batch()
    del reader
    settle()


def test_leaving_a_loop_early_ends_the_statement_and_its_scans(table: ml.Database) -> None:
    for _ in range(5):
        for batch in table.sql("SELECT * FROM t, numbers(1000) AS n").batches():
            assert batch.num_rows
            break
        assert table.sql("SELECT count() FROM t").scalar() == ROWS
    settle()
    table.sql(ENDLESS)  # nobody has it
    settle()
    assert not table._under_way


@pytest.mark.parametrize("where", ["table", "lake"])
def test_both_ways_of_reading_fail_and_end_midway(where: str, request: pytest.FixtureRequest) -> None:
    db: ml.Database = request.getfixturevalue(where)
    result = db.sql(f"SELECT *, throwIf(k = {ROWS - 1}) FROM t ORDER BY k SETTINGS max_threads = 1")
    assert (result.stats.reason == in_place.READS_ITSELF) == (where == "lake")
    for _ in range(2):
        with pytest.raises(MergelakeError) as caught:
            result.arrow()
        assert (caught.value.code, caught.value.name) == (395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO")
    result = db.sql("SELECT * FROM t")
    db.cancel()
    with pytest.raises(MergelakeError, match="QUERY_WAS_CANCELLED"):
        rows(result.batches())
    assert rows(db.sql("SELECT * FROM t").batches()) == ROWS
    assert not db._under_way
    settle()


def test_damage_behind_the_first_rows_is_told_with_the_object(
    lake: ml.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "AHEAD_BYTES", 1 << 16)
    lake.sql(
        "CREATE TABLE d (k UInt64, s String) ENGINE = MergeTree ORDER BY k SETTINGS min_bytes_for_full_part_storage = 0"
    )
    lake.sql(f"INSERT INTO d SELECT number, randomPrintableASCII(30) FROM numbers({ROWS // 3})")
    lake.sql("SELECT sum(k), max(s) FROM d")
    attached.SETS.settle()
    result = lake.sql("SELECT * FROM d SETTINGS max_threads = 1, max_block_size = 8192")
    assert result.stats.reason == in_place.READS_ITSELF
    given = result.batches()
    next(given)
    data = max(Path(lake.warehouse.url).rglob("s.bin"), key=lambda path: path.stat().st_size)
    with data.open("r+b") as file:
        file.seek(-2000, os.SEEK_END)
        file.write(bytes(1000))
    with pytest.raises(MergelakeError) as caught:
        rows(given)
    assert data.parent.name in str(caught.value)
    assert caught.value.name in ("CORRUPTED_DATA", "CHECKSUM_DOESNT_MATCH")
    assert lake.sql("SELECT count() FROM t").scalar() == ROWS
    settle()


def test_ctrl_c_ends_a_loop_over_batches(db: ml.Database) -> None:
    result = db.sql("SELECT number FROM numbers(1000000000000) WHERE number < 4000000 OR sipHash64(number) = 1")
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        rows(result.batches())
    settle()
    assert db.sql("SELECT 1").scalar() == 1


def test_errors_of_a_first_statement_come_though_nobody_reads_it(db: ml.Database) -> None:
    with pytest.raises(MergelakeError, match="FUNCTION_THROW_IF"):
        db.sql("SELECT throwIf(number = 29999999) FROM numbers(30000000); SELECT 1")
    with pytest.raises(MergelakeError, match="FUNCTION_THROW_IF"):
        db.sql("SELECT throwIf(number = 29999999) FROM numbers(30000000) FORMAT TSV; SELECT 1")


def test_streams_and_other_statements_run_side_by_side(table: ml.Database) -> None:
    one, two = (table.sql("SELECT * FROM t").batches() for _ in range(2))
    counts = [0, 0]
    for place, batches in [(0, one), (1, two)] * 3:
        counts[place] += next(batches).num_rows
        assert table.sql("SELECT count() FROM t").scalar() == ROWS
    assert counts[0] + rows(one) == counts[1] + rows(two) == ROWS
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: rows(table.sql("SELECT * FROM t").batches()), range(6))) == {ROWS}


def test_a_stream_reads_its_version_while_the_table_changes(lake: ml.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = AttachedSets(sets_max=1)
    monkeypatch.setattr(attached, "SETS", sets)
    result = lake.sql("SELECT * FROM t")
    assert result.stats.reason == in_place.READS_ITSELF
    tables = [held.name for held in sets._held.values()]
    lake.sql("INSERT INTO t VALUES (1, 'new')")
    lake.sql("OPTIMIZE TABLE t FINAL")
    assert lake.sql("SELECT count() FROM t WHERE s = 'new'").scalar() == 1  # a set beside the one in use
    lake.sql("TRUNCATE TABLE t")
    assert len(sets) == 1
    assert rows(result.batches()) == ROWS
    lake.sql("INSERT INTO t VALUES (2, 'newer')")
    assert lake.sql("SELECT sum(k) FROM t").stats.reason == in_place.READS_ITSELF
    assert [held for held in sets._held.values() if held.name in tables] == []
    lake.sql("TRUNCATE TABLE t")
    assert lake.sql("SELECT count() FROM t").scalar() == 0


@pytest.mark.parametrize("form", ["CSVWithNames", "JSONEachRow", "Native", "Parquet"])
def test_a_format_comes_in_chunks(db: ml.Database, form: str) -> None:
    sql = f"SELECT number, repeat('x', number % 20) FROM numbers({ROWS})"
    one = {"max_threads": 1}  # several cut blocks now here, now there
    asked, given = db.sql(f"{sql} FORMAT {form}", one), db.sql(sql, one, format=form)
    pieces = list(given.chunks())
    assert b"".join(pieces) == asked.formatted == asked.encoded("CSV")
    assert form == "Parquet" or len(pieces) > 5
    assert len(asked) == len(given) == ROWS
    with pytest.raises(MergelakeError, match="arrow\\(\\) keeps it"):
        given.chunks()


def test_the_format_of_a_call_is_for_statements_without_one(db: ml.Database) -> None:
    assert db.sql("SELECT 1 AS a; SELECT 2 AS a", format="JSONEachRow").formatted == b'{"a":2}\n'
    assert db.sql("SELECT 1 AS a FORMAT CSV", format="JSONEachRow").formatted == b"1\n"
    assert db.sql("SHOW DATABASES", format="TSV").formatted == b"default\n"
    assert db.sql("SHOW DATABASES FORMAT CSV", format="TSV").formatted == b'"default"\n'
    assert list(db.sql("SELECT 1").chunks()) == []
    with pytest.raises(MergelakeError, match="UNKNOWN_FORMAT"):
        db.sql("SELECT 1", format="Nosuch")


def test_a_file_is_written_as_it_comes(tmp_path: Path) -> None:
    db = ml.connect("memory://", allow_external_access=True)
    for tail, read in ((" FORMAT Parquet", "Parquet"), ("", "TabSeparated")):
        path = tmp_path / f"out{read}"
        assert db.sql(f"SELECT number FROM numbers(10) INTO OUTFILE '{path}'{tail}").formatted == b""
        assert db.sql(f"SELECT count() FROM file('{path}', {read}, 'number UInt64')").scalar() == 10


PROGRAM = """
import sys, threading, time
import mergelake as ml
db = ml.connect("memory://x")
result = db.sql("SELECT number FROM numbers(1000000000000)")
if sys.argv[1] == "read":
    threading.Thread(target=lambda: [0 for _ in result.batches()], daemon=True).start()
    time.sleep(0.3)
print("end")
"""


@pytest.mark.parametrize("how", ["open", "read"])
def test_a_process_ends_with_an_open_result(how: str) -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, timeout=30, check=True)
    assert (found.stdout, found.stderr) == (b"end\n", b"")
