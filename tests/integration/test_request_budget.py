"""docs/costs.md, line by line: what each operation asks of a bucket, one in memory and one on a real S3 server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.log.model.operations import AddParts
from mergelake.store import Store, open_store
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.far_store import FarStore
from tests.helpers.manifests import manifest

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
KINDS = ("PUT", "GET", "LIST", "HEAD", "DELETE")
CREATE = """CREATE TABLE {} (k UInt64, a String, b String, c Float64) ENGINE = MergeTree {} ORDER BY k
    SETTINGS index_granularity = 1000{}"""
LARGE = ", min_bytes_for_full_part_storage = 0"
ROWS = 10_000


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    keys = range(first, first + count)
    texts = [f"{(key * 2_654_435_761) % (1 << 32):08x}" for key in keys]
    return pa.table({"k": pa.array(keys, pa.uint64()), "a": texts, "b": texts, "c": [key / 7 for key in keys]})


class Place:
    """An empty store, and how the scenarios use it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._db: ml.Database | None = None

    @property
    def db(self) -> ml.Database:
        if self._db is None:
            self._db = ml.Database(ml.Warehouse(self.store, threads=1))
        return self._db

    def table(self, *parts: pa.Table, large: bool = False, partition: str = "") -> ml.Table:
        self.db.sql(CREATE.format("t", partition, LARGE if large else ""))
        table = self.db.table("t")
        for part in parts:
            table.append(part)
        return table

    def reopened(self) -> ml.Table:
        """The table as a process sees it that has read nothing of it."""
        return ml.Warehouse(self.store, threads=1).table("t")


Call = Callable[[], Any]


def _make(place: Place) -> Call:
    return lambda: ml.Warehouse(place.store).create_database("d")


def _connect(place: Place) -> Call:
    place.table()
    return lambda: ml.Warehouse(place.store)


def _create(place: Place) -> Call:
    db = place.db
    db.sql("CREATE DATABASE d")
    return lambda: db.sql(CREATE.format("t", "", ""))


def _open(place: Place) -> Call:
    log = place.table().handle.log
    for first in range(0, 10_000, 2000):
        log.commit(lambda _, first=first: [AddParts(tuple(manifest(first + n, files=13) for n in range(2000)))])
    log.write_checkpoint()
    catalog = ml.Warehouse(place.store).catalog
    table_id = catalog.find(("default", "t"))

    def call() -> None:
        assert len(catalog.open_id(table_id).snapshot().parts) == 10_000

    return call


def _append(place: Place) -> Call:
    table = place.table()
    return lambda: table.append(rows(count=3))


def _partitions(place: Place) -> Call:
    table = place.table(partition="PARTITION BY k")
    return lambda: table.append(rows(count=3))


def _sql_insert(place: Place) -> Call:
    place.table()
    return lambda: place.db.sql("INSERT INTO t VALUES (1, 'a', 'b', 1.5)")


def _repeated(place: Place) -> Call:
    table = place.table()
    table.append(rows(count=3), dedup_token="once")
    return lambda: table.append(rows(count=3), dedup_token="once")


def _large(place: Place) -> Call:
    table = place.table(large=True)
    return lambda: table.append(rows())


def _count(place: Place) -> Call:
    place.table(rows())
    return lambda: place.db.sql("SELECT count() FROM t")


def _cached_count(place: Place) -> Call:
    place.table(rows())
    return lambda: place.db.sql("SELECT count() FROM t", settings={"read_consistency": "cached"})


def _point(table: ml.Table, key: int, read_consistency: str | None = None) -> Call:
    def call() -> None:
        found = table.scan(["a"], f"k = {key}", read_consistency=read_consistency)
        assert found.arrow().num_rows == (key < ROWS)

    return call


def _first_point(large: bool) -> Callable[[Place], Call]:
    def prepare(place: Place) -> Call:
        place.table(rows(), rows(ROWS * 2), large=large)
        return _point(place.reopened(), 4321)

    return prepare


def _second_point(read_consistency: str) -> Callable[[Place], Call]:
    def prepare(place: Place) -> Call:
        table = place.table(rows(), large=True)
        _point(table, 4321)()
        return _point(table, 7654, read_consistency)

    return prepare


