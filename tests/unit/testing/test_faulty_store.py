"""The faulty store does what it says, and the same again for the same seed."""

from __future__ import annotations

import pytest

from mergelake.core.base.errors import CorruptDataError, UnavailableError
from mergelake.store import OutcomeUnknown
from mergelake.store.objects.memory import MemoryStore
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash


def test_before_and_after_differ_only_in_the_store() -> None:
    store = FaultyStore(MemoryStore(), script={0: Fault.FAIL_BEFORE, 1: Fault.LOSE_REPLY, 2: Fault.LOSE_REPLY})
    assert isinstance(store.create("a", b"1"), OutcomeUnknown)
    assert isinstance(store.create("b", b"1"), OutcomeUnknown)
    with pytest.raises(UnavailableError):
        store.put("c", b"1")
    assert [meta.key for meta in store.list("")] == ["b", "c"]
    assert store.trace[:2] == ["create a: fail before", "create b: lose reply"]


def test_reads_can_be_cut() -> None:
    store = FaultyStore(MemoryStore(), rates={Fault.TRUNCATE: 1.0}, only=lambda kind, key: kind == "get")
    store.put("k", b"12345678")
    assert store.get("k") == b"1234"
    with pytest.raises(CorruptDataError):
        store.get_range("k", 0, 4)


def test_after_a_crash_nothing_works() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, script={1: Fault.CRASH_AFTER})
    store.put("a", b"")
    with pytest.raises(SimulatedCrash):
        store.put("b", b"")
    with pytest.raises(SimulatedCrash):
        store.delete(["a"])
    assert [meta.key for meta in inner.list("")] == ["a", "b"]


def test_a_seed_repeats_its_faults() -> None:
    def trace(seed: int) -> list[str]:
        store = FaultyStore(MemoryStore(), seed=seed, rates={Fault.FAIL_BEFORE: 0.2, Fault.LOSE_REPLY: 0.2})
        for number in range(50):
            store.create(str(number), b"")
        return store.trace

    assert trace(1) == trace(1) != trace(2)
    assert 10 < sum(":" in line for line in trace(1)) < 30
