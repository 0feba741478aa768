"""Volatile parts in the log: what may be merged, published, cancelled, and what drops do to them."""

from __future__ import annotations

import pytest

from mergelake.log.model.conflict import Reject, step
from mergelake.log.model.operations import (
    AddParts,
    AddVolatile,
    AdoptVolatile,
    AdvanceGcHorizon,
    CancelVolatile,
    CreateTable,
    DropRange,
    Entry,
    MergeRecipe,
    Mutation,
    Publish,
)
from mergelake.log.model.state import State
from mergelake.log.model.volatile import dependents, element_id, leaves, nested, sources, top_level
from tests.helpers.manifests import SCHEMA, manifest

RECIPE = MergeRecipe(1, 0)


def after(state, *ops):
    """The state after one entry with these operations, or the rejection."""
    return step(state, Entry(state.version + 1, "x", 0, "me", ops))


def add(part_id):
    return AddParts((manifest(part_id),))


def intend(volatile_id, *ids, owner="n1"):
    return AddVolatile(volatile_id, "all", ids, RECIPE, owner)


def publish(part_id, replaced, volatile="", kind="volatile", mutations=()):
    return Publish(manifest(part_id), tuple(replaced), kind if volatile or mutations else "direct", volatile, mutations)


def names(state):
    return [part.name for part in state.parts()]


def live(state):
    return [part.name for held in state.volatile.values() for part in held]


@pytest.fixture
def six():
    """Six inserted parts, `a` to `f`, blocks 1 to 6."""
    state = after(State(), CreateTable(SCHEMA))
    for name in "abcdef":
        state = after(state, add(name))
    return state


@pytest.fixture
def family(six):
    """`v` over b, c; `w` over a, v: blocks 1 to 3."""
    return after(after(six, intend("v", "b", "c")), intend("w", "a", "v"))


def test_a_live_volatile_part_hides_its_sources_from_other_merges_and_nothing_else(six):
    state = after(six, intend("v", "b", "c"))
    assert live(state) == ["all_2_3_1"]
    assert names(state) == names(six)  # its rows are in the normal parts until it is published
    assert [element_id(e) for e in top_level(state.partitions["all"], state.volatile["all"])] == [
        "a",
        "v",
        "d",
        "e",
        "f",
    ]
    for taken in (intend("w", "a", "b"), intend("w", "c", "d"), publish("p", "bc"), publish("p", "ab")):
        assert isinstance(after(state, taken), Reject)


def test_a_merge_may_not_step_over_a_volatile_part(six):
    state = after(six, intend("v", "b", "c"))
    assert "lies between" in after(state, intend("w", "a", "d")).reason
    assert "active part lies between" in after(state, publish("p", "ad")).reason


def test_volatile_parts_are_built_on_each_other(family):
    assert live(family) == ["all_1_3_2", "all_2_3_1"]
    outer, inner = family.volatile["all"]
    assert nested(family.volatile["all"], outer) == (inner,)
    assert dependents(family.volatile["all"], inner) == (outer,)
    assert [element_id(e) for e in sources(family, outer)] == ["a", "v"]
    assert [p.manifest.id for p in leaves(family.partitions["all"], outer.info)] == ["a", "b", "c"]


def test_publishing_the_outer_one_ends_the_inner_one_and_retires_all_that_they_cover(family):
    state = after(family, publish("p", "abc", "w"))
    assert names(state) == ["all_1_3_2", "all_4_4_0", "all_5_5_0", "all_6_6_0"]
    assert state.volatile == {}
    assert [part.id for part in state.retired] == ["a", "b", "c"]


def test_publishing_the_inner_one_leaves_the_outer_one_live_on_what_was_published(family):
    state = after(family, publish("p", "bc", "v"))
    assert live(state) == ["all_1_3_2"]
    assert [element_id(e) for e in sources(state, state.volatile["all"][0])] == ["a", "p"]
    assert isinstance(after(state, publish("q", "abc", "w")), Reject)  # the list is of what was
    done = after(state, publish("q", ["a", "p"], "w"))
    assert names(done)[0] == "all_1_3_2"


