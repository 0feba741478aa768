"""Retention, collection, clones and tags on a directory and on a real S3 server, by Python, SQL and command line."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

import mergelake as ml
from mergelake.api.cli.main import commands
from mergelake.core.base.errors import ConflictError, MergelakeError

CREATE = """CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k SETTINGS gc_grace_seconds = 0,
    history_retention_seconds = 0, checkpoint_interval = 8, min_bytes_for_full_part_storage = {}"""
Connect = Callable[[], ml.Database]


@pytest.fixture(params=["directory", "s3"])
def connect(request: pytest.FixtureRequest, tmp_path) -> Iterator[Connect]:
    if request.param == "directory":
        yield lambda: ml.connect(str(tmp_path))
    else:
        url, options = request.getfixturevalue("s3_url"), request.getfixturevalue("s3_options")
        yield lambda: ml.connect(url, options)


def objects(db: ml.Database, log: bool = False) -> int:
    keys = [meta.key for meta in db.warehouse.store.list("") if not {"_catalog", "_gc"} & set(meta.key.split("/"))]
    return sum(("/_log/" in key) == log for key in keys)


def collect(db: ml.Database, rounds: int = 3) -> int:
    return sum(each.objects for _ in range(rounds) for _, report in db.warehouse.gc() for each in report.deleted)


@pytest.mark.parametrize("packed_below", [0, 1 << 20])
def test_a_table_is_as_large_as_its_newest_version_after_a_while(connect: Connect, packed_below: int) -> None:
    db = connect()
    db.sql(CREATE.format(packed_below))
    for number in range(12):
        db.sql(f"INSERT INTO t SELECT number + {number * 10}, toString(number) FROM numbers(10)")
    table = db.table("t")
    table.tag("twelve")
    table.optimize(final=True)
    one_part = objects(db) // 13
    assert objects(db) == 13 * one_part
    assert collect(db) == 0  # a tag keeps them
    table.untag("twelve")
    assert collect(db) == 12 * one_part
    assert objects(db) == one_part
    assert connect().sql("SELECT count(), sum(k), uniq(s) FROM t").rows() == [(120, 7140, 10)]


def test_a_clone_outlives_its_source_and_everything_goes_in_the_end(connect: Connect) -> None:
    db = connect()
    db.sql(CREATE.format(0))
    db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    db.sql("INSERT INTO t VALUES (3, 'c')")
    db.sql("CREATE TABLE before CLONE AS t AS OF VERSION 2")
    db.table("t").tag("both")
    db.sql("TRUNCATE TABLE t")
    db.sql("CREATE TABLE both CLONE AS t AS OF TAG 'both'")
    assert db.sql("SELECT sum(k) FROM t AS OF TAG 'both'").rows() == [(6,)]
    db.sql("DROP TABLE t")
    collect(db)
    other = connect()
    other.sql("INSERT INTO both VALUES (4, 'd')")
    other.sql("OPTIMIZE TABLE before FINAL")
    assert other.sql("SELECT groupArray(k), groupArray(s) FROM (SELECT * FROM both ORDER BY k)").rows() == [
        ([1, 2, 3, 4], ["a", "b", "c", "d"])
    ]
    assert other.sql("SELECT sum(k) FROM before").rows() == [(3,)]
    other.sql("DROP TABLE before")
    other.sql("DROP TABLE both")
    collect(other, 8)
    assert (objects(other), objects(other, log=True)) == (0, 0)


def test_a_clone_takes_no_clauses_and_no_taken_name(connect: Connect) -> None:
    db = connect()
    db.sql(CREATE.format(0))
    for query, code in (
        ("CREATE TABLE c CLONE AS t ENGINE = MergeTree ORDER BY s", "NOT_IMPLEMENTED"),
        ("CREATE TABLE c CLONE AS t AS OF VERSION 'x'", "SYNTAX_ERROR"),
        ("CREATE TABLE c CLONE AS nothing", "UNKNOWN_TABLE"),
        ("CREATE TABLE c CLONE AS t AS OF VERSION 7", "BAD_ARGUMENTS"),
        ("CREATE TABLE t CLONE AS t", "TABLE_ALREADY_EXISTS"),
    ):
        with pytest.raises(MergelakeError) as refused:
            db.sql(query)
        assert refused.value.name == code
    db.sql("CREATE TABLE IF NOT EXISTS t CLONE AS t")
    assert db.tables() == ["t"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, list(arguments))


def test_the_command_line_says_what_goes_and_why(tmp_path) -> None:
    url = str(tmp_path)
    db = ml.connect(url)
    db.sql(CREATE.format(0).replace("gc_grace_seconds = 0", "gc_grace_seconds = 2"))
    for number in range(3):
        db.sql(f"INSERT INTO t VALUES ({number}, 'x')")
    db.sql("OPTIMIZE TABLE t FINAL")
    time.sleep(2.1)
    before = objects(db)
    shown = run("gc", url, "t", "--dry-run")
    assert "would be noted" in shown.output
    assert "replaced or dropped at version" in shown.output
    assert objects(db) == before
    assert "noted: 27 objects" in run("gc", url).output
    assert "waits for its grace period" in run("gc", url).output
    time.sleep(2.1)
    (report,) = json.loads(run("gc", url, "--format", "json").output)
    assert (report["table"], len(report["deleted"]), report["noted"]) == ("default.t", 3, [])
    assert "nothing to collect" in run("gc", url).output


def test_tags_rollbacks_and_clones_from_the_command_line(tmp_path) -> None:
    url = str(tmp_path)
    db = ml.connect(url)
    db.sql(CREATE.format(0))
    db.sql("INSERT INTO t VALUES (1, 'x')")
    assert json.loads(run("tag", url, "t", "one", "--format", "json").output) == {"tag": "one", "version": 2}
    db.sql("INSERT INTO t VALUES (2, 'y')")
    assert json.loads(run("tag", url, "t", "--format", "json").output) == [{"tag": "one", "version": 2}]
    done = json.loads(run("rollback", url, "t", "--version", "one", "--format", "json").output)
    assert (done["rows before"], done["rows after"]) == (2, 1)
    made = json.loads(run("clone", url, "t", "c", "--version", "4", "--format", "json").output)
    assert made == {"table": "default.c", "rows": 2, "parts": 2}
    assert run("tag", url, "t", "one", "--delete").exit_code == 0
    assert "There are no tags." in run("tag", url, "t").output
    assert isinstance(run("rollback", url, "t").exception, MergelakeError)
    assert isinstance(run("rollback", url, "t", "--version", "one").exception, MergelakeError)


def test_writers_mergers_and_impatient_collectors_race_and_no_acknowledged_row_is_lost() -> None:
    """Without any grace period collectors and writers meet all the time; only the fence stands between them."""
    url = f"memory://{uuid.uuid4().hex}"
    ml.connect(url).sql(CREATE.format(1 << 20))
    warm = ml.connect(url).table("t")
    acknowledged, refused, deleted, failed = {1, 2, 3}, [0], [0], list[BaseException]()
    for row in acknowledged:
        warm.append({"k": [row], "s": [str(row)]})
    warm.optimize(final=True)
    stop = threading.Event()

    def work(act: Callable[[ml.Table, int], None]) -> None:
        table, number = ml.connect(url).table("t"), 0
        while not stop.is_set():
            number += 1
            try:
                act(table, number)
            except ConflictError:
                refused[0] += 1
            except BaseException as failure:
                failed.append(failure)
                raise

    def insert(writer: int) -> Callable[[ml.Table, int], None]:
        def act(table: ml.Table, number: int) -> None:
            row = writer * 1_000_000 + number
            table.append({"k": [row], "s": [str(row)]})
            acknowledged.add(row)

        return act

    def merge(table: ml.Table, number: int) -> None:
        table.optimize(final=number % 5 == 0)

    def collect_all(table: ml.Table, number: int) -> None:
        deleted[0] += len(table.gc().deleted)
        time.sleep(0.02)

    acts = [insert(1), insert(2), insert(3), merge, collect_all, collect_all]
    threads = [threading.Thread(target=work, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    time.sleep(5)
    until_s = time.monotonic() + 240  # a machine that does other work takes longer until each has met the others
    while not (failed or (len(acknowledged) > 3 and deleted[0] and refused[0])) and time.monotonic() < until_s:
        time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    table = ml.connect(url).table("t")
    assert set(table.scan(["k"]).arrow()["k"].to_pylist()) == acknowledged
    assert table.snapshot().rows == len(acknowledged)
    assert all(table.check()["is_passed"].to_pylist())
    assert (len(acknowledged) > 3, deleted[0] > 0, refused[0] > 0) == (True, True, True)
