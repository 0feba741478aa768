"""What a node does next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import GIB, MIB
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.node.actions import (
    Abandon,
    Adopt,
    Build,
    Discard,
    Merge,
    NodeView,
    Propose,
    PublishVolatile,
    Renew,
    TableView,
    Upload,
)
from mergelake.jobs.node.plan import tick
from mergelake.log.model.operations import (
    AdoptVolatile,
    AlterMetadata,
    CancelVolatile,
    DropRange,
    KillMutation,
    Mutation,
    Publish,
    RenewLease,
)
from mergelake.log.model.volatile import element_id
from tests.helpers.manifests import SCHEMA, manifest, schema_with
from tests.helpers.volatile import Shared, here, only, plan

SLOTS = MergeSlots(total=3, lower_at_free=1, whole_partition_at_free=1)
DIRECT = schema_with(merge_upload_policy="direct")


def blocks(shared: Shared, action: Merge | Propose) -> list[tuple[int, int]]:
    """First and last block of each source."""
    if isinstance(action, Merge):
        return [(part.info.min_block, part.info.max_block) for part in action.sources]
    places = {element_id(e): (e.info.min_block, e.info.max_block) for e in shared.elements(action.partition_id)}
    return [places[source] for source in action.source_ids]


def stored_ids(shared: Shared) -> tuple[str, ...]:
    return tuple(part.manifest.id for part in shared.state.partitions["all"])


def table(name: str, parts: int, **view) -> TableView:
    shared = Shared(DIRECT)
    shared.insert(parts)
    return TableView(name, shared.state, **view)


def merges(tables, slots=SLOTS) -> list:
    return tick(NodeView("me", 1_700_000_100_000, slots), tables)


# -- merges straight to the store ------------------------------------------------------------------


def test_a_table_with_many_small_parts_gets_a_merge_of_neighbours():
    (work,) = merges([table("t1", 12)], MergeSlots(total=1))
    assert isinstance(work, Merge)
    first = [part.info.min_block for part in work.sources]
    assert len(first) >= 2
    assert first == list(range(first[0], first[0] + len(first)))


def test_never_more_work_than_free_slots():
    tables = [table(f"t{n}", 30) for n in range(5)]
    assert len(merges(tables)) == 3
    tables[0] = replace(tables[0], merging={frozenset({"x"}): "all", frozenset({"y"}): "all"})
    assert len(merges(tables)) == 1
    tables[1] = replace(tables[1], building=frozenset({"z"}))
    assert merges(tables) == []


def test_tables_take_turns_and_the_fullest_comes_first():
    works = merges([table("t1", 20), table("t2", 40)])
    assert [work.table_id for work in works[:2]] == ["t2", "t1"]


def test_parts_that_are_being_merged_are_not_taken_again():
    busy = table("t1", 40)
    (first,) = merges([busy], MergeSlots(total=1))
    later = merges([replace(busy, merging={first.part_ids: "all"})])
    assert all(not (work.part_ids & first.part_ids) for work in later)


def test_nothing_to_do_starts_nothing():
    assert merges([table("t1", 1), table("t2", 0)]) == []


def test_a_table_in_trouble_gets_a_pause_and_the_others_go_on():
    works = merges([table("t1", 20, waits=True), table("t2", 10)])
    assert {work.table_id for work in works} == {"t2"}


def test_blocks_that_could_not_be_merged_are_left_alone():
    # M-028
    works = merges([table("t1", 21, avoided=(PartInfo("all", 11, 11, 0),))])
    assert all(part.info.max_block < 11 or part.info.min_block > 11 for work in works for part in work.sources)


def test_a_node_without_a_disk_claims_what_it_merges_and_uses_what_is_in_the_store():
    shared = Shared()
    shared.insert(12)
    assert only(plan(shared, {"disk": False}), Propose)
    mine = shared.intend(0, 10)
    assert only(plan(shared, {"disk": False}), Build) == [Build("t", mine.id)]


# -- what is proposed ------------------------------------------------------------------------------


def test_a_merge_of_small_parts_on_a_node_with_a_disk_becomes_a_volatile_part():
    shared = Shared()
    shared.insert(6)
    (proposal,) = only(plan(shared), Propose)
    assert blocks(shared, proposal) == [(n, n) for n in range(1, 7)]


def test_a_table_whose_policy_is_direct_has_no_volatile_parts():
    shared = Shared(DIRECT)
    shared.insert(6)
    assert only(plan(shared), Merge)
    assert not only(plan(shared), Propose)


def test_a_merge_that_is_not_the_same_whenever_it_runs_is_never_volatile():
    graphite = replace(SCHEMA, engine="GraphiteMergeTree")
    shared = Shared(graphite.with_settings({"merge_upload_policy": "volatile"}))
    shared.insert(6)
    assert not only(plan(shared), Propose)


def test_a_running_merge_of_a_partition_that_is_gone_holds_up_nothing():
    shared = Shared()
    shared.insert(6)
    assert plan(shared, merging={frozenset({"f" * 32}): "dropped"}) == plan(shared) != []


def test_a_volatile_part_whose_bytes_are_elsewhere_is_a_barrier():
    shared = Shared(write_amplification_target=1.0)  # nothing is uploaded
    shared.insert(11)
    foreign = shared.intend(4, 7, owner="other")
    shared.renew("other")
    assert plan(shared) == []  # four on either side: too few
    shared.insert(1)
    (proposal,) = only(plan(shared), Propose)
    assert blocks(shared, proposal) == [(n, n) for n in range(8, 13)]
    assert blocks(shared, proposal)[0][0] > foreign.info.max_block


def test_a_volatile_part_whose_bytes_are_here_is_merged_like_any_other():
    shared = Shared()
    shared.insert(9)
    mine = shared.intend(0, 5)
    (proposal,) = only(plan(shared, local=here(mine)), Propose)
    assert blocks(shared, proposal) == [(1, 5), (6, 6), (7, 7), (8, 8), (9, 9)]
    # While its bytes are made, or on their way to the store, it is not.
    assert not only(plan(shared, building=frozenset({mine.id})), Propose)
    assert not only(plan(shared, local=here(mine), uploading=frozenset({mine.id})), Propose)
    assert not only(plan(shared, local=here(mine), uploaded=frozenset({mine.id})), Propose)


def test_a_volatile_merge_keeps_within_its_limit_and_the_free_disk():
    shared = Shared(max_bytes_to_merge_volatile=30 * MIB, write_amplification_target=1.0)
    shared.insert(12, size=4 * MIB)
    (proposal, *_) = only(plan(shared), Propose)
    assert 5 <= len(proposal.source_ids) <= 7
    (proposal, *_) = only(plan(shared, {"disk_free_bytes": 48 * MIB}), Propose)
    assert len(proposal.source_ids) <= 6


# -- room on the disk ------------------------------------------------------------------------------


def test_a_merge_for_which_the_disk_has_no_room_goes_straight_to_the_store():
    shared = Shared(max_bytes_to_merge_volatile=30 * MIB)
    shared.insert(6, size=4 * MIB)
    part = shared.intend(0, 6)
    assert only(plan(shared, {"disk_free_bytes": 48 * MIB}), Build) == [Build("t", part.id)]
    for free in (47 * MIB, 1, 0):
        assert only(plan(shared, {"disk_free_bytes": free}), Build) == [Build("t", part.id, past_disk=True)]


@pytest.mark.parametrize("free", [0, MIB, 10 * MIB, 30 * MIB])
def test_a_disk_that_is_small_never_stops_merging(free):
    shared = Shared(max_bytes_to_merge_volatile=30 * MIB)
    shared.insert(12, size=4 * MIB)
    assert only(plan(shared, {"disk_free_bytes": free}), Propose)


def test_builds_under_way_count_against_the_room_of_all_tables():
    views, parts = [], []
    for name in ("a", "b"):
        shared = Shared(max_bytes_to_merge_volatile=30 * MIB)
        shared.insert(6, size=4 * MIB)
        parts.append(shared.intend(0, 6))
        views.append(TableView(name, shared.state))

    def builds(free: int) -> list:
        node = NodeView("me", Shared().now_ms, MergeSlots(total=4), disk=True, disk_free_bytes=free)
        return only(tick(node, views), Build)

    assert {work.past_disk for work in builds(96 * MIB)} == {False}
    assert [work.past_disk for work in builds(95 * MIB)] == [False, True]
    views[0] = replace(views[0], building=frozenset({parts[0].id}))
    assert builds(96 * MIB) == [Build("b", parts[1].id)]
    assert builds(95 * MIB) == [Build("b", parts[1].id, past_disk=True)]


def _with_cache(size: int) -> tuple[Shared, dict]:
    """A table with 12 MiB of published parts in the cache, and a build of 24 MiB that is due."""
    shared = Shared(max_bytes_to_merge_volatile=30 * MIB, write_amplification_target=1.0)
    shared.insert(4)
    first, second = shared.intend(0, 2), shared.intend(1, 3)
    shared.publish(first)
    shared.pass_s(1)
    shared.publish(second)
    shared.insert(6, size=4 * MIB)
    part = shared.intend(2, 8)
    return shared, {"first": first, "second": second, "due": part, "local": here(first, second, size=size)}


def test_caches_make_room_the_oldest_first_before_a_merge_is_turned_away():
    shared, made = _with_cache(6 * MIB)
    node = {"cache_bytes": GIB}

    def due(free: int) -> list:
        found = plan(shared, {**node, "disk_free_bytes": free}, local=made["local"])
        return [action for action in found if not isinstance(action, Renew)]

    assert due(48 * MIB) == [Build("t", made["due"].id)]
    assert due(45 * MIB) == [Discard("t", (made["first"].id,))]
    assert due(37 * MIB) == [Discard("t", (made["first"].id, made["second"].id))]
    assert due(35 * MIB) == [Build("t", made["due"].id, past_disk=True)]  # in vain: the cache stays


def test_caches_hold_no_more_than_half_of_what_could_be_free():
    shared, made = _with_cache(6 * MIB)
    found = plan(shared, {"cache_bytes": GIB, "disk_free_bytes": 4 * MIB}, local=made["local"])
    assert only(found, Discard) == [Discard("t", (made["first"].id,))]


def test_what_is_being_read_from_the_cache_does_not_make_room():
    shared, made = _with_cache(6 * MIB)
    outer = shared.intend(0, 3)
    found = plan(
        shared,
        {"cache_bytes": GIB, "disk_free_bytes": 0},
        local=made["local"],
        building=frozenset({outer.id}),
    )
    assert only(found, Discard) == []


def test_above_the_limit_merges_wait_for_the_budget_and_use_what_is_in_the_store():
    shared = Shared(max_bytes_to_merge_volatile=100 * MIB, write_amplification_target=1.5)
    shared.insert(13, size=60 * MIB)
    # 13 parts of 60 MiB leave half as much to be spent, and a tenth of them is merged at least.
    (proposal,) = only(plan(shared), Propose)
    assert len(proposal.source_ids) == 6
    shared.intend(5, 7, owner="other")  # only what stands at the top, without a Live part in between: it spends 120 MiB
    shared.renew("other")
    assert [len(proposal.source_ids) for proposal in only(plan(shared), Propose)] == [4]


def test_parts_that_lack_different_mutations_are_not_merged():
    shared = Shared()
    shared.insert(4)
    shared.commit(Mutation("m", "DELETE WHERE k = 1"))
    shared.insert(4)
    assert not only(plan(shared), Propose)
    shared.commit(KillMutation("m"))
    assert only(plan(shared), Propose)


def test_a_node_that_leaves_or_only_uploads_proposes_nothing():
    shared = Shared()
    shared.insert(12)
    assert plan(shared, {"draining": True}) == []
    assert plan(shared, {"merges": False}) == []


# -- who builds ------------------------------------------------------------------------------------


def test_the_owner_builds_and_nobody_else_while_the_owner_lives():
    # M-025
    shared = Shared()
    shared.insert(4)
    mine = shared.intend(0, 2)
    shared.intend(1, 3, owner="other")
    shared.renew("other")
    assert [action.id for action in only(plan(shared), Build)] == [mine.id]
    assert not only(plan(shared), Adopt)
    assert not only(plan(shared, building=frozenset({mine.id})), Build)
    assert not only(plan(shared, local=here(mine)), Build)


def test_what_a_silent_or_departed_owner_left_is_adopted():
    # M-016
    shared = Shared()
    shared.insert(4)
    part = shared.intend(0, 2, owner="other")
    assert only(plan(shared), Adopt) == [Adopt("t", part.id, "other")]  # it has no lease at all
    shared.renew("other")
    assert not only(plan(shared), Adopt)
    assert only(plan(shared, silent=frozenset({"other"})), Adopt) == [Adopt("t", part.id, "other")]
    shared.commit(AdoptVolatile(part.id, "me", "other"))
    assert only(plan(shared), Build) == [Build("t", part.id)]


def test_only_the_outermost_volatile_part_is_built_and_adopted():
    shared = Shared()
    shared.insert(4)
    inner = shared.intend(0, 2)
    outer = shared.intend(0, 2)  # over the inner one and its neighbour
    assert [action.id for action in only(plan(shared), Build)] == [outer.id]
    assert [action.id for action in only(plan(shared, local=here(inner)), Build)] == [outer.id]


# -- what is uploaded ------------------------------------------------------------------------------


def test_a_volatile_part_is_uploaded_when_it_has_grown_to_half_of_the_limit():
    shared = Shared(max_bytes_to_merge_volatile=GIB)
    shared.insert(3)
    part = shared.intend(0, 3)
    assert not only(plan(shared, local=here(part, size=GIB // 2 - 1)), Upload)
    assert [u.id for u in only(plan(shared, local=here(part, size=GIB // 2)), Upload)] == [part.id]
    assert not only(plan(shared, {"uploads": False}, local=here(part, size=GIB // 2)), Upload)


def test_a_volatile_part_that_no_merge_took_is_uploaded_after_a_while():
    shared = Shared(volatile_upload_age_seconds=600)
    shared.insert(3)
    part = shared.intend(0, 3)
    shared.pass_s(599)
    assert not only(plan(shared, local=here(part)), Upload)
    shared.pass_s(1)
    assert [u.id for u in only(plan(shared, local=here(part)), Upload)] == [part.id]


def test_what_lies_within_another_is_never_uploaded_not_even_while_that_is_built():
    shared = Shared()
    shared.insert(4)
    inner = shared.intend(0, 3)
    outer = shared.intend(0, 2)
    shared.pass_s(10_000)
    assert not only(plan(shared, local=here(inner, size=GIB * 3), building=frozenset({outer.id})), Upload)
    assert [u.id for u in only(plan(shared, local=here(outer)), Upload)] == [outer.id]


def test_too_many_stored_parts_are_merged_past_the_target():
    shared = Shared(parts_to_upload_volatile=14, write_amplification_target=1.0)
    shared.insert(13)
    part = shared.intend(0, 12)
    assert not only(plan(shared, local=here(part)), Upload)
    shared.insert(1)
    assert only(plan(shared, local=here(part)), Upload) == [Upload("t", part.id, past_target=True)]


def test_no_merge_of_others_keeps_fresh_parts_from_their_only_upload():
    shared = Shared()
    shared.insert(4)
    for _ in range(3):  # by nodes without a disk: three bytes for each one inserted
        shared.commit(Publish(manifest(shared.new_id(), bytes_on_disk=4 * MIB), stored_ids(shared)))
    shared.insert(4)
    shared.pass_s(601)
    ((first, last),) = (blocks(shared, work)[:: len(work.source_ids) - 1] for work in only(plan(shared), Propose))
    assert (first, last) == ((5, 5), (8, 8))  # the merged part is left alone: nothing is left for it
    part = shared.intend(1, 5)
    assert only(plan(shared, local=here(part)), Upload) == [Upload("t", part.id)]


def test_a_mutation_forces_uploads():
    shared = Shared()
    shared.insert(4)
    part = shared.intend(0, 3)
    shared.commit(Mutation("m", "DELETE WHERE k = 1"))
    assert [u.id for u in only(plan(shared, local=here(part)), Upload)] == [part.id]


def test_only_the_owner_uploads_and_no_more_at_once_than_there_are_slots():
    shared = Shared(max_bytes_to_merge_volatile=2 * MIB)
    shared.insert(12)
    parts = [shared.intend(n, n + 2) for n in range(6)]
    local = here(*parts)
    assert len(only(plan(shared, local=local), Upload)) == 4
    assert len(only(plan(shared, local=local, uploading=frozenset(p.id for p in parts[:3])), Upload)) == 1
    shared.commit(AdoptVolatile(parts[0].id, "other", "me"))
    shared.renew("other")
    ids = {u.id for u in only(plan(shared, local=local), Upload)}
    assert parts[0].id not in ids


def test_what_is_in_the_store_is_published_before_anything_else():
    shared = Shared()
    shared.insert(3)
    part = shared.intend(0, 3)
    actions = plan(shared, local=here(part), uploaded=frozenset({part.id}))
    assert actions[0] == PublishVolatile("t", part.id)
    assert not only(actions, Upload)
    assert not only(plan(shared, local=here(part), uploaded=frozenset({part.id}), waits=True), PublishVolatile)


# -- what is given up, kept and dropped -------------------------------------------------------------


def test_what_cannot_be_built_is_cancelled():
    shared = Shared()
    shared.insert(3)
    part = shared.intend(0, 3)
    actions = plan(shared, failed=frozenset({part.id}))
    assert [c.ids for c in only(actions, Abandon)] == [(part.id,)]
    assert not only(actions, Build)


def test_a_node_that_leaves_uploads_what_is_whole_and_gives_up_what_is_not():
    # M-096
    shared = Shared()
    shared.insert(9)
    whole, half, none = (shared.intend(n, n + 3) for n in range(3))
    actions = plan(shared, {"draining": True}, local=here(whole), building=frozenset({half.id}))
    assert [u.id for u in only(actions, Upload)] == [whole.id]
    assert [c.ids for c in only(actions, Abandon)] == [(none.id,)]
    assert not only(actions, Build)


def test_a_lease_is_renewed_while_the_node_owns_something_and_only_when_it_runs_short():
    shared = Shared(volatile_lease_seconds=60)
    shared.insert(6)
    assert not only(plan(shared), Renew)
    shared.intend(0, 2)
    assert only(plan(shared), Renew)
    shared.renew("me", seconds=60)
    shared.pass_s(39)
    assert not only(plan(shared), Renew)
    shared.pass_s(1)
    assert only(plan(shared), Renew)


def lost(shared, **view) -> list[str]:
    return [volatile_id for action in only(plan(shared, **view), Discard) for volatile_id in action.ids]


def test_bytes_on_the_disk_stay_as_long_as_their_volatile_part_is_live():
    # M-026: a node that comes back keeps what is Live, and nothing else
    shared = Shared()
    shared.insert(9)
    dropped, cancelled, kept = (shared.intend(n, n + 3) for n in range(3))
    local = here(dropped, cancelled, kept)
    assert lost(shared, local=local) == []
    shared.commit(CancelVolatile((cancelled.id,)))
    assert lost(shared, local=local) == [cancelled.id]
    shared.commit(DropRange("all", max_block=3))
    assert sorted(lost(shared, local=local)) == sorted([dropped.id, cancelled.id])


def test_an_inner_part_goes_when_what_was_built_on_it_is_whole():
    shared = Shared()
    shared.insert(6)
    inner = shared.intend(0, 3)
    outer = shared.intend(0, 2)
    assert lost(shared, local=here(inner), building=frozenset({outer.id})) == []
    assert lost(shared, local=here(inner, outer)) == [inner.id]


def test_a_published_part_may_stay_as_a_cache_while_there_is_room_the_newest_first():
    shared = Shared()
    shared.insert(6)
    first, second = shared.intend(0, 3), shared.intend(1, 4)
    shared.publish(first)
    shared.publish(second)
    local = here(first, second, size=10 * MIB)
    assert lost(shared, node={"cache_bytes": 20 * MIB}, local=local) == []
    assert lost(shared, node={"cache_bytes": 19 * MIB}, local=local) == [first.id]
    shared.commit(DropRange("all"))
    assert sorted(lost(shared, node={"cache_bytes": 20 * MIB}, local=local)) == sorted([first.id, second.id])


def test_bytes_that_differ_from_what_was_published_are_dropped_with_an_alarm():
    shared = Shared()
    shared.insert(3)
    part = shared.intend(0, 3)
    shared.publish(part, manifest(shared.new_id(), rows=11))
    (action,) = only(plan(shared, {"cache_bytes": MIB * 99}, local=here(part)), Discard)
    assert action.ids == (part.id,)
    assert action.different == ((part.id, shared.state.version),)


# -- auto: volatile while a node with a disk lives --------------------------------------------------


def test_a_node_with_a_disk_merges_on_it_and_says_so():
    shared = Shared(schema_with(merge_upload_policy="auto"))
    shared.insert(6)
    actions = plan(shared)
    assert only(actions, Propose)
    assert only(actions, Renew)
    shared.renew("me")
    assert not only(plan(shared), Renew)


def test_a_node_without_a_disk_merges_straight_to_the_store_only_while_no_other_has_one():
    shared = Shared(schema_with(merge_upload_policy="auto"))
    shared.insert(6)
    assert only(plan(shared, {"disk": False}), Merge)
    shared.commit(RenewLease("other", shared.state.version, shared.now_ms + 60_000, disk=True))
    assert plan(shared, {"disk": False}) == []
    assert only(plan(shared, {"disk": False}, silent=frozenset({"other"})), Merge)
    shared.pass_s(61)
    assert only(plan(shared, {"disk": False}), Merge)


def test_a_table_that_becomes_direct_uploads_what_is_volatile():
    shared = Shared()
    shared.insert(4)
    part = shared.intend(0, 3)
    direct = shared.state.schema.with_settings({"merge_upload_policy": "direct"})
    shared.commit(AlterMetadata(replace(direct, version=2)))
    assert [u.id for u in only(plan(shared, local=here(part)), Upload)] == [part.id]


def test_what_was_written_past_the_disk_is_spent_before_it_is_published():
    shared = Shared(max_bytes_to_merge_volatile=10 * MIB, write_amplification_target=1.5)
    shared.insert(8, size=20 * MIB)
    (proposal,) = only(plan(shared), Propose)
    assert len(proposal.source_ids) == 4
    part = shared.intend(0, 4)
    for view in ({"building": frozenset({part.id})}, {"uploaded": frozenset({part.id})}):
        assert not only(plan(shared, **view), Propose), view