def test_publish_must_list_exactly_what_is_active_in_the_range(family):
    assert isinstance(after(family, publish("p", "ab", "w")), Reject)
    assert isinstance(after(family, publish("p", "abcd", "w")), Reject)
    assert "not Live" in after(family, publish("p", "abc", "nobody")).reason


def test_one_volatile_part_is_published_once(family):
    state = after(family, publish("p", "abc", "w"))
    assert isinstance(after(state, publish("q", ["p"], "w")), Reject)


def test_cancelling_takes_what_is_built_on_it_and_spares_what_it_is_built_on(family):
    assert live(after(family, CancelVolatile(("v",), "test"))) == []
    assert live(after(family, CancelVolatile(("w",), "test"))) == ["all_2_3_1"]
    assert names(after(family, CancelVolatile(("v",), "test"))) == names(family)
    assert isinstance(after(family, CancelVolatile(("v", "nobody"), "test")), Reject)


def test_adoption_is_a_compare_and_set_on_the_owner(family):
    state = after(family, AdoptVolatile("v", "n2", "n1"))
    assert {part.id: part.owner for part in state.volatile["all"]} == {"w": "n1", "v": "n2"}
    assert "built by n2" in after(state, AdoptVolatile("v", "n3", "n1")).reason


@pytest.mark.parametrize("kind", ["drop", "truncate", "detach", "replace", "move"])
def test_a_drop_takes_volatile_parts_and_a_late_publish_is_refused(family, kind):
    state = after(family, DropRange("all", kind))
    assert (names(state), state.volatile) == ([], {})
    assert isinstance(after(state, publish("p", "abc", "w")), Reject)
    assert [part.manifest.id for part in state.detached] == (list("abcdef") if kind == "detach" else [])


def test_a_drop_of_old_blocks_takes_the_volatile_parts_that_reach_into_them(family):
    state = after(family, DropRange("all", "drop", 1))
    assert live(state) == ["all_2_3_1"]
    assert "reaches across" in after(after(family, publish("p", "abc", "w")), DropRange("all", "drop", 2)).reason


def test_parts_on_both_sides_of_a_mutation_are_not_merged_until_it_is_written_down(six):
    state = after(after(six, Mutation("m", "DELETE WHERE 1")), add("g"))
    assert state.mutations[0].version == 7
    assert "different mutations" in after(state, intend("v", "f", "g")).reason
    assert "different mutations" in after(state, publish("p", "fg")).reason
    state = after(state, publish("f2", "f", kind="mutation", mutations=(7,)))
    assert names(state)[-2:] == ["all_6_6_0_7", "all_8_8_0"]
    assert live(after(state, intend("v", "f2", "g"))) == ["all_6_8_1_7"]


def test_an_element_under_a_volatile_part_is_not_mutated_alone(family):
    state = after(family, Mutation("m", "DELETE WHERE 1"))
    assert isinstance(after(state, publish("b2", "b", kind="mutation", mutations=(7,))), Reject)
    assert isinstance(after(state, publish("p", "bc", "v", "mutation", (7,))), Reject)
    assert names(after(state, publish("p", "abc", "w", "mutation", (7,))))[0] == "all_1_3_2_7"


def test_what_was_begun_before_the_fence_cannot_be_committed(six):
    state = after(six, AdvanceGcHorizon(base_version=4, history=2))
    late = after(state, AddParts((manifest("late", base_version=3),)))
    assert "write it again" in late.reason
    assert names(after(state, AddParts((manifest("timely", base_version=4),))))[-1] == "all_7_7_0"
    assert isinstance(after(state, publish("p", "ab")), Reject)  # base_version 0
    assert "further" in after(state, AdvanceGcHorizon(base_version=3, history=2)).reason
