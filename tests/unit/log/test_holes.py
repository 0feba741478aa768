"""Single parts that were dropped: what is remembered of their names, and of the inserts that brought their rows."""

from __future__ import annotations

import pytest

from mergelake.log.model.conflict import Reject, check
from mergelake.log.model.operations import (
    AddParts,
    AddVolatile,
    DropParts,
    DropRange,
    KillMutation,
    MergeRecipe,
    Mutation,
    Publish,
)
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from tests.helpers.manifests import manifest, schema_with
from tests.unit.log.test_fold import names, run, table


def ids(*numbers):
    return tuple(f"{number:032x}" for number in numbers)


def holes(state):
    return {name: [str(info) for info in held] for name, held in state.holes.items()}


@pytest.fixture
def dropped():
    """Three parts, the one in the middle gone."""
    return run(table(*(manifest(n) for n in (1, 2, 3))), DropParts("all", ids(2)))


@pytest.mark.parametrize("volatile", [False, True])
def test_a_part_over_a_hole_has_a_higher_level_than_the_hole(dropped, volatile):
    """ClickHouse is shown the empty part all_2_2_1: all_1_3_1 would cross it."""
    assert holes(dropped) == {"all": ["all_2_2_1"]}
    assert decode_checkpoint(encode_checkpoint(dropped)) == dropped
    state, of = dropped, ""
    if volatile:
        state, of = run(state, AddVolatile("v", "all", ids(1, 3), MergeRecipe(1, 1), "node")), "v"
        assert [part.name for part in state.volatile["all"]] == ["all_1_3_2"]
    after = run(state, Publish(manifest(4), ids(1, 3), "volatile" if of else "direct", of))
    assert names(after) == ["all_1_3_2"]
    assert holes(after) == {}


def test_a_merge_beside_a_hole_does_not_mind_it(dropped):
    state = run(run(dropped, AddParts((manifest(5),))), Publish(manifest(6), ids(3, 5)))
    assert names(state) == ["all_1_1_0", "all_3_4_1"]
    assert holes(state) == {"all": ["all_2_2_1"]}


def test_a_drop_of_blocks_that_ends_in_a_hole_takes_all_of_it():
    """The empty part of the range would cross that of the part."""
    merged = run(table(*(manifest(n) for n in (1, 2, 3, 4))), Publish(manifest(5), ids(2, 3)))
    state = run(merged, DropParts("all", ids(5)))
    assert holes(state) == {"all": ["all_2_3_2"]}
    for scope in ("all", None):
        after = run(state, DropRange(scope, max_block=2))
        assert (after.floor_of("all"), holes(after), names(after)) == (3, {}, ["all_4_4_0"])


@pytest.mark.parametrize("scope", ["all", None])
def test_a_drop_of_all_before_a_block_closes_holes(dropped, scope):
    assert holes(run(dropped, DropRange(scope, max_block=2))) == {}
    assert holes(run(dropped, DropRange(scope, max_block=1))) == holes(dropped)


def test_a_hole_is_closed_in_a_partition_without_parts(dropped):
    gone = run(run(dropped, DropParts("all", ids(1))), DropParts("all", ids(3)))
    assert gone.part_count == 0
    assert holes(run(gone, DropRange())) == {}


def test_a_merge_over_a_hole_that_had_more_mutations_waits():
    """The name must cover the hole, and would say that the rows have seen a mutation that they still lack."""
    state = table(*(manifest(n) for n in (1, 2)))
    for name in ("m", "killed"):
        state = run(state, Mutation(name, "UPDATE"))
    state = run(state, AddParts((manifest(5),)))
    state = run(state, Mutation("last", "UPDATE"))
    state = run(state, Publish(manifest(6), ids(2), "mutation", mutations=(3, 4, 6)))
    state = run(state, DropParts("all", ids(6)))
    assert holes(state) == {"all": ["all_2_2_1_6"]}
    state = run(run(state, KillMutation("killed")), KillMutation("m"))
    merge = Publish(manifest(7), ids(1, 5))
    refused = check(state, merge)
    assert isinstance(refused, Reject)
    assert "dropped since" in refused.reason
    assert names(run(run(state, KillMutation("last")), merge)) == ["all_1_5_2_6"]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_merge_has_the_last_mutation_of_its_sources_and_of_holes_though_others_lack_an_earlier_one(dropped):
    """Its name must cover theirs."""
    state = table(*(manifest(n) for n in (1, 2, 3)))
    for name in ("m", "killed"):
        state = run(state, Mutation(name, "UPDATE"))
    state = run(state, Publish(manifest(6), ids(2), "mutation", mutations=(4, 5)))
    state = run(state, KillMutation("killed"))
    sources = (1, 6, 3)
    if dropped:
        state, sources = run(state, DropParts("all", ids(6))), (1, 3)
    after = run(state, Publish(manifest(7), ids(*sources), mutations=(4,)))
    assert names(after) == ["all_1_3_2_5" if dropped else "all_1_3_1_5"]


@pytest.mark.parametrize("kind", ["drop", "detach"])
def test_the_insert_of_a_dropped_part_is_new_again_and_no_other(kind):
    state = table(schema=schema_with(non_replicated_deduplication_window=10))
    for number in (1, 2, 3):
        state = run(state, AddParts((manifest(number),), dedup_token=f"t{number}", dedup_hash=f"h{number}"))
    assert [*run(state, DropParts("all", ids(2), kind)).tokens] == ["t1", "t3"]


def test_the_insert_of_a_part_that_was_rewritten_is_new_again():
    state = run(table(), AddParts((manifest(1),), dedup_token="t1"))
    state = run(state, Mutation("m", "UPDATE"))
    state = run(state, Publish(manifest(2), ids(1), "mutation", mutations=(2,)))
    assert names(state) == ["all_1_1_0_2"]
    assert [*run(state, DropParts("all", ids(2))).tokens] == []