def _no_point(place: Place) -> Call:
    place.table(rows())
    return _point(place.reopened(), 10 * ROWS)


def _column(place: Place) -> Call:
    table = place.table(rows())
    table.scan(["c"], "k < 10").arrow()
    return lambda: table.scan(["c"]).arrow()


def _merge(place: Place) -> Call:
    place.table(*(rows(first) for first in range(0, 3 * ROWS, ROWS)))
    table = place.reopened()
    return lambda: table.optimize(final=True)


def _truncate(place: Place) -> Call:
    return place.table(rows()).truncate


def _publish_small(place: Place) -> Call:
    return place.table(rows()).publish


def _publish_large(place: Place) -> Call:
    table = place.table(rows(), large=True)
    table.publish()
    table.append(rows(ROWS))
    return table.publish


def _publish_nothing(place: Place) -> Call:
    table = place.table(rows())
    table.publish()
    return table.publish


def _rename(place: Place) -> Call:
    place.table()
    return lambda: place.db.sql("RENAME TABLE t TO u")


def _tag(place: Place) -> Call:
    table = place.table(rows(), rows())
    return lambda: table.tag("kept", 2)


def _rollback(place: Place) -> Call:
    table = place.table(rows(), rows())
    return lambda: table.rollback(2)


def _clone(place: Place) -> Call:
    place.table(rows(), rows())
    return lambda: place.db.sql("CREATE TABLE u CLONE AS t")


def _collect(place: Place) -> Call:
    table = place.table(rows(), rows())
    return table.gc


SCENARIOS: dict[str, Callable[[Place], Call]] = {
    "Look where no": lambda place: lambda: ml.Warehouse(place.store),
    "Make a warehouse": _make,
    "Connect": _connect,
    "Create": _create,
    "Open a table of 10,000": _open,
    "Ask whether": lambda place: place.table().refresh,
    "Insert into one partition: `append`": _append,
    "Insert into one partition: SQL": _sql_insert,
    "Insert into three": _partitions,
    "Insert a repeated": _repeated,
    "Insert a large": _large,
    "`SELECT count()`: asks": _count,
    "`SELECT count()` with": _cached_count,
    "Point look-up, first in a small": _first_point(large=False),
    "Point look-up, first in a large": _first_point(large=True),
    "Point look-up, again: ": _second_point("strong"),
    "Point look-up, again, with": _second_point("cached"),
    "Point look-up of a key that no": _no_point,
    "Read one column": _column,
    "Merge three small": _merge,
    "Drop a partition": _truncate,
    "Publish the first small": _publish_small,
    "Publish a large": _publish_large,
    "Publish when nothing": _publish_nothing,
    "Rename": _rename,
    "Tag": _tag,
    "Roll back": _rollback,
    "Clone": _clone,
    "Collect": _collect,
}


def lines() -> Iterator[tuple[str, Sequence[int]]]:
    """The page's table: operation and its five numbers."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"\d+", cells[1]):
            yield cells[0], [int(cell) for cell in cells[1:]]


def prepared(line: str, place: Place) -> Call:
    (name,) = (start for start in SCENARIOS if line.startswith(start))
    return SCENARIOS[name](place)


def spent(store: Store, call: Call) -> dict[str, int]:
    before = store.counters
    call()
    used = store.counters - before
    return dict(zip(KINDS, (used.put, used.get, used.list, used.head, used.delete), strict=True))


def test_every_operation_has_its_line() -> None:
    shown = [line for line, _ in lines()]
    assert len(shown) == len(SCENARIOS)
    assert all(any(line.startswith(start) for line in shown) for start in SCENARIOS)


@pytest.mark.parametrize(("line", "numbers"), list(lines()), ids=lambda value: value if isinstance(value, str) else "")
def test_an_operation_costs_what_the_page_says(line: str, numbers: list[int]) -> None:
    # M-002 M-068 M-072
    store = FarStore()
    call = prepared(line, Place(store))
    assert spent(store, call) == dict(zip(KINDS, numbers, strict=True))


@pytest.mark.parametrize(("line", "numbers"), list(lines()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_real_s3_server_is_asked_as_often(
    s3_url: str, s3_options: dict[str, str], fault_proxy: Any, line: str, numbers: list[int]
) -> None:
    # M-002 M-068: counted by what stands before the server, not by us
    store = open_store(s3_url, {**s3_options, "endpoint": fault_proxy.url})
    call = prepared(line, Place(store))
    before = fault_proxy.stats["requests"]
    assert spent(store, call) == dict(zip(KINDS, numbers, strict=True))
    assert fault_proxy.stats["requests"] - before == sum(numbers)


class _Recorder(MemoryStore):
    """Remembers which bytes of which objects were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int, int]] = []

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Any:
        self.asked += [(key.rpartition("/")[2], start, start + length) for start, length in ranges]
        return super().get_ranges(key, ranges)

    def get_range(self, key: str, start: int, length: int) -> Any:
        self.asked.append((key.rpartition("/")[2], start, start + length))
        return super().get_range(key, start, length)


