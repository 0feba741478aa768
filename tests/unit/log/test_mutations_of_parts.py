"""A mutation of parts that its entry has added: which parts lack it, and what is no such mutation."""

from __future__ import annotations

import pytest

from mergelake.log.model.conflict import Reject, step
from mergelake.log.model.describe import describe_op
from mergelake.log.model.operations import (
    AddParts,
    AddVolatile,
    CreateTable,
    DropParts,
    DropRange,
    Entry,
    KillMutation,
    MergeRecipe,
    Mutation,
    Publish,
    Tag,
)
from mergelake.log.model.state import State
from mergelake.log.model.volatile import boundaries, pending
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from tests.helpers.manifests import SCHEMA, manifest


def tried(state, *ops):
    return step(state, Entry(state.version + 1, f"attempt {state.version + 1}", 1000 + state.version, "test", ops))


def run(state, *ops):
    after = tried(state, *ops)
    assert not isinstance(after, Reject), after
    return after


def id_of(number):
    return manifest(number).id


def lacked(state):
    return {part.info.min_block: pending(state.mutations, part.info) for part in state.parts()}


@pytest.fixture
def state():
    """A part that lacks m (2), and one that came after it (3)."""
    state = run(State(), CreateTable(SCHEMA))
    state = run(state, AddParts((manifest(1),)))
    state = run(state, Mutation("m", "DELETE WHERE k = 1"))
    return run(state, AddParts((manifest(2),)))


def test_it_concerns_these_parts_alone(state):
    only = (id_of(3), id_of(4))
    state = run(
        state,
        AddParts((manifest(3), manifest(4))),
        Mutation("n", "UPDATE v = v + 1 WHERE 1", ("all",), False, only),
        AddParts((manifest(5),)),
    )
    state = run(state, AddParts((manifest(6),)))
    assert lacked(state) == {1: (2,), 3: (), 4: (6,), 5: (6,), 7: (), 8: ()}
    assert boundaries(state.mutations) == (2, 4, 6)
    assert decode_checkpoint(encode_checkpoint(state)) == state
    assert describe_op(Mutation("n", "DELETE WHERE 1", ("all",), only=only)) == "mutation n of 2 parts: DELETE WHERE 1"
    merged = Publish(manifest(9), (id_of(2), *only), mutations=(6,))
    after = run(state, merged)
    assert lacked(after) == {1: (2,), 3: (), 7: (), 8: ()}
    assert isinstance(tried(state, Publish(manifest(9), (id_of(2), *only))), Reject)
    recipe = MergeRecipe(1, 0)
    assert isinstance(tried(state, AddVolatile("v" * 32, "all", (id_of(2), *only), recipe, "me")), Reject)
    live = run(state, AddVolatile("v" * 32, "all", only, recipe, "me"))
    assert run(live, KillMutation("n")).live("v" * 32) is None
    assert lacked(run(state, KillMutation("n")))[4] == ()


def test_a_detached_part_remembers_what_it_lacked(state):
    for drop in (DropParts("all", (id_of(1),), "detach"), DropRange("all", "detach"), DropRange(kind="detach")):
        after = run(state, drop)
        lacks = {part.info.min_block: [m.version for m in part.lacks] for part in after.detached}
        assert lacks == {1: [2], 3: []} if isinstance(drop, DropRange) else {1: [2]}
        assert decode_checkpoint(encode_checkpoint(after)) == after
    assert not any(part.lacks for part in run(run(state, KillMutation("m")), DropRange("all", "detach")).detached)


def test_what_was_not_just_added_cannot_be_meant(state):
    new = AddParts((manifest(3), manifest(4)))
    for only, partitions in (
        ((id_of(2),), ("all",)),
        ((id_of(3),), ("all",)),
        ((id_of(2), id_of(3), id_of(4)), None),
        (("nobody",), ("all",)),
        ((id_of(3), id_of(4)), ("other",)),
    ):
        found = tried(state, new, Mutation("n", "DELETE WHERE 1", partitions, only=only))
        assert isinstance(found, Reject), only
        assert found.name == "LOGICAL_ERROR"
    unknown = Mutation("n", "DELETE WHERE 1", ("all",), only=(id_of(3), id_of(4)), schema_version=7)
    assert tried(state, new, unknown).name == "INCORRECT_DATA"


def test_a_tag_of_partitions_can_only_lose_some(state):
    state = run(state, Tag("n", 2, ("a", "b")))
    assert (state.tags, state.keeps(2), state.whole_tags) == ({"n": 2}, True, {})
    assert decode_checkpoint(encode_checkpoint(state)) == state
    assert run(state, Tag("n", 2, ("b",))).tagged_partitions == {"n": ("b",)}
    for wrong in (Tag("n", 2), Tag("n", 3, ("a",)), Tag("n", 2, ("a", "c"))):
        assert tried(state, wrong).name == "BAD_ARGUMENTS"
