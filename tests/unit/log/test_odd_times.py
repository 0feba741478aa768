"""Entries with times that cannot be: retention, collection, history and AS OF go on."""

from __future__ import annotations

import json

import pytest

import mergelake as ml
from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.clock import ManualClock
from mergelake.log.storage.encoding import TIME_END_MS, decode_entry, sealed
from mergelake.store.objects.memory import MemoryStore

ODD = [-1, -(10**18), 5, 0, TIME_END_MS, 10**15, 2**63, 10**30]


def _table(odd: int, at: int) -> tuple[Database, ManualClock, list[int]]:
    """Eight inserts a minute apart; one of the entries says an odd time. The times of all versions."""
    clock = ManualClock()
    db = Database(Warehouse(MemoryStore(clock=clock), clock=clock, threads=1))
    settings = "SETTINGS checkpoint_interval = 100, history_retention_seconds = 120, gc_grace_seconds = 0"
    db.sql(f"CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k {settings}")
    handle, store = db.table("t").handle, db.warehouse.store
    times = [0, clock.now_ms()]
    for n in range(8):
        clock.advance_s(60)
        Database(Warehouse(store, clock=clock, threads=1)).table("t").append({"k": [n]})
        times.append(clock.now_ms())
        if n + 2 == at:
            key = handle.log.backend.key(at)
            raw = json.loads(store.get(key))
            del raw["digest"]
            store.put(key, sealed({**raw, "timestamp_ms": odd}))
    return Database(Warehouse(store, clock=clock, threads=1)), clock, times


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("at", [2, 5, 9])
def test_an_entry_with_an_odd_time_is_as_old_as_the_one_before_it(odd: int, at: int) -> None:
    db, _, times = _table(odd, at)
    table = db.table("t")
    for version in range(1, 10):
        if version in (at - 1, at):
            continue
        rows = table.scan(timestamp=times[version]).arrow().num_rows
        assert rows == version - 1
    assert table.scan(timestamp=times[at] - 1).arrow().num_rows in (at - 2, at - 1)
    assert table.history().num_rows == 9
    assert table.append({"k": [99]}).version == 10
    assert table.handle.log.state.timestamp_ms <= times[-1]


@pytest.mark.parametrize("odd", ODD)
def test_collection_goes_on_behind_an_odd_time(odd: int) -> None:
    db, clock, _ = _table(odd, 5)
    table = db.table("t")
    table.optimize(final=True)
    for _ in range(5):
        clock.advance_s(200)
        table.append({"k": [1]})
        db.warehouse.gc()
    assert table.handle.refresh().history > 9
    assert db.sql("SELECT count() FROM t").rows() == [(13,)]
    assert all(report.clean for _, report in db.warehouse.fsck())


@pytest.mark.parametrize("odd", ["x", None, [], True])
def test_a_time_that_is_no_number_is_a_damaged_entry(odd: object) -> None:
    raw = {"format": 3, "version": 1, "attempt": "a", "timestamp_ms": odd, "author": "", "ops": []}
    if odd is True:
        assert decode_entry(sealed(raw)).timestamp_ms == 1
        return
    with pytest.raises(ml.CorruptDataError):
        decode_entry(sealed(raw), "k")
