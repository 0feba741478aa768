"""Collection of one table: what goes, when, and what never does."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.publish import publish as publishing
from mergelake.jobs.publish.plan import shown_token
from mergelake.log.model.operations import AddReference, RenewLease
from mergelake.log.model.retention import reachable
from mergelake.log.storage.checkpoint import encode_checkpoint
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks

HOUR = 3600
GRACE, RETENTION = 24 * HOUR, 7 * 24 * HOUR
DAY_MS = GRACE * 1000


@pytest.fixture
def warehouse():
    clock = ManualClock()
    return Warehouse(MemoryStore(clock=clock), clock=clock, ids=SeededIds(1), author="me", threads=1)


@pytest.fixture
def table(warehouse):
    return warehouse.create_table("t", define({"k": "UInt64"}, order_by="k", settings={"checkpoint_interval": "8"}))


def keys(table, *, log=False):
    cut = len(table.handle.directory) + 1
    found = [meta.key[cut:] for meta in table.handle.store.list(table.handle.directory)]
    return [key for key in found if key.startswith("_log/") == log and key != "_gc/now"]


def advance(table, seconds):
    table.handle.clock.advance_s(seconds)


def numbers(table, **at):
    return sorted(table.scan(**at).arrow()["k"].to_pylist())


def fill(table, inserts=3):
    for number in range(inserts):
        table.append({"k": [number]})


def settle(table, rounds=4):
    """Rounds of collection, a grace period apart, until nothing is left to do."""
    for _ in range(rounds):
        collect_round(table.handle)
        advance(table, GRACE)
    return collect_round(table.handle)


def test_replaced_parts_go_after_retention_and_grace_and_not_before(table):
    fill(table)
    table.optimize(final=True)
    advance(table, RETENTION - HOUR)
    assert collect_round(table.handle).noted == []
    assert numbers(table, version=3) == [0, 1]
    advance(table, 2 * HOUR)
    report = collect_round(table.handle)
    assert [(gone.objects, gone.why) for gone in report.noted] == [(1, "replaced or dropped at version 5")] * 3
    assert len(keys(table)) == 5  # four parts and a note
    advance(table, GRACE - HOUR)
    assert (collect_round(table.handle).deleted, collect_round(table.handle).waiting) == ([], 1)
    advance(table, 2 * HOUR)
    assert len(collect_round(table.handle).deleted) == 3
    assert len(keys(table)) == 1
    assert numbers(table) == [0, 1, 2]
    with pytest.raises(MergelakeError, match=r"Version 3 has been collected\. Versions 5 to") as refused:
        numbers(table, version=3)
    assert refused.value.name == "BAD_ARGUMENTS"


def test_history_has_a_price_limit_but_for_the_grace_period(table):
    """The oldest versions go first; what a tag shows is neither counted nor touched."""
    fill(table, 4)
    table.tag("first", 3)
    for _ in range(3):
        table.optimize(final=True)
        fill(table, 2)
    one = max(part.bytes_on_disk for part in table.handle.refresh().retired)
    advance(table, GRACE + 10)
    full = table.retained_bytes
    collect_round(table.handle)
    assert table.retained_bytes == full  # the default is far away
    table.modify_settings({"retention_max_bytes": 4 * one, "retention_max_ratio": 0})
    collect_round(table.handle)
    state = table.refresh() and table.handle.log.state
    tagged = sum(part.bytes_on_disk for part in state.retired if part.added <= 3 < part.retired)
    assert 0 < table.retained_bytes - tagged <= 4 * one < full
    assert numbers(table, version="first") == [0, 1]
    oldest = state.history
    assert numbers(table, version=oldest)
    table.modify_settings({"retention_max_bytes": 0})
    table.optimize(final=True)
    collect_round(table.handle)
    assert oldest < table.handle.refresh().history < state.version  # what the last merge replaced is young
    advance(table, GRACE + 10)
    collect_round(table.handle)
    assert table.handle.refresh().history >= state.version
    assert table.retained_bytes == tagged


def test_a_quiet_table_is_left_in_peace(table):
    fill(table)
    advance(table, 30 * GRACE)
    version, before = table.version, keys(table)
    for _ in range(5):
        report = collect_round(table.handle)
        advance(table, GRACE)
        assert (report.deleted, report.noted, report.waiting) == ([], [], 0)
    assert (table.refresh(), keys(table)) == (version, before)


def test_what_was_never_committed_goes(table):
    handle = table.handle
    fill(table, 1)
    write_blocks(insert_target(handle.store, handle.directory, table.schema, handle.ids, handle.clock), [_block([7])])
    report = collect_round(handle)
    assert [gone.why for gone in report.noted] == ["not in the log"]
    advance(table, GRACE)
    assert len(collect_round(handle).deleted) == 1
    assert {key.partition("/")[0] for key in keys(table)} <= reachable(handle.log.state)


def test_an_insert_that_outlives_the_grace_period_is_refused_and_says_the_way_out(table):  # the second trap
    handle = table.handle
    late = write_blocks(
        insert_target(handle.store, handle.directory, table.schema, handle.ids, handle.clock),
        [_block([7])],
        base_version=handle.base_version(),
    )
    collect_round(handle)
    advance(table, GRACE)
    assert len(collect_round(handle).deleted) == 1
    with pytest.raises(MergelakeError, match=r"write it again.*gc_grace_seconds") as refused:
        commit_parts(handle, late)
    assert refused.value.name == "ABORTED"
    assert numbers(table) == []


def test_an_insert_between_the_two_halves_is_let_in(table):
    """Also on a table where nothing else happens: noting takes a position of the log for itself."""
    handle = table.handle
    write_blocks(insert_target(handle.store, handle.directory, table.schema, handle.ids, handle.clock), [_block([6])])
    collect_round(handle)
    advance(table, GRACE - 1)
    timely = write_blocks(
        insert_target(handle.store, handle.directory, table.schema, handle.ids, handle.clock),
        [_block([7])],
        base_version=handle.base_version(),
    )
    advance(table, 2)
    assert len(collect_round(handle).deleted) == 1
    commit_parts(handle, timely)
    assert numbers(table) == [7]


def test_a_dry_run_tells_and_does_nothing(table):
    fill(table)
    table.truncate()
    advance(table, RETENTION)
    before = dict.fromkeys(keys(table) + keys(table, log=True))
    foreseen = collect_round(table.handle, dry_run=True)
    assert dict.fromkeys(keys(table) + keys(table, log=True)) == before
    assert foreseen.noted == collect_round(table.handle).noted
    advance(table, GRACE)
    foreseen = collect_round(table.handle, dry_run=True)
    assert foreseen.deleted == collect_round(table.handle).deleted
    assert len(foreseen.deleted) == 3


def test_the_log_is_cut_behind_a_checkpoint(table):
    for number in range(40):
        table.append({"k": [number]})
    advance(table, RETENTION)
    fill(table, 1)
    settle(table)
    assert len([key for key in keys(table, log=True) if key.endswith(".json")]) < 12
    fresh = Warehouse(table.handle.store, clock=table.handle.clock, ids=SeededIds(9)).table("t")
    assert len(numbers(fresh)) == 41


def test_a_late_checkpoint_only_puts_off_the_cut(table):
    for number in range(20):
        table.append({"k": [number]})
    handle = table.handle
    late = encode_checkpoint(handle.log.state_at(5))
    advance(table, RETENTION)
    collect_round(handle)
    handle.store.put(f"{handle.directory}/_log/checkpoints/{5:020d}.arrow", late)
    advance(table, GRACE)
    assert collect_round(handle).entries == 0
    advance(table, GRACE)
    assert collect_round(handle).entries == 15
    assert len(numbers(table)) == 20


def test_what_a_node_still_reads_is_kept_until_its_lease_is_long_over(table):
    fill(table)
    now_ms = table.handle.clock.now_ms()
    table.handle.log.commit(lambda _: [RenewLease("n1", 3, now_ms + 13 * DAY_MS)])
    table.optimize(final=True)
    advance(table, RETENTION)
    settle(table)
    assert len(keys(table)) == 3  # the merged part, and the two of version 3
    advance(table, 20 * GRACE)
    settle(table)
    assert len(keys(table)) == 1
    assert table.handle.log.state.leases == {}


def clocks_off(table, **clocks):
    """The table as processes see it whose clocks are some days off."""
    store, hand = table.handle.store, table.handle.clock

    class Off:
        def __init__(self, days):
            self.days = days

        def now_ms(self):
            return hand.now_ms() + self.days * DAY_MS

        def monotonic_s(self):
            return hand.monotonic_s()

    ids = (SeededIds(100 + n) for n in range(9))
    return [Warehouse(store, clock=Off(days), ids=next(ids), threads=1).table("t") for days in clocks.values()]


def test_history_goes_on_behind_an_entry_of_a_clock_that_is_a_year_ahead(table):
    (ahead,) = clocks_off(table, ahead=365)
    fill(ahead, 1)
    for _ in range(30):
        fill(table, 3)
        table.optimize(final=True)
        collect_round(table.handle)
        advance(table, GRACE)
    state = table.handle.refresh()
    assert state.timestamp_ms > table.handle.clock.now_ms()
    assert state.version - 12 * 4 < state.history < state.version - 6 * 4  # seven days, and an eighth of them
    assert len([key for key in keys(table) if key.startswith("_gc/") and "-history-" in key]) < 12
    assert len([key for key in keys(table, log=True) if key.endswith(".json")]) < 20 * 4


def test_a_lease_of_a_clock_that_is_a_year_ahead_is_over_when_it_has_not_changed_for_one_retention(table):
    log, clock = table.handle.log, table.handle.clock
    until_ms = clock.now_ms() + 365 * DAY_MS
    log.commit(lambda _: [RenewLease("gone", 1, until_ms), RenewLease("alive", 1, until_ms)])
    for day in range(9):
        log.commit(lambda _, day=day: [RenewLease("alive", 1, until_ms + day)])
        collect_round(table.handle)
        advance(table, GRACE)
        assert ("gone" in log.state.leases) == (day < 7)
    assert "alive" in log.state.leases


def test_the_age_of_a_note_and_of_history_is_told_by_the_clock_of_the_store(table):
    slow, fast = clocks_off(table, slow=-400, fast=400)
    for number in range(20):
        table.append({"k": [number]})
    table.truncate()
    collect_round(fast.handle)
    assert fast.handle.log.state.history == 0
    advance(table, RETENTION)
    collect_round(slow.handle)
    for other in (fast, table, slow):
        report = collect_round(other.handle)
        assert (report.deleted, report.entries) == ([], 0)
        assert report.waiting
    advance(table, GRACE)
    report = collect_round(slow.handle)
    assert len(report.deleted) == 20
    assert report.entries > 0


def test_a_holder_that_does_not_answer_is_left_for_the_next_round(table, monkeypatch):
    fill(table, 1)
    handle = table.handle
    (part,) = handle.refresh().parts()
    handle.log.commit(lambda _: [AddReference("f" * 32, (part.manifest.id,))])
    collect_round(handle)
    advance(table, GRACE)
    create = MemoryStore.create

    def silent(store, key, data):
        if key.startswith("f" * 32):
            raise UnavailableError("the store is silent")
        return create(store, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "create", silent)
        assert collect_round(handle).released == []
    advance(table, GRACE)
    assert collect_round(handle).released == ["f" * 32]


def test_what_clickhouse_is_shown_stays(table):
    fill(table)
    table.publish()
    table.optimize(final=True)
    advance(table, 2 * RETENTION)
    settle(table)
    shown = {key.split("/")[1] for key in keys(table) if key.startswith("__meta/")}
    assert len(shown) == 3
    assert shown < {key.split("/")[0] for key in keys(table)}
    table.publish()
    table.publish(grace_seconds=0)
    settle(table)
    (part,) = table.handle.log.state.parts()
    there = {key.split("/")[0] for key in keys(table)} - {"__meta", "__root", "_gc"}
    assert there == {part.manifest.id, shown_token(part.manifest)}


def test_how_long_a_covered_name_stays_is_told_by_the_clock_of_the_store(table):
    ahead, behind = clocks_off(table, ahead=1, behind=-1)
    fill(table)
    ahead.publish()
    table.optimize(final=True)
    for _ in range(2):
        assert len(ahead.publish().removed) == 0
    advance(table, 299)
    assert len(ahead.publish().removed) == 0
    advance(table, 2)
    assert len(behind.publish().removed) == 3


def test_of_a_dropped_table_the_names_go_before_the_files(warehouse, table, monkeypatch):
    fill(table)
    table.publish()
    store, deleted = table.handle.store, []
    warehouse.drop_table("t")
    delete = store.delete

    def told(keys):
        deleted.extend(keys := [*keys])
        delete(keys)

    monkeypatch.setattr(store, "delete", told)
    for _ in range(3):
        advance(table, 2 * RETENTION)
        [*warehouse.gc()]
    names = [at for at, key in enumerate(deleted) if key.endswith("prefix.path")]
    files = [at for at, key in enumerate(deleted) if key.endswith(".bin")]
    assert names
    assert max(names) < min(files)


def test_a_publisher_that_slept_takes_its_names_back(table, monkeypatch):
    fill(table)
    lay_out = publishing.lay_out

    def sleep_before(*arguments):
        monkeypatch.setattr(publishing, "lay_out", lay_out)
        other = Warehouse(table.handle.store, clock=table.handle.clock, ids=SeededIds(2), threads=1).table("t")
        other.optimize(final=True)
        advance(other, RETENTION)
        settle(other)
        lay_out(*arguments)

    monkeypatch.setattr(publishing, "lay_out", sleep_before)
    with pytest.raises(MergelakeError):  # its first part's files are gone …
        table.publish()
    fill(table, 1)
    other = Warehouse(table.handle.store, clock=table.handle.clock, ids=SeededIds(3), threads=1).table("t")

    def sleep_on(*_):
        other.truncate()
        advance(table, HOUR)

    monkeypatch.setattr(publishing, "lay_out", sleep_on)  # … or they lie in plain files
    monkeypatch.setattr(publishing, "reachable", lambda _: set())
    table.publish()
    assert [key for key in keys(table) if key.startswith("__meta/")] == []


def test_several_collectors_at_once_do_no_harm(table):
    fill(table)
    table.truncate()
    advance(table, RETENTION)
    others = [
        Warehouse(table.handle.store, clock=table.handle.clock, ids=SeededIds(n), threads=1).table("t").handle
        for n in range(3)
    ]
    for _ in range(3):
        for other in others:
            collect_round(other)
        advance(table, GRACE)
    assert keys(table) == []
    table.append({"k": [1]})
    assert numbers(table) == [1]


def _block(values):
    return pa.RecordBatch.from_pydict({"k": pa.array(values, pa.uint64())})
