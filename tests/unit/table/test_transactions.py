"""One commit over several tables: whatever dies or is lost, both have it or none, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.api.python import Warehouse
from mergelake.api.python.joint import JointStates
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc import collect
from mergelake.jobs.gc.collect import collect_round
from mergelake.log.backends import backends
from mergelake.log.commit import migrate
from mergelake.log.model.operations import DropRange, Entry, Prepare, Tag
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S
from mergelake.log.reading.transactions import PATIENCE_S, Record, decide, decode_record, encode_record, read_record
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.partitions.transaction import Share, commit_over
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.helpers.fake_keeper import FakeEnsemble, FakeKeeper

DAY = 86400


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


def opened(store, clock, seed=1):
    return Warehouse(store, clock=clock, ids=SeededIds(seed), author=f"process {seed}", threads=1)


@pytest.fixture
def warehouse(store, clock):
    made = opened(store, clock)
    schema = define({"p": "UInt8", "k": "UInt64"}, order_by="k", partition_by="p")
    for name, rows in (("a", {"p": [1, 1, 2], "k": [1, 2, 3]}), ("b", {"p": [1], "k": [100]})):
        made.create_table(name, replace(schema, settings={"checkpoint_interval": "8"})).append(rows)
    return made


def keys(table):
    return sorted(table.scan().arrow()["k"].to_pylist())


def joint_keys(warehouse):
    """The rows of both tables as one statement sees them."""
    tables = [warehouse.table(name) for name in "ab"]
    states = JointStates()
    states.pin(table.handle for table in tables)
    return [keys_at(table, states.of(table.handle).version) for table in tables]


def keys_at(table, version):
    return sorted(table.scan(version=version).arrow()["k"].to_pylist())


BEFORE, AFTER = [[1, 2, 3], [100]], [[3], [1, 2, 100]]


def move(warehouse):
    a, b = (warehouse.table(name) for name in "ab")
    return a.move_partition(1, to=b)


def undecided(warehouse, *, both=True):
    """A coordinator that died before the record: the shares of both tables, or of the first one, are in the logs."""
    handles = [warehouse.table(name).handle for name in "ab"]
    bases = [(handle.directory, handle.log.state.version) for handle in handles]
    entries = []
    for handle in handles[: 1 + both]:
        (own,) = (base for base in bases if base[0] == handle.directory)
        others = tuple(base for base in bases if base != own)
        entries.append(handle.log.prepare(lambda _: Prepare("f" * 32, own[1], others, (DropRange("1", "move"),))))  # noqa: B023
    return handles, entries


# M-090
def test_a_move_is_one_commit_and_writes_no_object_of_data(warehouse):
    a, b = (warehouse.table(name) for name in "ab")
    with warehouse.metered() as spent:
        a.move_partition(1, to=b)
    assert {kind: n for kind, n in spent.counters.details.items() if "put" in kind} == {"put _log": 2, "put _txn": 1}
    assert spent.counters.get == 2, "whether there is something new in each of the two"
    assert joint_keys(opened(warehouse.store, warehouse.clock, 2)) == AFTER
    assert a.check()["is_passed"].to_pylist() == [1]
    assert b.check()["is_passed"].to_pylist() == [1, 1]
    with warehouse.metered() as spent:
        b.refresh()
    assert spent.counters.get == 1, "its own decision is known"


# M-074
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.FAIL_BEFORE])
def test_whatever_request_fails_both_tables_have_it_or_none(fault):
    step, acknowledged = 0, 0
    while True:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        warehouse = opened(store, clock)
        schema = define({"p": "UInt8", "k": "UInt64"}, order_by="k", partition_by="p")
        warehouse.create_table("a", schema).append({"p": [1, 1, 2], "k": [1, 2, 3]})
        warehouse.create_table("b", schema).append({"p": [1], "k": [100]})
        faulty = FaultyStore(store, script={step: fault})
        done = False
        try:
            move(opened(faulty, clock, 2))
            done = True
        except (SimulatedCrash, MergelakeError):
            pass
        reader = opened(store, clock, 3)
        first = joint_keys(reader)
        assert first in (BEFORE, AFTER), f"after request {step}"
        assert not done or first == AFTER
        for name in "ab":  # writers go on at once, or after a while
            reader.table(name).append({"p": [9], "k": [9]})
        seen = joint_keys(opened(store, clock, 4))
        assert seen == [sorted([*held, 9]) for held in first], f"after request {step}"
        acknowledged += done
        if faulty.operations <= step:
            break
        step += 1
    assert step > 8
    assert acknowledged


def test_readers_do_not_wait_for_a_decision_and_writers_give_it_up(warehouse, store, clock):
    handles, entries = undecided(warehouse)
    began_ms = clock.now_ms()
    other = opened(store, clock, 2)
    assert joint_keys(other) == BEFORE
    assert clock.now_ms() == began_ms
    other.table("a").append({"p": [5], "k": [5]})
    assert PATIENCE_S <= (clock.now_ms() - began_ms) / 1000 < 2 * PATIENCE_S
    assert not read_record(store, "f" * 32).committed
    began_ms = clock.now_ms()
    other.table("b").append({"p": [5], "k": [5]})
    assert clock.now_ms() == began_ms, "it is decided"
    assert joint_keys(other) == [[1, 2, 3, 5], [5, 100]]
    assert [entry.version for entry in other.table("a").handle.log.entries()] == [1, 2, 3, 4]
    assert "given up" in other.table("a").history().to_pylist()[1]["operations"]
    # The coordinator comes back too late.
    tables = {h.directory: (2, e.version) for h, e in zip(handles, entries, strict=True)}
    standing = decide(store, "f" * 32, Record(True, tables), clock, SeededIds(9))
    assert not standing.committed


def test_a_transaction_that_was_given_up_is_tried_again(warehouse, store, clock):
    """Another process is impatient while the coordinator pauses before it decides."""
    a, b = (opened(store, clock, 2).table(name) for name in "ab")
    tries = []

    def share(table):
        def build(state):
            tries.append(state.version)
            if len(tries) == 2:  # the first table is prepared: somebody waits for it in vain
                opened(store, clock, 3).table("a").append({"p": [7], "k": [7]})
            return [DropRange("1", "drop")]

        return Share(table.handle, build)

    with pytest.raises(ConflictError, match="gave it up"):
        commit_over([share(a), share(b)])
    assert joint_keys(opened(store, clock, 4)) == [[1, 2, 3, 7], [100]]
    commit_over([share(a), share(b)])
    assert joint_keys(opened(store, clock, 4)) == [[3, 7], []]


def test_a_share_that_is_refused_undoes_the_others(warehouse, store, clock):
    a, b = (warehouse.table(name) for name in "ab")
    with pytest.raises(MergelakeError, match="There is no version 99"):
        commit_over([Share(a.handle, lambda _: [DropRange("1")]), Share(b.handle, lambda _: [Tag("x", 99)])])
    assert joint_keys(opened(store, clock, 2)) == BEFORE
    a.append({"p": [5], "k": [5]})
    assert keys(a) == [1, 2, 3, 5]
    with pytest.raises(MergelakeError, match="There is no version 99"):  # the first one: nothing was written
        commit_over([Share(b.handle, lambda _: [Tag("x", 99)]), Share(a.handle, lambda _: [DropRange("1")])])
    assert len(list(store.list("_txn"))) == 1


def test_a_reader_of_both_tables_refreshes_the_one_that_lags(warehouse, store, clock):
    reader = opened(store, clock, 2)
    a, b = (reader.table(name) for name in "ab")
    move(warehouse)
    for late, early in ((a, b), (b, a)):
        early.refresh()
        states = JointStates()
        with reader.metered() as spent:
            states.pin([a.handle, b.handle])
        assert spent.counters.get <= 3
        assert [keys_at(t, states.of(t.handle).version) for t in (a, b)] == AFTER
        assert late.version > 2
    with reader.metered() as spent:
        states.pin([a.handle, b.handle])
    assert spent.counters.requests == 0


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_table_that_is_looked_up_later_is_read_as_of_before(warehouse, store, clock, order):
    first, second = (opened(store, clock, 2).table(name) for name in order)
    states = JointStates()
    states.pin([first.handle])
    move(warehouse)
    second.refresh()
    found = {t.name[-1]: keys_at(t, states.of(t.handle).version) for t in (first, second)}
    assert [found["a"], found["b"]] == BEFORE


def test_all_tables_have_it_from_one_time_on(warehouse, store, clock):
    a, b = (warehouse.table(name) for name in "ab")
    began_ms = clock.now_ms()

    def share(table):
        def build(_):
            clock.advance_s(1)
            return [DropRange("1")]

        return Share(table.handle, build)

    commit_over([share(a), share(b)])
    times_ms = [[*table.handle.log.entries()][-1].timestamp_ms for table in (a, b)]
    end_ms = max(times_ms)
    assert min(times_ms) == began_ms < end_ms
    assert {table.handle.log.state.timestamp_ms for table in (a, b)} == {end_ms}
    for at_ms in range(began_ms, end_ms + 1000, 250):
        found = [sorted(t.scan(timestamp=at_ms).arrow()["k"].to_pylist()) for t in (a, b)]
        assert found == (BEFORE if at_ms < end_ms else [[3], []]), at_ms - began_ms


def test_records_are_kept_as_long_as_an_entry_may_be_read(warehouse, store, clock):
    move(warehouse)
    undecided(warehouse, both=False)
    a, b = (warehouse.table(name) for name in "ab")
    a.append({"p": [3], "k": [30]})
    transactions = {meta.key for meta in store.list("_txn")}
    assert len(transactions) == 2
    for number in range(24):
        warehouse.gc()
        assert joint_keys(opened(store, clock, 100 + number))[1] == keys(b)
        for table in (a, b):
            table.append({"p": [3], "k": [number]})
        if number < 3:
            assert {meta.key for meta in store.list("_txn")} == transactions
        clock.advance_s(DAY)
    assert not list(store.list("_txn"))
    assert all([*a.check()["is_passed"].to_pylist(), *b.check()["is_passed"].to_pylist()])


def test_records_of_tables_that_are_gone_are_collected(warehouse, store, clock):
    move(warehouse)
    for name in "ab":
        warehouse.drop_table(name)
    for _ in range(20):
        warehouse.gc()
        clock.advance_s(2 * DAY)
    assert not list(store.list("_txn"))


def test_what_was_moved_outlives_its_source(warehouse, store, clock):
    move(warehouse)
    warehouse.drop_table("a")
    b = warehouse.table("b")
    for number in range(20):
        warehouse.gc()
        b.append({"p": [3], "k": [number + 1000]})
        clock.advance_s(2 * DAY)
    assert keys(b)[:3] == [1, 2, 100]
    b.optimize(final=True)
    for number in range(20):
        warehouse.gc()
        b.append({"p": [4], "k": [number + 2000]})
        clock.advance_s(2 * DAY)
    assert {meta.key.partition("/")[0] for meta in store.list("")} == {"_catalog", b.handle.directory}


def test_a_coordinator_that_slept_does_not_believe_its_own_record(warehouse, store, clock):
    """It sleeps behind its entries; meanwhile all is given up, collected and cut."""
    a, b = (warehouse.table(name) for name in "ab")

    def sleep(_state):
        return [DropRange("1")]

    class Sleepy(FaultyStore):
        def create(self, key, data):
            if key.startswith("_txn") and not self.trace_done:
                self.trace_done = True
                other = opened(store, clock, 5)
                for number in range(40):
                    for name in "ab":
                        other.table(name).append({"p": [3], "k": [number]})
                    other.gc()
                    clock.advance_s(DAY)
                assert not list(store.list("_txn"))
            return super().create(key, data)

        trace_done = False

    slow = opened(Sleepy(store), clock, 2)
    with pytest.raises(UnavailableError, match="not known"):
        commit_over([Share(slow.table(name).handle, sleep) for name in "ab"])
    assert clock.monotonic_s() > HEAD_FRESHNESS_S
    seen = joint_keys(opened(store, clock, 6))
    assert 1 in seen[0]
    assert 100 in seen[1]
    assert keys(a)[:1]
    assert keys(b)
    for number in range(3):
        opened(store, clock, 7).gc()
        clock.advance_s(DAY * (1 + number))
    assert not list(store.list("_txn")), "the late record goes, too"


def test_a_hold_that_was_renewed_is_not_released(warehouse, store, clock, monkeypatch):
    """A collector looks whether the holder needs anything; before it commits, the holder takes the same parts again."""
    a, b = (warehouse.table(name) for name in "ab")
    b.attach_partition_from(1, source=a)
    b.drop_partition(1)
    for number in range(12):
        b.append({"p": [3], "k": [number]})
        collect_round(b.handle)
        clock.advance_s(2 * DAY)
    assert b.handle.directory in a.handle.log.state.holds
    real = collect.look_at_holders

    def looked(*arguments):
        found = real(*arguments)
        assert found.released
        opened(store, clock, 9).table("b").attach_partition_from(1, source=opened(store, clock, 10).table("a"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(collect, "look_at_holders", looked)
        a.gc()
    assert b.handle.directory in a.handle.refresh().holds
    warehouse.drop_table("a")
    for number in range(12):
        warehouse.gc()
        b.append({"p": [4], "k": [number]})
        clock.advance_s(2 * DAY)
    assert {1, 2} <= set(keys(b))


def test_logs_in_zookeeper_take_part(store, clock, monkeypatch):
    ensemble = FakeEnsemble()
    for module in (backends, migrate):
        monkeypatch.setattr(module, "keeper", lambda *_: FakeKeeper(ensemble))
    made = Warehouse(store, clock=clock, ids=SeededIds(1), author="me", threads=1, log="zookeeper://fake:2181/logs")
    schema = define({"p": "UInt8", "k": "UInt64"}, order_by="k", partition_by="p")
    for name, rows in (("a", {"p": [1, 1, 2], "k": [1, 2, 3]}), ("b", {"p": [1], "k": [100]})):
        made.create_table(name, schema).append(rows)
    handles, _ = undecided(made)
    other = opened(store, clock, 2)
    assert joint_keys(other) == BEFORE
    assert any("/logs" in path and b"Prepare" in node.data for path, node in ensemble.nodes.items())
    move(other)
    assert clock.now_ms() / 1000 - 1_700_000_000 >= PATIENCE_S, "the other one was given up"
    assert joint_keys(made) == joint_keys(opened(store, clock, 3)) == AFTER
    for handle in handles:
        handle.refresh()
        handle.log.backend.seal(handle.log.state.version)
    sealed = Warehouse(store, clock=clock, ids=SeededIds(4), author="sealed", threads=1, log="sealed")
    assert joint_keys(sealed) == AFTER


def test_tables_that_only_see_transactions_get_checkpoints(warehouse, store):
    a, b = (warehouse.table(name) for name in "ab")
    for _ in range(12):
        commit_over([Share(table.handle, lambda _: [DropRange("9")]) for table in (a, b)])
    for table in (a, b):
        names = [meta.key for meta in store.list(f"{table.handle.directory}/_log/checkpoints")]
        assert [name.rpartition("/")[2][18:20] for name in names if name.endswith(".arrow")] == ["08"]


def test_a_share_is_refused_once_its_record_may_be_gone(warehouse, clock):
    a = warehouse.table("a")
    late = Prepare("e" * 32, a.handle.log.state.version, (), (DropRange("1"),))
    for number in range(12):
        warehouse.gc()
        a.append({"p": [3], "k": [number]})
        clock.advance_s(10 * DAY)
    with pytest.raises(ConflictError, match="may have been collected"):
        a.handle.log.prepare(lambda _: late)


def test_members_of_others_cannot_bring_a_share():
    from mergelake.log.model.conflict import Reject, step
    from mergelake.log.model.fold import fold
    from mergelake.log.model.operations import CreateTable

    state = fold(fold_start(), [Entry(1, "x", 0, "", (CreateTable(define({"k": "UInt8"}, order_by="k")),))])
    share = Prepare("f" * 32, 1, (), (DropRange(),))
    assert isinstance(step(state, Entry(2, "y", 0, "", (share,))), Reject)


def fold_start():
    from mergelake.log.model.state import State

    return State()


def test_a_damaged_record_is_no_decision():
    data = encode_record(Record(True, {"a": (1, 2), "b": (3, 4)}, 7))
    assert decode_record(data) == Record(True, {"a": (1, 2), "b": (3, 4)}, 7)
    for at in range(len(data)):
        with pytest.raises(MergelakeError):
            decode_record(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
