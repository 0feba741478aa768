"""What each operation does to a state, and when it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.core.base.errors import ConflictError, CorruptDataError, InvalidInputError, NotFoundError
from mergelake.core.model.manifest import Extent, PartFile, encode_files
from mergelake.log.model.conflict import Reject, check, step
from mergelake.log.model.fold import apply, fold
from mergelake.log.model.operations import (
    AddParts,
    AlterMetadata,
    CreateTable,
    DropParts,
    DropRange,
    DropTable,
    Entry,
    MarkMutated,
    Mutation,
    Publish,
    PutTable,
)
from mergelake.log.model.retention import refers
from mergelake.log.model.state import TOKENS_MAX, State, listed
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from tests.helpers.manifests import SCHEMA, manifest, schema_with


def entry(state, *ops):
    return Entry(state.version + 1, f"attempt {state.version + 1}", 1000 + state.version, "test", ops)


def run(state, *ops):
    """The state after one entry that is valid."""
    after = step(state, entry(state, *ops))
    assert not isinstance(after, Reject), after
    assert after == apply(state, entry(state, *ops))
    return after


def table(*parts, schema=SCHEMA):
    state = run(State(), CreateTable(schema))
    for part in parts:
        state = run(state, AddParts((part,)))
    return state


def names(state):
    return [part.name for part in state.parts()]


def ids(state, *wanted):
    return tuple(part.manifest.id for part in state.parts() if part.name in wanted)


def test_the_learning_example_gives_its_part_names():  # M-050
    # Three inserts; a merge of partition 5's two parts keeps blocks 2 and 4 from being mixed with others.
    state = run(State(), CreateTable(SCHEMA))
    state = run(state, AddParts((manifest(1, "1"), manifest(2, "5"), manifest(3, "3"))))
    assert names(state) == ["1_1_1_0", "3_3_3_0", "5_2_2_0"]


def test_a_merge_covers_its_sources():  # M-038
    state = table(*(manifest(n) for n in range(1, 6)))
    state = run(state, Publish(manifest(11), ids(state, "all_2_2_0", "all_3_3_0")))
    state = run(state, Publish(manifest(12), ids(state, "all_2_3_1", "all_4_4_0")))
    assert names(state) == ["all_1_1_0", "all_2_4_2", "all_5_5_0"]
    assert [str(part.info) for part in state.retired] == ["all_2_2_0", "all_3_3_0", "all_2_3_1", "all_4_4_0"]
    assert {part.retired for part in state.retired} == {7, 8}


def test_an_insert_that_was_merged_already_enters_with_its_level():
    assert names(table(manifest(1, level=1))) == ["all_1_1_1"]


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        (("all_1_1_0", "all_3_3_0"), "between"),
        ((), "replaces nothing"),
    ],
)
def test_a_merge_of_parts_that_are_not_neighbours_is_rejected(sources, why):
    state = table(*(manifest(n) for n in range(1, 4)))
    assert why in check(state, Publish(manifest(9), ids(state, *sources))).reason


def test_a_merge_never_crosses_a_partition():  # M-043
    state = table(manifest(1, "a"), manifest(2, "b"))
    assert check(state, Publish(manifest(9, "a"), ids(state, "a_1_1_0", "b_2_2_0"))) is not None


def test_a_merge_of_a_part_that_is_gone_is_a_conflict():
    state = table(manifest(1), manifest(2), manifest(3))
    first = Publish(manifest(9), ids(state, "all_1_1_0", "all_2_2_0"))
    second = Publish(manifest(10), ids(state, "all_2_2_0", "all_3_3_0"))
    reject = check(run(state, first), second)
    assert reject.kind == "conflict"
    assert isinstance(reject.as_error(), ConflictError)
    assert isinstance(step(state, entry(state, first, second)), Reject)


def test_drop_partition_retires_its_parts_and_sets_a_floor():
    state = table(manifest(1, "a"), manifest(2, "b"), manifest(3, "a"))
    merge = Publish(manifest(9, "a"), ids(state, "a_1_1_0", "a_3_3_0"))
    state = run(state, DropRange("a"))
    assert names(state) == ["b_2_2_0"]
    assert state.floor_of("a") == 3
    assert state.floor_of("b") == 0
    assert check(state, merge) is not None
    assert names(run(state, AddParts((manifest(4, "a"),)))) == ["a_4_4_0", "b_2_2_0"]


def test_truncate_retires_everything_and_block_numbers_go_on():
    state = run(table(manifest(1, "a"), manifest(2, "b")), DropRange(kind="truncate"))
    assert names(state) == []
    assert state.partitions == {}
    assert names(run(state, AddParts((manifest(3, "a"),)))) == ["a_3_3_0"]


def test_a_drop_up_to_a_block_leaves_later_parts():
    state = table(*(manifest(n) for n in range(1, 5)))
    assert names(run(state, DropRange("all", max_block=2))) == ["all_3_3_0", "all_4_4_0"]
    merged = run(state, Publish(manifest(9), ids(state, "all_2_2_0", "all_3_3_0")))
    assert "reaches across" in check(merged, DropRange("all", max_block=2)).reason
    assert check(state, DropRange("all", max_block=99)).kind == "invalid"


def test_a_part_that_was_mutated_after_a_block_is_not_dropped_up_to_it():
    state = run(
        run(table(manifest(1), manifest(2)), Mutation("m", "DELETE WHERE 1")), MarkMutated("all", id_of(1), (3,))
    )
    assert "was mutated after" in check(state, DropRange("all", max_block=2)).reason
    assert names(run(state, DropRange("all"))) == []


def id_of(number):
    return (f"{number:032x}",)


@pytest.mark.parametrize("partition_id", ["a", None])
def test_the_first_part_after_all_others_were_dropped_is_known(partition_id):
    """It is published over all blocks before."""
    state = table(manifest(1, "a"), manifest(2, "b"), manifest(3, "a"))
    assert (state.firsts, state.drop_of("a")) == ({}, 0)
    state = run(state, DropRange(partition_id), AddParts((manifest(4, "a"), manifest(5, "a"))))
    assert (state.firsts, state.floor_of("a"), state.drop_of("a")) == ({"a": 4}, 3, 5)
    assert decode_checkpoint(encode_checkpoint(state)) == state
    state = run(state, Publish(manifest(6, "a"), (*id_of(4), *id_of(5))))
    state = run(state, AddParts((manifest(7, "a"), manifest(8, "b"))))
    assert state.firsts == ({"a": 4} if partition_id else {"a": 4, "b": 7})
    gone = run(run(state, DropParts("a", id_of(6))), AddParts((manifest(9, "a"),)))
    assert gone.firsts == state.firsts  # the partition still had a part
    gone = run(run(gone, DropParts("a", (*id_of(7), *id_of(9)))), AddParts((manifest(10, "a"),)))
    assert gone.firsts["a"] == 9
    for dropped in (run(gone, DropRange("a")), run(gone, DropRange())):
        assert "a" not in dropped.firsts
        assert dropped.drop_of("a") == gone.version + 1
    again = run(run(gone, DropRange("a")), DropRange())
    assert again.drop_of("a") == again.version
    assert run(again, AddParts((manifest(11, "a"),))).firsts == {"a": 10}


def test_several_operations_of_an_entry_see_each_other():
    state = run(table(manifest(1)), DropRange(), AddParts((manifest(2),)))
    assert names(state) == ["all_2_2_0"]
    assert state.version == 3


def test_a_token_makes_an_insert_a_duplicate_until_a_drop():
    state = run(table(), AddParts((manifest(1, "a"), manifest(2, "b")), dedup_token="t"))
    again = AddParts((manifest(3, "a"),), dedup_token="t")
    assert check(state, again).kind == "duplicate"
    assert check(run(state, DropRange("a")), again).kind == "duplicate"
    assert check(run(state, DropRange("a"), DropRange("b")), again) is None
    assert check(run(state, DropRange()), again) is None
    merged = run(state, Publish(manifest(9, "a"), ids(state, "a_1_1_0")))
    assert check(merged, again).kind == "duplicate"


def test_a_rollback_leaves_the_windows_of_the_version_it_goes_to():
    schema = schema_with(non_replicated_deduplication_window=2)
    old = run(table(schema=schema), AddParts((manifest(1, "a"),), dedup_token="t"))
    old = run(old, AddParts((manifest(2, "a"),), dedup_hash="h"))
    now = run(run(old, DropRange("a")), AddParts((manifest(3, "a"),), dedup_token="later"))
    back = DropRange(None, "truncate", None, old.version, listed(old.tokens), listed(old.hashes))
    again = run(now, back, AddParts((manifest(4, "a"), manifest(5, "a"))))
    assert (listed(again.tokens), listed(again.hashes)) == (listed(old.tokens), listed(old.hashes))
    assert check(again, AddParts((manifest(6),), dedup_token="t")).kind == "duplicate"
    assert check(again, AddParts((manifest(6),), dedup_hash="h")).kind == "duplicate"
    assert check(again, AddParts((manifest(6),), dedup_token="later")) is None
    assert not run(again, DropRange("a")).tokens


def test_only_a_drop_of_all_rows_brings_inserts_back_and_none_from_later_on():
    state = run(table(), AddParts((manifest(1, "a"),), dedup_token="t"))
    known = listed(state.tokens)
    assert check(state, DropRange(remember=2, tokens=known)) is None
    nonsense = [DropRange("a", remember=2), DropRange(max_block=1, remember=2), DropRange(remember=3)]
    nonsense += [DropRange(remember=1, tokens=known), DropRange(tokens=known), DropRange(remember=1, hashes=known)]
    many = tuple((str(n), 1, ()) for n in range(TOKENS_MAX + 1))
    for op in [*nonsense, DropRange(remember=2, tokens=many)]:
        assert check(state, op).kind == "invalid"


def test_the_window_of_content_hashes_is_first_in_first_out():
    state = table(schema=schema_with(non_replicated_deduplication_window=2))
    for number, digest in enumerate("abab", start=1):
        if check(state, AddParts((manifest(number),), dedup_hash=digest)) is None:
            state = run(state, AddParts((manifest(number),), dedup_hash=digest))
    assert list(state.hashes) == ["a", "b"]
    state = run(state, AddParts((manifest(9),), dedup_hash="c"))
    assert check(state, AddParts((manifest(10),), dedup_hash="a")) is None  # a hit had not refreshed it
    assert not run(table(), AddParts((manifest(1),), dedup_hash="a")).hashes


def test_schemas_follow_each_other():
    state = table()
    second = replace(SCHEMA, version=2)
    assert check(state, AlterMetadata(replace(SCHEMA, version=3))).kind == "conflict"
    state = run(state, AlterMetadata(second))
    assert state.schema == second
    assert set(state.schemas) == {1, 2}
    assert check(state, AddParts((manifest(1, schema_version=3),))).kind == "invalid"


def test_nothing_goes_before_creation_or_after_a_drop():
    part = AddParts((manifest(1),))
    assert check(State(), part).name == "UNKNOWN_TABLE"
    dropped = run(table(manifest(1)), DropTable())
    assert isinstance(check(dropped, part).as_error(), NotFoundError)
    assert dropped.part_count == 0
    with pytest.raises(NotFoundError, match="dropped"):
        _ = dropped.schema
    assert isinstance(check(table(), CreateTable(SCHEMA)).as_error(), InvalidInputError)


def test_a_log_that_does_not_fit_is_corrupt():
    state = table(manifest(1))
    with pytest.raises(CorruptDataError, match="wrong position"):
        apply(state, replace(entry(state), version=7))
    with pytest.raises(CorruptDataError, match="not active"):
        apply(state, entry(state, Publish(manifest(9), ("nobody",))))
    with pytest.raises(CorruptDataError, match="catalog"):
        apply(state, entry(state, PutTable("d", "t", "id")))


def test_folding_never_changes_an_older_state():
    old = table(manifest(1), manifest(2))
    before = (names(old), dict(old.tokens), old.retired)
    newer = fold(old, [entry(old, Publish(manifest(9), ids(old, "all_1_1_0", "all_2_2_0")))])
    run(newer, AddParts((manifest(3),), dedup_token="x"))
    assert (names(old), dict(old.tokens), old.retired) == before


def test_a_part_is_found_by_its_name():
    state = table(manifest(1), manifest(2))
    assert state.find("all_2_2_0").manifest.id == f"{2:032x}"
    assert state.find("all_2_2_1") is None
    assert state.find("no name") is None


def test_only_a_table_s_first_entry_may_bring_references_to_another_table():
    far = (Extent(f"/{'e' * 32}/{'f' * 32}/files.packed", 0, 9),)
    borrowed = replace(manifest(1), files=encode_files([PartFile("data.bin", 9, far)]))
    assert refers(borrowed)
    assert not isinstance(step(State(), entry(State(), CreateTable(SCHEMA), AddParts((borrowed,)))), Reject)
    state = run(State(), CreateTable(SCHEMA))
    for ops in ((AddParts((borrowed,)),), (AddParts((manifest(2),)), AddParts((borrowed,)))):
        assert "no longer kept" in step(state, entry(state, *ops)).reason
    assert "no longer kept" in check(state, AddParts((borrowed,))).reason