WHERE = "k >= 17000 AND k < 32000"
READS = {
    "scan": lambda db: db.table("t").scan(["a"], WHERE).arrow().num_rows,
    "SELECT": lambda db: db.sql(f"SELECT count(a) FROM t WHERE {WHERE}").scalar(),
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_filtered_scan_reads_no_column_and_no_granule_that_it_does_not_need(
    read: Callable[[ml.Database], int],
) -> None:
    # M-084
    store = _Recorder()
    place = Place(store)
    # Granules of 8192 rows fill a compressed block each: bytes are granules.
    place.db.sql(CREATE.format("t", "", LARGE).replace("index_granularity = 1000", "index_granularity = 8192"))
    table = place.db.table("t")
    table.append(rows(count=10 * 8192))
    sizes = {name: file.size for name, file in table.snapshot().parts[0].manifest.file_table().items()}
    assert read(place.db) == 15_000
    store.asked.clear()
    assert read(place.db) == 15_000
    assert {name for name, _, _ in store.asked} == {"k.bin", "a.bin"}  # nothing of b and c, and no index again
    assert len(store.asked) == 2
    for name, start, end in store.asked:
        assert 0.19 < start / sizes[name] < 0.21  # granules 2 and 3 of ten
        assert 0.39 < end / sizes[name] < 0.41


def test_a_part_that_cannot_match_is_not_touched() -> None:
    # M-057
    store = _Recorder()
    place = Place(store)
    place.table(*(rows(first) for first in range(0, 5 * ROWS, ROWS)))
    store.asked.clear()
    assert place.reopened().scan(["a"], f"k = {3 * ROWS + 5}").arrow().num_rows == 1
    assert len({name for name, _, _ in store.asked}) == 1
    assert store.counters.details["get data"] == 3


ROUNDS = {
    "SELECT count() FROM t": (1, 1),
    "SELECT a, c FROM t WHERE k = 4321": (3, 2),
    "SELECT a, count(), sum(c) FROM t GROUP BY a": (3, 2),
    "SELECT count() FROM t WHERE b LIKE '%77%'": (3, 2),
    "SELECT count(), sum(c) FROM t FINAL": (3, 2),
    "SELECT k, a FROM t WHERE c > 100 AND b != '' ORDER BY k": (3, 2),
}
"""Rounds of a statement: news, what has to be known of parts, data; and again, when the parts are known."""


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("statement", ROUNDS)
def test_a_statement_asks_for_nothing_twice_and_takes_few_rounds(statement: str, large: bool) -> None:
    store = FarStore()
    text = CREATE.format("t", "", LARGE if large else "").replace("= MergeTree", "= ReplacingMergeTree")
    Place(store).db.sql(text)
    for first in range(0, 4 * 2000, 2000):
        Place(store).db.table("t").append(rows(first, 2500))
    db = Place(store).db
    db.table("t")
    for most in ROUNDS[statement]:
        store.start()
        store.gated = True
        db.sql(statement)
        store.gated = False
        assert store.rounds <= most
        assert store.repeated() == []
