"""A round of collection, decided: pure functions on states and listings."""

from __future__ import annotations

import pytest

from mergelake.jobs.gc.plan import Periods, is_gone, plan_round, unused
from mergelake.log.model.fold import apply
from mergelake.log.model.operations import (
    AddParts,
    AddReference,
    AdvanceGcHorizon,
    CreateTable,
    DropRange,
    DropReference,
    DropTable,
    Entry,
    Publish,
    ReleaseLease,
    RenewLease,
    Tag,
)
from mergelake.log.model.retention import directory_of, reachable, refers
from mergelake.log.model.state import State
from mergelake.table.partitions.gc_notes import NoteName
from mergelake.table.partitions.listing import pages
from tests.helpers.manifests import SCHEMA, manifest

PERIODS = Periods(retention_ms=1000, grace_ms=100, step=10)


def history(*entries):
    state = State()
    for version, ops in enumerate([(CreateTable(SCHEMA),), *entries], 1):
        state = apply(state, Entry(version, f"{version}", version * 1000, "", ops))
    return state


def note(fence, time_ms, kind="objects"):
    return NoteName(fence, time_ms, kind, "id", time_ms)


def test_directories_are_first_segments_and_absolute_ones_have_two():
    assert [directory_of(key) for key in ("p/files.packed", "/t/p/a/b.bin", "p")] == ["p", "/t/p", "p"]
    assert refers(manifest("p")) == ()


def test_notes_are_due_after_the_grace_period_and_those_of_the_log_after_a_longer_one():
    state = history((AddParts((manifest("a"),)),))
    plan = plan_round(state, [note(2, 0), note(3, 50), note(4, 0, "log")], 100, PERIODS, 0)
    assert (plan.due, plan.base_version, plan.commit, plan.looks) == ((note(2, 0),), 2, True, False)
    assert {each.fence for each in plan.waiting} == {3, 4}
    assert plan_round(state, [note(4, 0, "log")], 100, PERIODS, 0).looks


def test_history_is_written_down_when_it_forgets_a_part_or_frees_the_log():
    state = history((AddParts((manifest("a"),)),), (DropRange(),), (AddParts((manifest("b"),)),))
    assert not plan_round(state, [], 0, PERIODS, 2).commit
    assert plan_round(state, [], 0, PERIODS, 3).commit
    assert plan_round(history(), [], 0, PERIODS, 10).commit


def test_leases_and_holds_that_changed_meanwhile_stay():
    state = history((AddParts((manifest("a"),)), AddReference("t", ("a",)), RenewLease("n", 1, 500)))
    plan = plan_round(state, [], 0, PERIODS, 0)
    assert plan.ops(state, {"t": ("a",)}, 501) == [DropReference("t"), ReleaseLease("n"), AdvanceGcHorizon(0, 0)]
    assert plan.ops(state, {"t": ("a", "b")}, 500) == [AdvanceGcHorizon(0, 0)]


@pytest.mark.parametrize("kept", [Tag("x", 2), RenewLease("n", 2, 0)])
def test_a_retired_part_is_reached_until_no_kept_version_shows_it(kept):
    merge = (AddParts((manifest("a"),)),), (kept,), (Publish(manifest("b"), ("a",)),)
    assert reachable(history(*merge)) == {"a", "b"}
    assert reachable(history(*merge, (AdvanceGcHorizon(0, 3),))) == {"a", "b"}
    assert reachable(history(*merge, (AdvanceGcHorizon(0, 4),))) == {"a", "b"}  # pinned
    assert reachable(history(merge[0], merge[2], (AdvanceGcHorizon(0, 3),))) == {"b"}
    assert reachable(history(*merge, (DropTable(),), (AdvanceGcHorizon(0, 6),))) == set()


def test_a_dropped_table_is_gone_when_nobody_holds_anything():
    gone = (AddParts((manifest("a"),)), AddReference("t", ("a",))), (DropTable(),), (AdvanceGcHorizon(0, 4),)
    assert not is_gone(history(*gone))
    assert is_gone(history(*gone, (DropReference("t"),)))
    assert not is_gone(history())


def test_a_listing_is_read_directory_by_directory_and_only_parts_are_judged():
    old, live = "0" * 32, "f" * 32
    listing = [
        (f"{old}/a.bin", 3), (f"{old}/sub/b.bin", 4), ("__meta/x/prefix.path", 1), ("_gc/note", 1),
        ("_log/1.json", 1), ("drop-all_1_1_1/count.txt", 1), (f"{live}/files.packed", 9), ("readme", 1),
    ]  # fmt: skip
    below = [(f"a/table/{key}", size, "another field") for key, size in listing]
    found = list(unused(pages(below), [{live}], {old: "because"}, "a/table/"))
    assert [(each.directory, each.bytes, each.why) for each in found] == [
        (old, 7, "because"),
        ("drop-all_1_1_1", 1, "an empty part that is not shown"),
    ]
    assert dict(found[0].files) == {"a.bin": 3, "sub/b.bin": 4}


def test_a_note_is_found_by_its_name():
    assert NoteName.parse(note(7, 8).name, 8) == note(7, 8)
    assert NoteName.parse("something.json") is None
