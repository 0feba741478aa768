"""A SELECT in a far store reads what is known while it asks for news: one round fewer, and never an older answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import mergelake as ml
from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql import database
from mergelake.api.sql.optimistic import read_beside
from mergelake.core.base.cancel import CancelToken, check, running
from mergelake.core.base.errors import MergelakeError
from tests.helpers.far_store import FarStore

COUNT = "SELECT count(), sum(k), max(s) FROM t WHERE k >= 0"


@pytest.fixture
def store() -> FarStore:
    store = FarStore()
    db = opened(store)
    db.sql("CREATE TABLE t (k Int64, s String) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t SELECT number, toString(number) FROM numbers(1000)")
    return store


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each statement that read beside its question whether the answer counted."""
    said: list[bool] = []

    def noted(read: Callable[[], object], ask: Callable[[], bool], discard: Callable[[object], None]) -> object:
        found = read_beside(read, ask, discard)
        said.append(found is not None)
        return found

    monkeypatch.setattr(database, "read_beside", noted)
    return said


def opened(store: FarStore) -> ml.Database:
    return ml.Database(Warehouse(store, threads=1))


def test_news_and_data_are_asked_for_at_once(store: FarStore, beside: list[bool]) -> None:
    db = opened(store)
    for _ in range(2):
        expected = db.sql(COUNT).rows()
    store.start()
    store.gated = True
    assert db.sql(COUNT).rows() == expected
    store.gated = False
    assert (store.rounds, beside[-1]) == (1, True)
    assert not store.repeated()


def test_what_others_have_changed_meanwhile_is_seen(store: FarStore, beside: list[bool]) -> None:
    reader, writer = opened(store), opened(store)
    for number in range(3):
        reader.sql(COUNT)
        writer.sql(f"INSERT INTO t VALUES ({-1 - number}, 'x'), ({2000 + number}, 'y')")
        assert reader.sql(COUNT).rows()[0][0] == 1001 + number
    assert beside == [False] * 3  # the statement after each asks first
    reader.sql(COUNT)
    reader.sql(COUNT)
    assert beside[-1] is True


@pytest.mark.parametrize("name", ["v", "m", "merge('default', '^t$')"])
def test_views_and_unions_are_read_beside_their_news(store: FarStore, beside: list[bool], name: str) -> None:
    reader, writer = opened(store), opened(store)
    writer.sql("CREATE VIEW v AS SELECT k FROM t WHERE k < 500")
    writer.sql("CREATE TABLE m ENGINE = Merge('default', '^t$')")
    count = f"SELECT count() FROM {name} WHERE k >= 0"
    for _ in range(2):
        rows = reader.sql(count).scalar()
    store.start()
    store.gated = True
    assert reader.sql(count).scalar() == rows
    store.gated = False
    assert (store.rounds, beside[-1]) == (1, True)
    writer.sql("CREATE OR REPLACE VIEW v AS SELECT k FROM t WHERE k < 300")
    writer.sql("CREATE OR REPLACE TABLE m (k Int64) ENGINE = Merge('default', '^none$')")
    assert reader.sql(count).scalar() == {"v": 300, "m": 0}.get(name, rows)
    assert beside[-1] is False
    writer.sql("INSERT INTO t VALUES (1, 'x')")
    assert reader.sql(count).scalar() == {"v": 301, "m": 0}.get(name, rows + 1)


def test_a_table_that_changes_is_asked_for_first(store: FarStore, beside: list[bool]) -> None:
    reader, writer = opened(store), opened(store)
    reader.sql(COUNT)
    for _ in range(4):
        writer.sql("INSERT INTO t VALUES (1, 'x')")
        reader.sql(COUNT)
    assert beside == [False]


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE t; CREATE TABLE t (k Int64, s String, n UInt8) ENGINE = MergeTree ORDER BY k",
        "RENAME TABLE t TO u; RENAME TABLE other TO t",
        "EXCHANGE TABLES t AND other",
    ],
)
def test_names_that_mean_others_now(store: FarStore, beside: list[bool], change: str) -> None:
    reader, writer = opened(store), opened(store)
    writer.sql("CREATE TABLE other (k Int64, s String, n UInt8) ENGINE = MergeTree ORDER BY k")
    reader.sql(COUNT)
    reader.sql("SELECT count() FROM other")
    writer.sql(change)
    assert reader.sql("SELECT count(n) FROM t").rows() == [(0,)]  # by what was known: UNKNOWN_IDENTIFIER


