"""What was committed stays committed, whatever goes wrong while its outcome is being learned."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, InvalidInputError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.log.model.operations import AddParts, Publish
from mergelake.log.storage import checkpoint
from mergelake.store.interface.protocol import OutcomeUnknown, Stored
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.deduplication import InsertIdentity
from mergelake.table.write.insert import commit_parts
from tests.helpers.manifests import manifest, new_log, open_log, schema_with


class DeniedAfterwards(MemoryStore):
    """Stores what is created, loses the reply, and from then on refuses this process (its credentials ran out)."""

    denied = False

    def create(self, key, data):
        if self.denied:
            raise InvalidInputError("access denied", name="S3_ERROR")
        outcome = super().create(key, data)
        self.denied = True
        return OutcomeUnknown("cut off") if isinstance(outcome, Stored) else outcome

    def get(self, key):
        if self.denied:
            raise InvalidInputError("access denied", name="S3_ERROR")
        return super().get(key)


def handle_of(store, log):
    return TableHandle(store, "t", log, clock=ManualClock(), ids=SeededIds(3))


def test_an_insert_whose_outcome_may_not_be_looked_up_keeps_its_objects():
    store = MemoryStore()
    new_log(store)
    weak = DeniedAfterwards()
    weak._space = store._space
    part = manifest(1)
    store.put(f"t/{part.id}/files.packed", b"rows")
    with pytest.raises(UnavailableError, match=r"not known.*access denied"):
        commit_parts(handle_of(weak, open_log(weak)), [part])
    assert [p.manifest.id for p in open_log(store).state.parts()] == [part.id]
    assert store.get(f"t/{part.id}/files.packed") == b"rows"


def test_a_refusal_before_anything_was_sent_is_told_as_it_is():
    store = MemoryStore()
    new_log(store)
    weak = DeniedAfterwards()
    weak._space = store._space
    log = open_log(weak)
    weak.denied = True
    with pytest.raises(InvalidInputError, match="access denied"):
        log.commit(lambda _: [AddParts((manifest(1),))])


@pytest.mark.parametrize("problem", [KeyError("a field"), TypeError("too large"), InvalidInputError("denied")])
def test_a_checkpoint_that_cannot_be_written_does_not_undo_its_commit(problem, monkeypatch, caplog):
    store = MemoryStore()
    log = new_log(store, schema_with(checkpoint_interval=1))
    part = manifest(1)
    store.put(f"t/{part.id}/files.packed", b"rows")

    def refuse(*_):
        raise problem

    with monkeypatch.context() as refusing:
        refusing.setattr(checkpoint, "encode_checkpoint", refuse)
        assert commit_parts(handle_of(store, log), [part]).version == 2
    assert store.get(f"t/{part.id}/files.packed") == b"rows"
    assert "no checkpoint of t/_log at version 2" in caplog.text
    assert "at version 2" in log.checkpoint_failure
    commit_parts(handle_of(store, log), [manifest(2)])
    assert not log.checkpoint_failure


def test_a_part_is_never_added_twice():
    """Trying a commit of unknown outcome again with the same manifests must not double its rows."""
    store = MemoryStore()
    log = new_log(store)
    log.commit(lambda _: [AddParts((manifest(1), manifest(2)))])
    with pytest.raises(ConflictError, match="in the table"):
        log.commit(lambda _: [AddParts((manifest(2),))])
    with pytest.raises(ConflictError, match="in the table"):
        log.commit(lambda _: [AddParts((manifest(3), manifest(3)))])
    both = tuple(part.manifest.id for part in log.state.parts())
    log.commit(lambda _: [Publish(manifest(9), both)])
    with pytest.raises(ConflictError, match="in the table"):
        log.commit(lambda _: [AddParts((manifest(1),))])
    with pytest.raises(ConflictError, match="in the table"):
        log.commit(lambda _: [Publish(manifest(9), (manifest(9).id,))])
    assert log.state.row_count == 10


def test_the_objects_of_a_part_that_is_in_the_table_survive_a_second_commit_of_it():
    store = MemoryStore()
    log = new_log(store)
    part = manifest(1)
    store.put(f"t/{part.id}/files.packed", b"rows")
    handle = handle_of(store, log)
    commit_parts(handle, [part])
    with pytest.raises(ConflictError):
        commit_parts(handle, [part])
    assert store.get(f"t/{part.id}/files.packed") == b"rows"


def test_a_token_of_a_commit_that_is_repeated_with_the_same_parts_keeps_their_objects():
    store = MemoryStore()
    log = new_log(store)
    part = manifest(1)
    store.put(f"t/{part.id}/files.packed", b"rows")
    handle = handle_of(store, log)
    commit_parts(handle, [part], InsertIdentity("token"))
    assert commit_parts(handle, [part], InsertIdentity("token")).duplicate
    assert store.get(f"t/{part.id}/files.packed") == b"rows"


def test_a_reply_that_is_cut_off_while_the_outcome_is_learned_is_asked_for_again():
    class Cut(MemoryStore):
        cuts = 3

        def create(self, key, data):
            super().create(key, data)
            return OutcomeUnknown("cut off")

        def get(self, key):
            data = super().get(key)
            if key.endswith(".json") and self.cuts:
                self.cuts -= 1
                return data[:-7]
            return data

    store = MemoryStore()
    new_log(store)
    cut = Cut()
    cut._space = store._space
    log = open_log(store)
    log._store = log._reader._store = cut
    log._reader._bucket._store = log.backend._store = cut
    assert log.commit(lambda _: [AddParts((manifest(1),))]).version == 2
    assert open_log(store).state == log.state
