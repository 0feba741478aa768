"""Two releases beside each other on one warehouse: an older one, and today's, each in processes of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.release_driver import ROWS, batch, versions
from tests.helpers.releases import COMMITS, TODAY, Driver, Release, drivers, node, release, until

Row = tuple[int, int, int, str]
CREATE = """CREATE TABLE t (p UInt8, k UInt64, v UInt64, s String) ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS
    index_granularity = 64, checkpoint_interval = 16, merge_upload_policy = 'volatile', merge_selector_base = 2,
    volatile_upload_age_seconds = 2, write_amplification_target = 20"""
CREATE_VERSIONS = """CREATE TABLE r (k UInt64, v UInt64) ENGINE = ReplacingMergeTree(v) ORDER BY k SETTINGS
    checkpoint_interval = 16, merge_selector_base = 2, history_retention_seconds = 0, gc_grace_seconds = 60"""
BATCHES = 12
"""Batches of a writer in one phase."""


@pytest.fixture(params=COMMITS, ids=lambda commit: commit[:8], scope="module")
def old(request: pytest.FixtureRequest) -> Release:
    """An older release."""
    return release(request.param)


@pytest.fixture(scope="module")
def pair(old: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    """Two processes of the older release, and two of today's."""
    with drivers([old, TODAY, old, TODAY], tmp_path_factory.mktemp("drivers")) as held:
        first, second = (driver.ask("who") for driver in held[:2])
        assert first["mergelake"] != second["mergelake"]
        assert first["mergelake"].startswith(str(Path(old.python).parents[1]))
        yield held


@dataclass
class Place:
    """A warehouse, and how commands reach it."""

    url: str
    options: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    log: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Arguments of a driver's command."""
        return {"url": self.url, "options": self.options, "log": self.log}

    @property
    def flags(self) -> list[str]:
        """Arguments of the command `mergelake`."""
        return ["-o", f"log={self.log}"] if self.log else []


