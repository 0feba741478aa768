"""The probe accepts honest stores and refuses the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from mergelake.core.base.errors import InvalidInputError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.store import Buffer, PutOutcome, Stored, open_store
from mergelake.store.objects.memory import MemoryStore
from mergelake.store.objects.probe import probe_create_if_absent
from mergelake.testing.faulty_store import Fault, FaultyStore


class OverwritingStore(MemoryStore):
    """As an S3 look-alike that ignores `If-None-Match`."""

    def create(self, key: str, data: Buffer) -> PutOutcome:
        self.put(key, data)
        return Stored()


class ForgetfulStore(MemoryStore):
    """Says that it stored, and did not."""

    def create(self, key: str, data: Buffer) -> PutOutcome:
        if not any(meta.key == key for meta in self.list("")):
            self.put(key, b"something else")
            return Stored()
        return super().create(key, data)


def test_honest_stores_pass_and_nothing_is_left(tmp_path: Path) -> None:
    for store in (MemoryStore(), open_store(str(tmp_path))):
        probe_create_if_absent(store, SeededIds())
        assert list(store.list("")) == []
        assert store.counters.put == 2


@pytest.mark.parametrize("liar", [OverwritingStore, ForgetfulStore])
def test_a_store_that_lies_is_refused(liar: type[MemoryStore]) -> None:
    store = liar()
    with pytest.raises(InvalidInputError, match="no reliable create-if-absent") as caught:
        probe_create_if_absent(store, SeededIds())
    assert "SUPPORT_IS_DISABLED" in str(caught.value)
    assert list(store.list("")) == []


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_REPLY])
def test_an_unclear_answer_is_no_verdict(number: int, fault: Fault) -> None:
    store = FaultyStore(MemoryStore(), script={number: fault})
    with pytest.raises(UnavailableError, match="no clear answer"):
        probe_create_if_absent(store, SeededIds())
    assert list(store.inner.list("")) == []
