"""Which volatile parts a read takes: a function of the state that is read and of what nodes answered."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pytest

from mergelake.log.model.operations import AddParts, CancelVolatile, DropRange, Mutation
from mergelake.log.model.volatile import lacking
from mergelake.table.handle.snapshot import Snapshot, with_merged, without_merged
from mergelake.table.handle.volatile_choice import MergedPart, PeerPlace, Ready, choose
from tests.helpers.manifests import manifest
from tests.helpers.volatile import Shared

PLACE = PeerPlace("n1:9440", "token")


def built(state, part, **changes):
    """The answer of a node that has built a volatile part."""
    leaves = [
        leaf
        for leaf in state.partitions[part.info.partition_id]
        if part.info.min_block <= leaf.info.min_block <= part.info.max_block
    ]
    rows = sum(leaf.manifest.rows for leaf in leaves)
    made = manifest(f"{int(part.id, 16) + (1 << 100):032x}", part.info.partition_id, rows=rows)
    return Ready(replace(made, **changes), PLACE)


def names(found):
    return [part.name for part in found[0]]


def reasons(found):
    return {read.name: read.why_not for read in found[1]}


@pytest.fixture
def shared():
    shared = Shared()
    shared.insert(6)
    return shared


def test_a_ready_part_stands_for_the_parts_in_its_range(shared):
    part = shared.intend(1, 4)
    merged, reads = choose(shared.state, {part.id: built(shared.state, part)})
    assert [str(read) for read in reads] == ["Volatile part all_2_4_1 from node me, in place of 3 stored parts"]
    snapshot = with_merged(Snapshot.of(shared.state), merged, reads)
    assert [each.name for each in snapshot.parts] == ["all_1_1_0", "all_2_4_1", "all_5_5_0", "all_6_6_0"]
    assert snapshot.rows == Snapshot.of(shared.state).rows
    assert snapshot.partitions.totals.parts == 4
    back = without_merged(snapshot, [part.id], "it is gone")
    assert back.partitions == shared.state.partitions
    assert [read.why_not for read in back.volatile] == ["it is gone"]
    assert pickle.loads(pickle.dumps(snapshot)).parts == snapshot.parts


def test_of_nested_parts_the_outermost_ready_one_is_taken(shared):
    inner = shared.intend(0, 2)
    other = shared.intend(1, 3)
    outer = shared.intend(0, 3)
    answers = {part.id: built(shared.state, part) for part in (inner, other)}
    assert names(choose(shared.state, answers)) == ["all_1_2_1", "all_3_4_1"]
    assert names(choose(shared.state, {inner.id: answers[inner.id]})) == ["all_1_2_1"]
    found = choose(shared.state, {**answers, outer.id: built(shared.state, outer)})
    assert names(found) == [outer.name]
    assert set(reasons(found).values()) == {""}


def test_a_reason_is_given_for_what_is_not_taken(shared):
    part, other = shared.intend(0, 2), shared.intend(1, 3)
    found = choose(shared.state, {part.id: "it does not answer"})
    assert reasons(found) == {part.name: "it does not answer", other.name: "nobody was asked"}
    assert not found[0]


def test_what_is_not_live_in_the_state_that_is_read_is_not_taken(shared):
    before = shared.state
    part = shared.intend(0, 3)
    live = shared.state
    answers = {part.id: built(live, part)}
    shared.commit(CancelVolatile((part.id,), "given up"))
    assert names(choose(before, answers)) == names(choose(shared.state, answers)) == []
    assert names(choose(live, answers)) == ["all_1_3_1"]


def test_what_lost_a_leaf_is_not_taken(shared):
    part = shared.intend(0, 3)
    answers = {part.id: built(shared.state, part)}
    shared.commit(DropRange("all"))
    assert names(choose(shared.state, answers)) == []


def test_a_mutation_that_came_later_is_lacked_by_the_merged_part_too(shared):
    part = shared.intend(0, 3)
    shared.commit(Mutation("m1", "DELETE WHERE k = 1"))
    (merged,), _ = choose(shared.state, {part.id: built(shared.state, part)})
    snapshot = with_merged(Snapshot.of(shared.state), (merged,), ())
    assert len(snapshot.lacking(merged.info)) == 1
    assert [len(lacking(merged.mutations, leaf.info)) for leaf in merged.sources] == [1, 1, 1]
    assert snapshot.exact_rows is None


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 31},
        {"rows": 29},
        {"partition_id": "other"},
        {"schema_version": 9},
        {"id": "f" * 32},
    ],
)
def test_a_manifest_that_cannot_be_its_own_is_not_believed(shared, changes):
    part = shared.intend(0, 3)
    found = choose(shared.state, {part.id: built(shared.state, part, **changes)})
    assert not found[0]
    assert reasons(found) == {part.name: "what its node has does not fit the version that is read"}


def test_an_engine_may_have_removed_rows():
    from tests.helpers.manifests import schema_with

    schema = replace(schema_with(merge_upload_policy="volatile"), engine="ReplacingMergeTree")
    shared = Shared(schema)
    shared.insert(3)
    part = shared.intend(0, 3)
    assert names(choose(shared.state, {part.id: built(shared.state, part, rows=11)})) == [part.name]
    assert names(choose(shared.state, {part.id: built(shared.state, part, rows=31)})) == []


@pytest.mark.parametrize("seed", range(30))
def test_with_any_answers_each_partition_is_tiled_once(seed):
    rng = random.Random(seed)
    shared = Shared()
    for _ in range(20):
        partition = rng.choice(["a", "b"])
        if partition not in shared.state.partitions or rng.random() < 0.5:
            shared.commit(AddParts(tuple(manifest(shared.new_id(), partition) for _ in range(rng.randint(1, 3)))))
        elif (count := len(shared.elements(partition))) > 1:
            first = rng.randrange(count - 1)
            shared.intend(first, rng.randint(first + 2, count), partition=partition)
    state = shared.state
    live = [part for held in state.volatile.values() for part in held]
    for _ in range(10):
        answers = {part.id: built(state, part) for part in live if rng.random() < 0.5}
        merged, reads = choose(state, answers)
        snapshot = with_merged(Snapshot.of(state), merged, reads)
        assert {part.id for part in merged} <= answers.keys()
        covered = [
            leaf.manifest.id
            for part in snapshot.parts
            for leaf in (part.sources if isinstance(part, MergedPart) else (part,))
        ]
        assert covered == [part.manifest.id for part in state.parts()]
        assert snapshot.rows == Snapshot.of(state).rows
        again = without_merged(snapshot, rng.sample([part.id for part in merged], len(merged) // 2), "gone")
        assert again.rows == snapshot.rows
        taken = {part.name for part in merged}
        assert taken == {read.name for read in reads if not read.why_not}
