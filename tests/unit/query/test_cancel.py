"""A statement that has given nothing yet is ended: from another thread, by Ctrl-C in Python; the next one runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import mergelake as ml
from mergelake.core.base.cancel import CancelToken, check, running
from mergelake.core.base.errors import MergelakeError
from mergelake.query.embedded import engine
from mergelake.query.embedded.piping import begin

pytestmark = pytest.mark.chdb
ENDLESS = [
    "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)",
    "SELECT count() FROM numbers(1000000) AS a, numbers(1000000) AS b WHERE sipHash64(a.number, b.number) = 1",
    "SELECT number FROM numbers(1000000000000) WHERE sipHash64(number) = 1 FORMAT CSV",
    "SELECT count() FROM t AS a CROSS JOIN numbers(1000000000) AS b WHERE sipHash64(a.a, b.number) = 1",
    "INSERT INTO t SELECT number FROM numbers(1000000000000)",
]


@pytest.fixture
def db() -> ml.Database:
    found = ml.connect("memory://")
    found.sql("CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")
    found.sql("INSERT INTO t SELECT number FROM numbers(1000)")
    return found


def settle() -> None:
    """Wait until ClickHouse computes nothing."""
    deadline = time.monotonic() + 5
    while engine.run("SELECT count() FROM system.processes").table().column(0)[0].as_py() > 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("sql", ENDLESS)
def test_another_thread_ends_a_statement_that_has_given_nothing_yet(db: ml.Database, sql: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(db.sql, sql)
        with pytest.raises(TimeoutError):
            found.result(0.3)
        db.cancel()
        with pytest.raises(MergelakeError) as caught:
            found.result(5)
        assert (caught.value.code, caught.value.name) == (394, "QUERY_WAS_CANCELLED")
        assert pool.submit(db.sql, "SELECT count() FROM t").result(5).scalar() == 1000
    settle()


@pytest.mark.parametrize("sql", ENDLESS)
def test_ctrl_c_ends_a_statement_that_has_given_nothing_yet(db: ml.Database, sql: str) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        db.sql(sql)
    timer.join()
    settle()
    assert db.sql("SELECT count() FROM t").scalar() == 1000


def test_ctrl_c_is_heard_where_a_library_restarts_what_it_interrupts(db: ml.Database) -> None:
    signal.siginterrupt(signal.SIGINT, False)  # as polars does
    try:
        test_ctrl_c_ends_a_statement_that_has_given_nothing_yet(db, ENDLESS[0])
    finally:
        signal.siginterrupt(signal.SIGINT, True)


def test_only_statements_of_this_connection_are_cancelled(db: ml.Database) -> None:
    other = ml.connect("memory://")
    with ThreadPoolExecutor(2) as pool:
        mine = pool.submit(db.sql, ENDLESS[0])
        theirs = pool.submit(other.sql, "SELECT sum(sipHash64(number)) > 0 FROM numbers(60000000)")
        with pytest.raises(TimeoutError):
            mine.result(0.1)
        db.cancel()
        with pytest.raises(MergelakeError):
            mine.result(5)
        assert theirs.result(60).scalar() == 1


def test_cancelling_nothing_harms_nothing(db: ml.Database) -> None:
    db.cancel()
    assert db.sql("SELECT 1").scalar() == 1


def test_statements_that_end_as_they_are_cancelled_leave_the_next_alone(db: ml.Database) -> None:
    """A KILL that comes late must not meet the statement that the thread runs next."""
    stop = threading.Event()

    def cancels() -> Iterator[None]:
        while not stop.wait(0.002):
            yield db.cancel()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: list(cancels()))
        for _ in range(100):
            with suppress(MergelakeError):
                db.sql("SELECT sum(number) FROM numbers(100000)")
            assert engine.run("SELECT 1").table().num_rows == 1  # of no statement: never cancelled
        stop.set()


def _cancelled(call: Callable[[], object]) -> bool:
    cancel = CancelToken()
    cancel.set()
    with running(cancel):
        try:
            call()
        except MergelakeError as failure:
            return failure.name == "QUERY_WAS_CANCELLED"
    return False


def test_scans_merges_and_inserts_ask_whether_to_end(db: ml.Database) -> None:
    db.sql("INSERT INTO t SELECT number FROM numbers(1000)")
    table = db.table("t")
    assert _cancelled(check)
    assert _cancelled(lambda: db.table("t").optimize(final=True))
    assert _cancelled(lambda: table.insert({"a": [1]}))
    assert db.sql("SELECT count() FROM t").scalar() == 2000
    assert db.table("t").parts().num_rows == 2


def test_what_is_stopped_late_is_stopped_at_once() -> None:
    cancel, heard = CancelToken(), []
    cancel.set()
    with cancel.stopping(lambda: heard.append(1)):
        assert heard == [1]
    cancel.set()
    assert heard == [1]


def test_a_statement_that_is_killed_early_has_no_empty_result() -> None:
    def described(wait_s: float) -> int | None:
        cancel = CancelToken()
        timer = threading.Timer(wait_s, cancel.set)
        timer.start()
        with suppress(MergelakeError), running(cancel):
            return engine.run("DESCRIBE TABLE (SELECT 1 AS a, (2, 3) AS b FROM numbers(10))").table().num_rows
        timer.join()
        return None

    with ThreadPoolExecutor(1) as pool:
        found = set(pool.map(described, [i % 25 / 10_000 for i in range(500)]))
    assert found <= {2, None}


def test_a_stream_that_is_closed_early_ends_itself_and_not_the_statement_it_serves() -> None:
    statement = CancelToken()
    with running(statement):
        stream = begin("SELECT number FROM numbers(1000000000000)")
        stream.close()
        assert not statement.flag.is_set()
        assert engine.run("SELECT 1 AS x").table()["x"].to_pylist() == [1]
    settle()
