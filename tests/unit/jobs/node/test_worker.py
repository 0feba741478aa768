"""One node's work on one table, a step at a time, and what goes wrong in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.core.base.errors import CorruptDataError, InvalidInputError, UnavailableError
from mergelake.jobs.merge.commit import merge_parts
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.node.actions import Build, Propose, PublishVolatile, Upload
from mergelake.log.model.operations import AddVolatile, AdoptVolatile, CancelVolatile, DropRange, Publish, RenewLease
from mergelake.store.objects.memory import MemoryStore
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.helpers.nodes import Lake, TinyNode

IDLE_S = 601


@pytest.fixture
def lake():
    lake = Lake()
    lake.insert(5)
    return lake


def operations(lake, kind):
    """The operations of one kind that are in the log."""
    lake.handle.refresh()
    return [op for entry in lake.handle.log.entries() for op in entry.ops if isinstance(op, kind)]


def hand_over(lake, owner):
    """The one volatile part, which from now on is somebody else's to build."""
    (part,) = lake.handle.refresh().volatile["all"]
    lake.handle.log.commit(lambda _: [AdoptVolatile(part.id, owner, part.owner)])
    return part


def test_merges_stay_on_the_disk_and_only_the_last_result_goes_to_the_store(lake):
    # M-017, M-019: making the bytes is no entry and retires nothing; publishing them retires what they cover
    node = TinyNode(lake)
    node.rest()
    lake.insert(4)
    node.rest()
    assert lake.live == ["all_1_9_2", "all_1_5_1"]
    assert node.local == ["all_1_9_2"]
    assert len(lake.objects()) == 9  # the inserts
    lake.clock.advance_s(IDLE_S)
    node.rest()
    assert lake.names == ["all_1_9_2"]
    assert lake.live == node.local == []
    assert len(lake.objects()) == 10
    assert lake.intact()
    assert (node.status.volatile_proposed, node.status.merges_done, node.status.volatile_published) == (2, 2, 1)
    (publish,) = operations(lake, Publish)
    assert publish.kind == "volatile"
    assert publish.part.base_version > 0


def test_a_large_result_is_uploaded_and_larger_merges_are_claimed_and_go_straight_to_the_store():
    lake = Lake(max_bytes_to_merge_volatile=60_000, write_amplification_target=3)
    node = TinyNode(lake)
    for _ in range(9):
        lake.insert(5, rows=400)
        node.rest()
    assert node.status.volatile_published > 1
    assert 0 < len(node.stored) < node.status.merges_done == node.status.volatile_proposed
    assert len(operations(lake, AddVolatile)) == node.status.volatile_proposed
    assert lake.intact()
    assert len(lake.names) < 10


def test_replacing_keeps_the_newest_of_each_key(lake):
    lake = Lake("ReplacingMergeTree(v)")
    lake.insert(5, rows=400)
    node = TinyNode(lake)
    node.rest()
    lake.clock.advance_s(IDLE_S)
    node.rest()
    assert lake.content() == sorted(dict(lake.rows).items())


def test_a_node_that_comes_back_keeps_what_is_whole_and_wanted(lake):
    # M-026
    node = TinyNode(lake)
    node.rest()
    disk = node.disk
    disk.put("t/half/files.packed", b"what was being written")
    again = TinyNode(lake, disk=disk)
    assert again.local == ["all_1_5_1"]
    (kept,) = again.worker.view().local.values()
    assert {item.key.split("/")[1] for item in disk.list("t")} == {"volatile", kept.manifest.id}
    assert again.due() == []
    lake.handle.log.commit(lambda _: [DropRange()])
    again.rest()
    assert again.local == []
    assert list(disk.list("")) == []


def test_a_disk_that_is_lost_or_cut_costs_work_and_no_row(lake):
    # M-007
    node = TinyNode(lake)
    node.rest()
    key = next(item.key for item in node.disk.list("t") if item.key.endswith("files.packed"))
    node.disk.put(key, node.disk.get(key)[:-1])
    for disk in (node.disk, MemoryStore()):
        again = TinyNode(lake, disk=disk)
        assert again.local == []
        again.rest()
        assert again.local == ["all_1_5_1"]
    lake.clock.advance_s(IDLE_S)
    again.rest()
    assert lake.names == ["all_1_5_1"]
    assert lake.intact()


