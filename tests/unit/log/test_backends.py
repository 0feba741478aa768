"""Where logs lie: addresses, sequencers, waiting; without a server."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import InvalidInputError, UnsupportedError
from mergelake.log.backends.backend import ObjectBackend, SealedBackend
from mergelake.log.backends.backends import Backends, split_options
from mergelake.log.backends.keeper import Address
from mergelake.log.commit.migrate import place_of_new, take_over
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import CreateDatabase, DropTable, Entry, MoveLog
from mergelake.log.model.sequencer import BUCKET, Sequencer
from mergelake.log.storage.catalog import CatalogMachine, CatalogState
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.log.storage.machine import TableMachine
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import SeededIds, new_log, open_log

ZOO = "zookeeper://h1:2181,h2:2181/logs"


def test_an_address_is_read_and_written_without_its_secrets():
    address = Address.parse("zookeeper://ann:se%40cret@h1:2181,h2:2182/logs/?timeout_s=2.5&tls=true")
    assert (address.hosts, address.root, address.user) == ("h1:2181,h2:2182", "/logs", "ann:se@cret")
    assert (address.option("timeout_s"), address.option("tls"), address.option("ca")) == ("2.5", "true", "")
    assert address.public == "zookeeper://h1:2181,h2:2182/logs"
    assert Address.parse("zookeeper://h").root == "/mergelake"


@pytest.mark.parametrize(
    "wrong", ["h1:2181", "s3://bucket", "zookeeper://", "zookeeper:///x", ZOO + "?x=1", ZOO + "?timeout_s=0", "SEALED"]
)
def test_what_is_no_place_for_a_log_is_refused_with_the_way_out(wrong):
    with pytest.raises(InvalidInputError, match="BAD_ARGUMENTS") as caught:
        Backends(wrong)
    assert "zookeeper://" in str(caught.value) or "timeout_s" in str(caught.value)


def test_a_refusal_does_not_print_the_password():
    with pytest.raises(InvalidInputError) as caught:
        Address.parse("zookeeper://ann:secret@h1/x?time=1")
    assert "secret" not in str(caught.value)


def test_the_environment_says_where_logs_are_unless_the_caller_does(monkeypatch):
    monkeypatch.setenv("MERGELAKE_LOG", ZOO)
    assert Backends().log == ZOO
    assert Backends("").address is None
    assert split_options({"log": "sealed", "region": "x"}) == ({"region": "x"}, "sealed")
    assert split_options(None) == ({}, None)


def test_new_logs_are_made_where_the_user_says_or_else_where_the_catalogs_is():
    catalog = Sequencer("zookeeper://h3:1/logs/0123", 1)
    assert place_of_new(Backends(""), BUCKET) is None
    assert place_of_new(Backends("bucket"), catalog) is None
    assert place_of_new(Backends(""), catalog).public == "zookeeper://h3:1/logs"
    assert place_of_new(Backends(ZOO), BUCKET).public == place_of_new(Backends(ZOO), catalog).public == ZOO
    assert place_of_new(Backends("sealed"), BUCKET) is None
    with pytest.raises(InvalidInputError, match="READONLY"):
        place_of_new(Backends("sealed"), catalog)


def test_a_log_in_the_bucket_is_not_taken_over():
    store, clock = MemoryStore(), ManualClock()
    log = new_log(store, clock=clock)
    done = take_over(store, "t/_log", TableMachine(), Backends(""), clock=clock, ids=SeededIds(), force=True)
    assert (done.version, done.sequencer, done.ended) == (0, "", None)
    assert log.refresh().version == 1
    with pytest.raises(UnsupportedError):
        log.backend.end()


def test_a_state_says_where_its_log_goes_on():
    log = new_log(MemoryStore())
    machine, state = TableMachine(), log.state
    moved = machine.step(state, Entry(2, "a", 0, "", (MoveLog(ZOO),)))
    assert moved.sequencer == Sequencer(ZOO, 2)
    assert decode_checkpoint(encode_checkpoint(moved)) == moved
    assert isinstance(machine.step(moved, Entry(3, "b", 0, "", (MoveLog(ZOO),))), Reject)
    back = machine.step(moved, Entry(3, "b", 0, "", (DropTable(), MoveLog())))
    assert back.sequencer == Sequencer("", 3)
    assert isinstance(machine.step(state, Entry(2, "a", 0, "", (MoveLog(),))), Reject)


def test_a_catalog_says_where_its_log_goes_on():
    machine = CatalogMachine()
    moved = machine.step(CatalogState(), Entry(1, "a", 0, "", (CreateDatabase("d"), MoveLog(ZOO))))
    assert moved.sequencer == Sequencer(ZOO, 1)
    assert machine.decode(machine.encode(moved), "") == moved
    assert isinstance(machine.step(moved, Entry(2, "b", 0, "", (MoveLog(ZOO),))), Reject)
    assert machine.step(moved, Entry(2, "b", 0, "", (MoveLog(),))).sequencer == Sequencer("", 2)


def test_waiting_polls_less_and_less_often():
    store, clock = MemoryStore(), ManualClock()
    backend = ObjectBackend(store, "t/_log", clock=clock)
    before = store.counters
    assert not backend.wait(1, 10)
    assert 12 < (store.counters - before).get < 18
    before = store.counters
    assert not backend.wait(1, 10, poll_s=5)
    assert (store.counters - before).get == 2


def test_a_log_that_waits_asks_no_more_than_its_polls():
    store, clock = MemoryStore(), ManualClock()
    log = new_log(store, clock=clock)
    before = store.counters
    assert log.wait(3, 3) is log.state
    assert (store.counters - before).requests == 1
    other = open_log(store, clock=clock)
    other.commit(lambda _: [DropTable()])
    assert log.wait(3, 3).dropped


def test_what_is_sealed_is_read_and_nothing_else():
    store, clock = MemoryStore(), ManualClock()
    bucket = ObjectBackend(store, "t/_log", clock=clock)
    sealed = SealedBackend(bucket, ZOO)
    bucket.create(1, b"one")
    assert sealed.read_all([1, 2]) == [b"one", None]
    with pytest.raises(InvalidInputError, match=r"only read.*seal"):
        sealed.create(2, b"two")
    assert sealed.truncate(5) == 0
    assert bucket.read(1) == b"one"
