"""Bytes written over the life of a table: counted by the fold, kept in checkpoints, by who asked for them."""

from __future__ import annotations

from dataclasses import replace

from mergelake.log.model.operations import AddParts, Decision, DropRange, Prepare, Publish
from mergelake.log.model.state import State, WrittenBytes
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint, state_hash
from tests.helpers.manifests import manifest
from tests.helpers.volatile import Shared


def test_inserts_merges_and_requests_are_counted_apart_and_for_ever():
    shared = Shared()
    shared.insert(4, size=100)
    shared.publish(shared.intend(0, 2), manifest(shared.new_id(), bytes_on_disk=150))
    first, *_, last = shared.state.partitions["all"]
    assert shared.state.written == WrittenBytes(400, 150, 0)
    ids = tuple(part.manifest.id for part in shared.state.partitions["all"])
    shared.commit(Publish(manifest(shared.new_id(), bytes_on_disk=330), ids, "optimize"))
    assert shared.state.written == WrittenBytes(400, 150, 330)
    shared.commit(DropRange("all", "detach"))
    (detached,) = shared.state.detached
    again = (detached.manifest,)
    shared.commit(
        AddParts(tuple(manifest(shared.new_id(), bytes_on_disk=330) for _ in again), detached=(detached.manifest.id,))
    )
    assert shared.state.written == WrittenBytes(400, 150, 330)  # what is attached again was counted
    assert shared.state.written.amplification == 1 + 150 / 400
    assert (first.manifest.id, last.manifest.id) == (ids[0], ids[-1])


def test_parts_of_other_tables_are_counted_like_inserted_ones():
    shared = Shared()
    parts = (manifest(shared.new_id(), bytes_on_disk=70),)
    shared.commit(Prepare("f" * 32, 1, (), (AddParts(parts),), Decision(committed=False)))
    assert shared.state.written == WrittenBytes()
    shared.commit(Prepare("e" * 32, 1, (), (AddParts(parts),), Decision(committed=True)))
    assert shared.state.written == WrittenBytes(70)


def test_a_checkpoint_keeps_them_and_its_hash_is_that_of_before_there_were_any():
    shared = Shared()
    shared.insert(3, size=7)
    state = shared.state
    again = decode_checkpoint(encode_checkpoint(state))
    assert again.written == WrittenBytes(21)
    assert state_hash(replace(state, written=WrittenBytes(5, 6, 7))) == state_hash(state)
    assert State().written == WrittenBytes()