PLACES = [
    "directory",
    pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.slow]),
    pytest.param("zookeeper", marks=[pytest.mark.zookeeper, pytest.mark.slow]),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A warehouse in a directory, in a bucket, or with its logs in ZooKeeper."""
    if request.param == "directory":
        return Place(str(tmp_path / "w"))
    if request.param == "zookeeper":
        hosts = request.getfixturevalue("zookeeper")["ZOOKEEPER_HOSTS"]
        return Place(str(tmp_path / "w"), log=f"zookeeper://{hosts}/{tmp_path.name}")
    given = request.getfixturevalue
    return Place(given("s3_url"), given("s3_options"), given("s3_server"))


def rows_of(numbers: dict[int, range]) -> list[Row]:
    """The rows of these batches of writers."""
    return [row for slot, batches in numbers.items() for number in batches for row in batch(slot, number)]


def both(pair: list[Driver], sql: str, place: Place, **more: Any) -> list[list[Any]]:
    """The answer to a query, which both releases give alike."""
    first, second = (driver.ask("about", sql=sql, **place.given, **more) for driver in pair[:2])
    assert first == second, sql
    return first


QUERIES = (
    "SELECT count(), sum(v), uniqExact(s) FROM t WHERE p = 1 AND k < 2000030",
    "SELECT p, count(), max(s) FROM t GROUP BY p ORDER BY p",
    "SELECT a.p, count() FROM t AS a JOIN r AS b ON a.k % 10 = b.k GROUP BY a.p ORDER BY a.p",
    "SHOW CREATE TABLE t",
)
WHEN_QUIET = (
    "SELECT name, rows, level, bytes_on_disk FROM system.parts WHERE table = 't' AND active ORDER BY name",
    "SELECT table, command, is_done FROM system.mutations ORDER BY mutation_id",
)
"""What both see alike while nobody merges."""


def check(pair: list[Driver], place: Place, expected: list[tuple[Any, ...]], versioned: dict[int, range]) -> None:
    """Every row exactly once in both releases, the newest version of each key, equal answers, and a clean fsck."""
    found = both(pair, "SELECT p, k, v, s, c FROM t ORDER BY k", place)
    assert Counter(map(tuple, found)) == Counter(expected)
    newest: dict[int, int] = {}
    for slot, batches in versioned.items():
        for key, version in (row for number in batches for row in versions(slot, number)):
            newest[key] = max(version, newest.get(key, 0))
    assert both(pair, "SELECT k, v FROM r FINAL ORDER BY k", place) == [[k, v] for k, v in sorted(newest.items())]
    last = pair[0].ask("refresh", table="t", **place.given)
    for version in (2, last // 2, last):
        both(pair, f"SELECT count(), sum(v), min(k) FROM t AS OF VERSION {version}", place)
    for sql in QUERIES:
        both(pair, sql, place)
    for driver in pair[:2]:
        clean(driver, place)


def clean(driver: Driver, place: Place) -> None:
    """A clean fsck."""
    assert {name: wrong for name, wrong in driver.ask("fsck", **place.given).items() if wrong} == {}


def test_writers_readers_nodes_and_collectors_of_both_releases_share_a_warehouse(
    pair: list[Driver], old: Release, place: Place, tmp_path: Path
) -> None:
    first, second, beside_first, beside_second = pair
    for sql in (CREATE, CREATE_VERSIONS, "CREATE TABLE u AS t"):
        first.ask("about", sql=sql, **place.given)
    with ExitStack() as stack:
        for of, name in ((old, "n-old"), (TODAY, "n-new")):
            stack.enter_context(node(of, place.url, name, tmp_path / "disk", *place.flags, env=place.env))
        written = {1: range(BATCHES), 2: range(BATCHES)}
        for slot, driver in ((1, first), (2, second)):
            driver.send("write", slot=slot, first=0, count=BATCHES, **place.given)
        for driver in (beside_first, beside_second):
            driver.send("look", rounds=6, **place.given)
        for driver in (first, second):
            done = driver.result()
            assert done["done"] == [*range(BATCHES)]
            assert all(done["repeated"])
        for driver in (beside_first, beside_second):
            assert all(count == different and count % ROWS == 0 for count, different in driver.result())
        found = both(pair, "SELECT p, k, v, s FROM t ORDER BY k", place, settings={"read_volatile": "peers"})
        assert Counter(map(tuple, found)) == Counter(rows_of(written))

        # Each changes and deletes rows of both writers while the other inserts.
        changes = (
            "ALTER TABLE t UPDATE v = v + 1000000000 WHERE k % 100 < 30 AND k < 3000000",
            "ALTER TABLE t DELETE WHERE k % 7 = 0 AND k < 3000000",
            "ALTER TABLE t UPDATE v = v * 2 WHERE k % 5 = 1 AND k < 3000000",
        )
        more = {3: range(BATCHES), 4: range(BATCHES)}
        for slot, driver in ((3, first), (4, second)):
            driver.send("write", slot=slot, first=0, count=BATCHES, **place.given)
        beside_second.ask("about", sql=changes[0], **place.given)
        beside_first.ask("about", sql=changes[1], **place.given)
        beside_second.ask("about", sql="ALTER TABLE t ADD COLUMN c UInt32 DEFAULT 7 + p", **place.given)
        beside_first.ask("about", sql=changes[2], **place.given)
        for driver in (beside_first, beside_second):
            driver.send("look", rounds=4, **place.given)
        for driver in (first, second, beside_first, beside_second):
            driver.result()
        expected = [after for row in rows_of(written) for after in changed(row)] + rows_of(more)

        # A partition goes to another table by one, and back by the other; both see it in one of them, never in two.
        total = [[len(expected)]]
        count = "SELECT sum(n) FROM (SELECT count() AS n FROM t UNION ALL SELECT count() AS n FROM u)"
        for mover, reader, sql in (
            (first, second, "ALTER TABLE u ADD COLUMN c UInt32 DEFAULT 7 + p"),
            (first, second, "ALTER TABLE t MOVE PARTITION 1 TO TABLE u"),
            (second, first, "ALTER TABLE t MOVE PARTITION 2 TO TABLE u"),
            (second, first, "ALTER TABLE u MOVE PARTITION 1 TO TABLE t"),
            (first, second, "ALTER TABLE u MOVE PARTITION 2 TO TABLE t"),
        ):
            mover.send("about", sql=sql, **place.given)
            assert reader.ask("about", sql=count, **place.given) == total
            mover.result()
            assert reader.ask("about", sql=count, **place.given) == total
        rows = [(*row, 7 + row[0]) for row in expected]
        check(pair, place, rows, {**written, **more})
    # The nodes have left: what was on their disks is in the store, or is merged again by whoever looks next.
    for driver in (first, second):
        driver.ask("apply_mutations", table="t", **place.given)
        driver.ask("about", sql="OPTIMIZE TABLE t FINAL", **place.given)
    check(pair, place, rows, {**written, **more})
    for sql in WHEN_QUIET:
        both(pair, sql, place)


def changed(row: Row) -> Iterator[Row]:
    """What the three changes leave of a row that was there before."""
    p, k, v, s = row
    v = v + 1_000_000_000 if k % 100 < 30 else v
    if k % 7:
        yield p, k, v * 2 if k % 5 == 1 else v, s


QUIET = """CREATE TABLE t (p UInt8, k UInt64, v UInt64, s String) ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS
    index_granularity = 64, checkpoint_interval = 4, min_bytes_for_wide_part = 0"""


def order(pair: list[Driver], today_first: bool) -> tuple[Driver, Driver]:
    """The two releases, in one order or the other."""
    return (pair[1], pair[0]) if today_first else (pair[0], pair[1])


def filled(driver: Driver, place: Place, settings: str = "", count: int = 4) -> list[Row]:
    """A table with some batches; its rows."""
    driver.ask("about", sql=QUIET + settings, **place.given)
    driver.ask("about", sql=CREATE_VERSIONS, **place.given)
    driver.ask("write", slot=1, first=0, count=count, **place.given)
    return rows_of({1: range(count)})


def directory(tmp_path: Path) -> Place:
    """A warehouse in a directory."""
    return Place(str(tmp_path / "w"))


ORDERS = pytest.mark.parametrize("today_first", [False, True], ids=["old-new", "new-old"])


@ORDERS
def test_a_mutation_of_one_is_written_down_by_the_other(pair: list[Driver], tmp_path: Path, today_first: bool) -> None:
    place, (one, other) = directory(tmp_path), order(pair, today_first)
    rows = filled(one, place)
    one.ask("about", sql="ALTER TABLE t UPDATE s = concat(s, '!') WHERE k % 2 = 0", **place.given)
    one.ask("about", sql="ALTER TABLE t DELETE WHERE p = 1", **place.given)
    expected = [[p, k, v, s if k % 2 else f"{s}!"] for p, k, v, s in rows if p != 1]
    assert both(pair, "SELECT * FROM t ORDER BY k", place) == expected  # before it is written down, too
    assert [done for _, done in other.ask("apply_mutations", table="t", **place.given)] == [1, 1]
    assert both(pair, "SELECT * FROM t ORDER BY k", place) == expected
    for sql in WHEN_QUIET:
        both(pair, sql, place)
    for driver in (one, other):
        clean(driver, place)


@ORDERS
def test_a_task_of_one_is_worked_by_the_other_and_committed_by_the_first(
    pair: list[Driver], tmp_path: Path, today_first: bool
) -> None:
    place, (one, other) = directory(tmp_path), order(pair, today_first)
    rows = filled(one, place)
    planned = one.release.mergelake("plan", place.url, "t", "--final", "--out", str(tmp_path / "tasks")).split()
    assert len(planned) == 3  # a partition each
    for number, result in enumerate(other.release.mergelake("work", *planned).splitlines()):
        path = tmp_path / f"result-{number}.json"
        path.write_text(result)
        one.release.mergelake("commit", planned[number], str(path))
    assert both(pair, "SELECT count() FROM system.parts WHERE table = 't' AND active", place) == [[3]]
    assert both(pair, "SELECT * FROM t ORDER BY k", place) == [list(row) for row in rows]
    for driver in (one, other):
        clean(driver, place)


@ORDERS
def test_what_one_collector_noted_the_other_deletes(pair: list[Driver], tmp_path: Path, today_first: bool) -> None:
    place, (one, other) = directory(tmp_path), order(pair, today_first)
    rows = filled(one, place, ", history_retention_seconds = 0, gc_grace_seconds = 1")
    for driver in (one, other):
        driver.ask("about", sql="OPTIMIZE TABLE t FINAL", **place.given)
    until(lambda: one.ask("collect", **place.given)["noted"] > 0, "unused parts are noted")
    until(lambda: other.ask("collect", **place.given)["deleted"] > 0, "what was noted is deleted")
    assert both(pair, "SELECT * FROM t ORDER BY k", place) == [list(row) for row in rows]
    for driver in (one, other):
        clean(driver, place)


@ORDERS
def test_a_node_of_one_sends_volatile_parts_to_a_reader_of_the_other(
    pair: list[Driver], tmp_path: Path, today_first: bool
) -> None:
    place, (one, other) = directory(tmp_path), order(pair, today_first)
    # Nothing is uploaded while the test runs.
    settings = ", merge_upload_policy = 'volatile', write_amplification_target = 1.0001, merge_selector_base = 2"
    rows = filled(other, place, settings, 12)
    held = {"read_volatile": "peers"}
    with node(one.release, place.url, "n1", tmp_path / "disk"):

        def shown() -> str:
            return str(other.ask("about", sql="EXPLAIN SELECT sum(v) FROM t", settings=held, **place.given))

        until(lambda: "from node n1" in shown(), "the reader takes a volatile part from the node")
        answer = other.ask("about", sql="SELECT * FROM t ORDER BY k", settings=held, **place.given)
    assert answer == [list(row) for row in rows]
    for driver in (one, other):
        clean(driver, place)


@ORDERS
def test_what_one_defines_the_other_uses(pair: list[Driver], tmp_path: Path, today_first: bool) -> None:
    """Views, tags, clones, other names and definitions: entries of the catalog and of tables."""
    place, (one, other) = directory(tmp_path), order(pair, today_first)
    rows = filled(one, place)
    for sql in (
        "CREATE VIEW heads AS SELECT p, min(k) AS k FROM t GROUP BY p",
        "CREATE DATABASE d",
        "CREATE TABLE d.copy CLONE AS t",
        "ALTER TABLE d.copy MODIFY COLUMN v Nullable(UInt64)",
        "ALTER TABLE d.copy ADD INDEX i s TYPE bloom_filter GRANULARITY 1",
        "ALTER TABLE d.copy RENAME COLUMN s TO text",
        "ALTER TABLE t FREEZE WITH NAME 'kept'",
        "RENAME TABLE r TO newest",
    ):
        one.ask("about", sql=sql, **place.given)
    for sql in (
        "INSERT INTO d.copy (p, k, v, text) VALUES (9, 9, NULL, 'nine')",
        "ALTER TABLE t DROP PARTITION 0",
        "ALTER TABLE t DETACH PARTITION 1",
        "ALTER TABLE d.copy DELETE WHERE k = 1000001",
    ):
        other.ask("about", sql=sql, **place.given)
    one.ask("about", sql="ALTER TABLE t ATTACH PARTITION 1", **place.given)
    assert both(pair, "SELECT * FROM t ORDER BY k", place) == [list(row) for row in rows if row[0]]
    assert both(pair, "SELECT * FROM t AS OF TAG 'kept' ORDER BY k", place) == [list(row) for row in rows]
    assert both(pair, "SELECT count(), countIf(v IS NULL) FROM d.copy WHERE text != ''", place) == [[len(rows), 1]]
    assert len(both(pair, "SELECT * FROM heads ORDER BY p", place)) == 2
    assert both(pair, "SELECT name FROM system.tables WHERE database = 'default' ORDER BY name", place)
    for driver in (one, other):
        clean(driver, place)


@pytest.mark.slow
@pytest.mark.spark
@ORDERS
def test_a_spark_job_of_one_runs_beside_writers_of_the_other(
    pair: list[Driver], tmp_path: Path, today_first: bool
) -> None:
    place, (one, other) = directory(tmp_path), order(pair, today_first)
    rows = filled(one, place)
    from_spark = rows_of({5: range(40)})
    other.send("write", slot=2, first=0, count=BATCHES, **place.given)
    assert one.ask("spark", write=from_spark, **place.given) == [len(from_spark)]
    ((count, different),) = one.ask("spark", sql="SELECT count(*), count(DISTINCT k) FROM t", **place.given)
    assert count == different
    other.result()
    expected = sorted([*rows, *rows_of({2: range(BATCHES)}), *from_spark], key=lambda row: row[1])
    read = one.ask("spark", sql="SELECT int(p), bigint(k), bigint(v), s FROM t ORDER BY k", **place.given)
    assert read == both(pair, "SELECT * FROM t ORDER BY k", place) == [list(row) for row in expected]
    for driver in (one, other):
        clean(driver, place)