def test_an_error_counts_where_nothing_was_new(store: FarStore, beside: list[bool]) -> None:
    reader = opened(store)
    reader.sql(COUNT)
    for sql in ("SELECT nothing FROM t", "SELECT throwIf(k = 999) FROM t"):
        with pytest.raises(MergelakeError):
            reader.sql(sql)
    assert reader.sql("DROP TABLE t").rows() == []
    with pytest.raises(MergelakeError, match="UNKNOWN_TABLE"):
        reader.sql(COUNT)


def test_a_file_is_written_once(store: FarStore, beside: list[bool], tmp_path) -> None:
    db = ml.Database(Warehouse(store, threads=1), allow_external_access=True)
    db.sql(COUNT)
    db.sql(f"SELECT * FROM t INTO OUTFILE '{tmp_path}/rows.csv'")
    assert beside == []
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1000


def test_without_news_nothing_is_asked_beside(store: FarStore, beside: list[bool]) -> None:
    db = opened(store)
    db.sql(COUNT)
    db.sql(COUNT, settings={"read_consistency": "cached"})
    db.sql(COUNT, settings={"max_staleness_ms": 60_000})
    db.sql("SELECT count() FROM system.tables")
    assert beside == []


def test_no_answer_is_older_than_what_was_acknowledged(store: FarStore) -> None:
    """A writer and two readers: each read begins after an insert was acknowledged, and has to see it."""
    acknowledged, stop = [1000], threading.Event()
    failed: list[tuple[int, int]] = []

    def write() -> None:
        db = opened(store)
        for number in range(25):
            db.sql(f"INSERT INTO t VALUES ({number}, 'w')")
            acknowledged[0] += 1
            time.sleep(0.03 * (number % 3))
        stop.set()

    def read() -> None:
        db = opened(store)
        while not stop.is_set():
            least = acknowledged[0]
            found = db.sql(COUNT).rows()[0][0]
            if found < least:
                failed.append((least, found))

    threads = [threading.Thread(target=work) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


# Of the two halves alone.


def slowly(value: object, seconds: float = 2.0) -> Callable[[], object]:
    def work() -> object:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            check()
            time.sleep(0.005)
        return value

    return work


@pytest.fixture
def statement() -> Iterator[CancelToken]:
    cancel = CancelToken()
    with running(cancel):
        yield cancel


def test_news_end_the_reading(statement: CancelToken) -> None:
    began = time.monotonic()
    assert read_beside(slowly(1, 30), lambda: False, lambda _: None) is None
    assert time.monotonic() - began < 10
    statement.check()


def test_an_answer_is_thrown_away_where_there_is_news() -> None:
    thrown: list[int] = []
    assert read_beside(lambda: 7, lambda: bool(slowly(0, 0.05)()), thrown.append) is None
    assert thrown == [7]


def test_cancelling_the_statement_ends_both(statement: CancelToken) -> None:
    threading.Timer(0.05, statement.set).start()
    with pytest.raises(MergelakeError, match="QUERY_WAS_CANCELLED"):
        read_beside(slowly(1, 30), slowly(True, 30), lambda _: None)  # type: ignore[arg-type]


def test_an_error_of_the_question_is_raised() -> None:
    def ask() -> bool:
        raise ml.MergelakeError("gone", name="UNKNOWN_TABLE")

    thrown: list[int] = []
    with pytest.raises(MergelakeError, match="gone"):
        read_beside(lambda: 7, ask, thrown.append)
    assert thrown == [7]