def test_bytes_that_rot_on_the_disk_are_never_uploaded(lake):
    node = TinyNode(lake)
    node.rest()
    key = next(item.key for item in node.disk.list("t") if item.key.endswith("files.packed"))
    data = bytearray(node.disk.get(key))
    data[len(data) // 2] ^= 1
    node.disk.put(key, bytes(data))
    lake.clock.advance_s(IDLE_S)
    node.rest()
    assert node.status.merges_failed == 1
    assert lake.names == ["all_1_5_1"]
    assert lake.intact()


def test_rotten_local_sources_are_given_up_and_the_store_is_read_instead(lake):
    node = TinyNode(lake)
    node.rest()
    real, broken = node.build, [True]

    def build(handle, task, disk, unwanted):
        if broken and any(source.local for source in task.sources):
            broken.clear()
            raise CorruptDataError("a block is damaged")
        return real(handle, task, disk, unwanted)

    node.build = build
    lake.insert(4)
    node.rest()
    assert not broken
    assert node.local == ["all_1_9_2"]
    assert not operations(lake, CancelVolatile)


def test_what_cannot_be_built_is_cancelled_and_its_blocks_are_left_alone(lake):
    node = TinyNode(lake)
    real = node.build

    def build(handle, task, disk, unwanted):
        raise MemoryError("too large for this machine")

    node.build = build
    for _ in range(20):
        node.step()
        lake.clock.advance_s(10)
        if operations(lake, CancelVolatile):
            break
    assert node.status.merges_failed == 3
    assert lake.live == []
    assert node.due() == []  # it stays away
    node.build = real
    lake.clock.advance_s(400)
    node.rest()
    assert node.local == ["all_1_5_1"]


def test_uploads_that_fail_are_repeated_and_no_merge_is(lake):
    # M-003
    faulty = FaultyStore(
        lake.store, seed=3, rates={Fault.FAIL_BEFORE: 0.3, Fault.LOSE_REPLY: 0.2}, only=lambda kind, key: kind == "put"
    )
    node = TinyNode(lake, store=faulty)
    for _ in range(4):
        node.rest()
        lake.insert(4, rows=50)
    for _ in range(2):
        lake.clock.advance_s(IDLE_S)
        node.rest()
    assert node.status.merges_failed > 0
    assert node.status.merges_done == node.status.volatile_proposed
    assert lake.live == []
    assert lake.intact()
    assert len(lake.objects()) == 5 + 16 + node.status.volatile_published  # what failed left nothing


def test_who_loses_the_race_for_an_intention_leaves_no_trace(lake):
    # M-015, M-020
    one, two = TinyNode(lake, "one"), TinyNode(lake, "two")
    ((first,), (second,)) = one.due(), two.due()
    one.worker.perform(first)
    entries = lake.handle.refresh().version
    two.worker.perform(second)
    assert (two.status.merges_lost, two.status.merges_failed, two.status.volatile_proposed) == (1, 0, 0)
    assert lake.handle.refresh().version == entries
    assert list(two.disk.list("")) == []
    assert two.due() == []  # and what the winner took is a barrier


class Silent(MemoryStore):
    """Stores what it is told, and then does not answer about the log, for a while."""

    def __init__(self, name):
        super().__init__(name)
        self.silent = 0
        self.stores = True

    def create(self, key, data):
        if not self.silent or "_log/0" not in key:
            return super().create(key, data)
        if self.stores:
            super().create(key, data)
        raise UnavailableError("no reply")

    def get(self, key):
        if self.silent and "_log/0" in key:
            self.silent -= 1
            raise UnavailableError("no reply")
        return super().get(key)


@pytest.mark.parametrize("landed", [True, False])
def test_while_a_publish_is_not_known_to_have_landed_nothing_is_deleted_or_uploaded_again(landed):
    # M-018
    silent = Silent(f"silent-{landed}")
    lake = Lake(store=silent)
    lake.insert(5)
    node = TinyNode(lake, store=silent)
    node.rest()
    lake.clock.advance_s(IDLE_S)
    node.step(Upload)
    before = lake.objects()
    assert len(before) == 6
    (publish,) = (action for action in node.due() if isinstance(action, PublishVolatile))
    silent.silent, silent.stores = 12, landed
    node.worker.perform(publish)
    silent.silent = 0
    assert node.status.volatile_published == 0
    assert lake.objects() == before
    lake.clock.advance_s(100)
    node.rest()
    assert lake.objects() == before
    assert lake.names == ["all_1_5_1"]
    assert lake.intact()
    assert len(operations(lake, Publish)) == 1
    assert not node.worker.view().uploaded


def test_what_is_cancelled_by_another_is_dropped_wherever_it_is(lake):
    # M-015, M-018
    node = TinyNode(lake)
    node.step(Propose)
    (part,) = node.handle.refresh().volatile["all"]
    (build,) = node.due()
    node.worker.start(build)
    lake.handle.refresh()
    lake.handle.log.commit(lambda _: [CancelVolatile((part.id,))])
    node.handle.refresh()
    node.worker.finish(build)
    assert list(node.disk.list("")) == []
    assert node.status.merges_failed == 0

    node.step(Propose)
    node.step(Build)
    lake.clock.advance_s(IDLE_S)
    node.step(Upload)
    assert len(lake.objects()) == 6
    lake.handle.refresh()
    lake.handle.log.commit(lambda _: [DropRange()])
    node.rest()
    assert len(lake.objects()) == 5  # its own attempt is gone, nothing else
    assert list(node.disk.list("")) == []
    assert not node.worker.view().uploaded


def test_two_nodes_upload_the_same_and_one_of_them_lands(lake):
    # M-018
    one, two = TinyNode(lake, "one"), TinyNode(lake, "two")
    one.rest()
    part = hand_over(lake, "two")
    two.rest()
    one.handle.refresh()
    lake.clock.advance_s(IDLE_S)
    upload = Upload("t", part.id)
    for node in (one, two):
        node.worker.perform(upload)
    assert len(lake.objects()) == 7
    two.worker.perform(PublishVolatile("t", part.id))
    one.worker.perform(PublishVolatile("t", part.id))
    assert lake.names == ["all_1_5_1"]
    assert len(lake.objects()) == 6
    assert lake.intact()
    one.rest()
    assert one.status.results_different == 0


def test_rows_that_differ_from_what_another_node_published_are_dropped_with_an_alarm(lake, caplog):
    one, two = TinyNode(lake, "one"), TinyNode(lake, "two")
    real = one.build
    one.build = lambda handle, task, *rest: real(handle, replace(task, sources=task.sources[1:]), *rest)
    one.rest()
    hand_over(lake, "two")
    two.rest()
    lake.clock.advance_s(IDLE_S)
    two.rest()
    one.rest()
    assert lake.intact()
    assert (one.status.results_different, two.status.results_different) == (1, 0)
    assert one.local == []
    assert "other rows" in caplog.text


def test_an_inner_part_that_was_published_meanwhile_costs_no_new_upload(lake):
    # M-019
    node = TinyNode(lake)
    node.rest()
    other = TinyNode(lake, "other")
    hand_over(lake, "other")
    other.rest()
    lake.insert(4)
    (live,) = lake.handle.refresh().volatile["all"]
    other.worker.perform(Upload("t", live.id))
    node.step(Propose)  # on the bytes that it has
    node.step(Build)
    lake.clock.advance_s(IDLE_S)
    node.step(Upload)
    other.step(PublishVolatile)
    assert lake.names[0] == "all_1_5_1"
    node.rest()
    assert lake.names == ["all_1_9_2"]
    assert lake.intact()
    assert node.status.volatile_published == 1


def test_a_node_that_leaves_gives_up_what_it_owns_and_its_lease(lake):
    # M-096
    node = TinyNode(lake)
    node.step(Propose)
    assert node.worker.owns()
    assert operations(lake, RenewLease)
    node.handle.refresh()
    node.worker.leave()
    assert lake.live == []
    assert not lake.handle.refresh().leases
    other = TinyNode(lake, "other")
    other.rest()
    assert other.local == ["all_1_5_1"]


def test_what_others_have_built_on_a_part_is_not_taken_from_them(lake):
    one, two = TinyNode(lake, "one"), TinyNode(lake, "two")
    one.rest()
    hand_over(lake, "two")
    two.rest()
    lake.insert(4)
    one.step(Propose)  # outer, owned by one, on an inner part of two
    two.handle.refresh()
    assert not two.worker.owns()
    two.worker.leave()
    assert len(lake.live) == 2


def test_a_silent_owner_is_replaced_after_the_time_of_a_lease_and_not_before(lake):
    # M-016
    gone, heir = TinyNode(lake, "gone"), TinyNode(lake, "heir")
    gone.step(Propose)
    assert heir.due() == []
    lake.clock.advance_s(59)
    assert heir.due() == []
    lake.clock.advance_s(1)
    heir.rest()
    assert heir.status.volatile_adopted == 1
    assert heir.local == ["all_1_5_1"]
    lake.clock.advance_s(IDLE_S)
    gone.rest()  # it wakes up: somebody else builds it now
    heir.rest()
    assert lake.names == ["all_1_5_1"]
    assert lake.intact()


def test_a_node_without_a_disk_takes_over_by_writing_to_the_store(lake):
    gone, heir = TinyNode(lake, "gone"), TinyNode(lake, "heir", has_disk=False)
    gone.rest()
    assert heir.due() == []
    lake.clock.advance_s(60)
    heir.rest()
    assert heir.status.volatile_adopted == len(heir.stored) == 1
    assert lake.names == ["all_1_5_1"]
    assert lake.intact()
    gone.rest()
    assert gone.local == []
    assert gone.status.results_different == 0


def test_what_is_in_the_store_when_a_node_leaves_is_published(lake):
    # M-096
    node = TinyNode(lake)
    node.rest()
    node.step(Upload, draining=True)
    node.worker.leave()
    assert lake.names == ["all_1_5_1"]
    assert not lake.handle.refresh().leases
    assert lake.intact()


def test_a_user_who_optimizes_does_not_wait_for_what_nodes_meant_to_do(lake):
    node = TinyNode(lake)
    node.rest()
    state = lake.handle.refresh()
    merge_parts(lake.handle, plan_merge("t", state.schema, list(state.parts()), "optimize", state.version))
    assert lake.names == ["all_1_5_1"]
    assert lake.live == []
    node.rest()
    assert node.local == []
    assert lake.intact()


def test_a_published_part_is_read_from_the_disk_while_it_is_cached_there():
    lake = Lake(write_amplification_target=0)
    lake.insert(5)
    node = TinyNode(lake, cache_bytes=1 << 20)
    node.rest()
    lake.clock.advance_s(IDLE_S)
    node.rest()
    assert node.local == ["all_1_5_1"]
    lake.insert(4)
    made = []
    real = node.build
    node.build = lambda handle, task, *rest: made.append(task) or real(handle, task, *rest)
    node.rest()
    assert [source.local for source in made[0].sources] == [True, False, False, False, False]
    lake.clock.advance_s(IDLE_S)
    node.rest()
    assert lake.names == ["all_1_9_2"]
    assert lake.intact()


class FullDisk(MemoryStore):
    """Takes so many bytes, and no more."""

    left = 0

    def put(self, key, data):
        if len(data) > self.left:
            raise InvalidInputError("No space left on device", name="NOT_ENOUGH_SPACE")
        self.left -= len(data)
        super().put(key, data)


@pytest.mark.parametrize("left", [0, 500, 2000])
def test_a_disk_that_turns_out_to_be_full_sends_the_merge_to_the_store(lake, left):
    disk = FullDisk()
    disk.left = left
    node = TinyNode(lake, disk=disk)
    node.rest()
    assert lake.names == ["all_1_5_1"]
    assert node.status.merges_past_disk == 1
    assert node.status.merges_failed == 0
    assert lake.intact()
    assert list(disk.list("")) == []


def test_without_room_on_the_disk_everything_is_merged_in_the_store(lake):
    node = TinyNode(lake, disk_free_bytes=0)
    for _ in range(3):
        node.rest()
        lake.insert(5)
    node.rest()
    assert len(lake.names) < 5
    assert node.status.merges_past_disk == node.status.merges_done > 0
    assert node.local == []
    assert lake.intact()


def work(lake, disk, store) -> None:
    """Merge, merge again, upload, publish."""
    node = TinyNode(lake, "a", disk=disk, store=store)
    node.rest()
    lake.insert(4)
    node.rest()
    lake.clock.advance_s(IDLE_S)
    node.rest()


@pytest.mark.parametrize("where", ["store", "disk"])
def test_a_node_may_die_at_any_request(where):
    # M-007, M-018: nothing is lost, nothing is doubled, and whoever comes next finishes
    lake = Lake()
    lake.insert(5)
    counting = FaultyStore(lake.store if where == "store" else MemoryStore())
    work(lake, counting if where == "disk" else MemoryStore(), counting if where == "store" else lake.store)
    assert lake.names == ["all_1_9_2"]
    # To die after a request that changes nothing is to die after the one before.
    changes = [n for n, line in enumerate(counting.trace) if line.split()[0] in ("put", "create", "delete")]
    assert len(changes) > 4
    for number in changes:
        lake = Lake()
        lake.insert(5)
        disk = MemoryStore()
        faulty = FaultyStore(lake.store if where == "store" else disk, script={number: Fault.CRASH_AFTER})
        with pytest.raises(SimulatedCrash):
            work(lake, faulty if where == "disk" else disk, faulty if where == "store" else lake.store)
        assert lake.intact(), number
        lake.insert(9 - len(lake.rows) // 20)
        for heir in (TinyNode(lake, "a", disk=disk), TinyNode(lake, "b")):
            for _ in range(2):
                lake.clock.advance_s(IDLE_S)
                heir.rest()
        assert lake.live == [], number
        assert len(lake.names) <= 2, number
        assert lake.intact(), number
