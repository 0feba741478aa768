"""A whole log that was copied in batches: opened in the middle of one, looked back at, verified, cut, taken over."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.log.backends import batches
from mergelake.log.backends.backends import Backends
from mergelake.log.commit.migrate import take_over
from mergelake.log.model.operations import AddParts, CreateTable, Entry, MoveLog
from mergelake.log.storage.encoding import encode_entry
from mergelake.log.storage.machine import TableMachine
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import SCHEMA, manifest, open_log

ZOO = "zookeeper://gone:2181/logs/1"
SEALED = Backends("sealed")
LAST = 100
MIDDLE = [1, 40, 63, 64, 65, 96, 97, 99, 100]


class Gone(Backends):
    """A ZooKeeper that does not answer."""

    def of(self, sequencer, *arguments, **options):
        backend = SEALED.of(sequencer, *arguments, **options)
        if sequencer.url:
            backend.end = self._silent
        return backend

    @staticmethod
    def _silent():
        raise UnavailableError("a test")


def entry(version):
    ops = (CreateTable(SCHEMA), MoveLog(ZOO)) if version == 1 else (AddParts((manifest(version),)),)
    return encode_entry(Entry(version, f"{version:032x}", 1000 + version, "me", ops))


def copied(last=LAST, batch_max=64):
    """The bucket of a log that lies in ZooKeeper from version 2 on."""
    store, first = MemoryStore(), 2
    store.create(f"t/_log/{1:020d}.json", entry(1))
    while first <= last:
        count = min(batches.longest(first, [1] * (last - first + 1)), batch_max)
        entries = [entry(version) for version in range(first, first + count)]
        store.create(f"t/_log/{first:020d}.json", batches.encode(entries))
        first += count
    return store


def with_checkpoint(version):
    """The same, and a checkpoint at a version."""
    store, short = copied(), copied(version)
    open_log(short, backends=SEALED).write_checkpoint()
    for item in list(short.list("t/_log")):
        if "checkpoint" in item.key:
            store.put(item.key, short.get(item.key))
    return store


@pytest.mark.parametrize("version", MIDDLE)
def test_whoever_opens_at_a_checkpoint_reads_the_rest(version):
    plain = open_log(copied(batch_max=1), backends=SEALED)
    store = with_checkpoint(version)
    log = open_log(store, backends=SEALED)
    assert log.state == plain.state
    assert log.state.version == LAST
    for at in (version, version + 1, 70, 71):
        if at <= LAST:
            assert log.state_at(at) == plain.state_at(at)
    assert [each.version for each in log.entries(69, LAST)] == list(range(69, LAST + 1))
    report = log.verify()
    assert (report.problems, report.last, report.entries) == ([], LAST, LAST)
    assert log.stored_ms(70) is not None


@pytest.mark.parametrize("version", MIDDLE)
def test_a_takeover_goes_on_behind_the_last_batch(version):
    store = with_checkpoint(version)
    run = {"clock": ManualClock(1_800_000_000_000), "ids": SeededIds(5)}
    with pytest.raises(UnavailableError):
        take_over(store, "t/_log", TableMachine(), Gone(), **run)
    assert take_over(store, "t/_log", TableMachine(), Gone(), force=True, **run).version == LAST + 1
    log = open_log(store, seed=6)
    log.commit(lambda _: [AddParts((manifest(500),))])
    assert log.state.version == LAST + 2
    assert [part.manifest.id for part in open_log(store).state.parts()][-2:] == [f"{LAST:032x}", f"{500:032x}"]
    assert open_log(store).state_at(70).version == 70
    assert open_log(store).verify().problems == []


def test_who_opens_a_log_behind_a_checkpoint_reads_an_object_for_many_entries():
    store = with_checkpoint(64)
    before = store.counters
    log = open_log(store, backends=SEALED)
    spent = store.counters - before
    assert log.state.version == LAST
    # The hint, the checkpoint, 65 to 96, 97 to 100; the end, and twice more what is behind the end.
    assert spent.list == 0
    assert spent.get <= 10


def test_a_damaged_batch_is_found_wherever_one_begins():
    for version in (40, 80):
        store = with_checkpoint(version)
        key = f"t/_log/{65:020d}.json"
        data = store.get(key)
        store.put(key, b"x" + data[1:])
        with pytest.raises(Exception, match=r"CORRUPT") as caught:
            open_log(store, backends=SEALED)
        assert "0000065" in str(caught.value) or "0000081" in str(caught.value)
