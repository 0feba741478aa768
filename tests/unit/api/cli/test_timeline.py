"""Lives of parts and merges, as a real log tells them."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.cli.picture.timeline import MergeFate, active_parts, merge_lives, part_lives
from mergelake.log.model.operations import AddVolatile, CancelVolatile, MergeRecipe


@pytest.fixture
def table(tmp_path):
    db = ml.connect(str(tmp_path / "lake"))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS merge_upload_policy = 'volatile'")
    table = db.table("t")
    for i in range(8):
        table.append({"k": [i]})
    return db, table


def lives(table):
    table.refresh()
    entries = list(table.handle.log.entries())
    parts = part_lives(table.parts(active_only=False), entries)
    return parts, merge_lives(parts, entries)


def test_inserts_live_on(table):
    parts, merges = lives(table[1])
    assert merges == []
    assert [part.merged or part.died_ms for part in parts] == [None] * 8
    assert active_parts(parts)[-1][1] == 8


def test_a_merge_straight_to_the_bucket(table):
    db, t = table
    db.sql("OPTIMIZE TABLE t FINAL")
    parts, (merge,) = lives(t)
    assert (merge.sources, merge.level, merge.rows, merge.volatile) == (8, 1, 8, False)
    assert (merge.min_block, merge.max_block) == (1, 8)
    assert merge.outcome is MergeFate.BUCKET
    assert [part.merged for part in parts if part.died_ms is None] == [True]
    assert active_parts(parts)[-1][1] == 1


def test_a_merge_on_the_disk_of_a_node_is_volatile_until_it_is_uploaded(table, tmp_path):
    db, t = table
    node = db.warehouse.node("n", local=str(tmp_path / "disk"))
    while node.step() or not node.idle():
        pass
    _, merges = lives(t)
    assert merges
    assert {merge.outcome for merge in merges} <= {MergeFate.WAITING, MergeFate.DISK}
    assert all(merge.volatile for merge in merges)
    outer = merges[-1]
    assert (outer.rows, outer.ended_ms) == (outer.max_block - outer.min_block + 1, None)

    node.drain()
    parts, merges = lives(t)
    assert merges[-1].outcome is MergeFate.BUCKET
    assert merges[-1].bytes == next(part.bytes for part in parts if part.merged)
    assert merges[-1].ended_ms >= merges[-1].began_ms


def intend(table, sources):
    """A volatile part of these, by name; its id."""
    state, volatile_id = table.handle.log.state, table.handle.ids.new_id()
    known = {str(part.info): part.manifest.id for part in state.parts()}
    ids = tuple(known.get(source, source) for source in sources)
    recipe = MergeRecipe(state.schema_version, 0)
    table.handle.log.commit(lambda _: [AddVolatile(volatile_id, "all", ids, recipe, "n")])
    return volatile_id


@pytest.mark.parametrize(
    ("cancelled", "outcomes"),
    [
        ("outer", [MergeFate.WAITING, MergeFate.GIVEN_UP]),
        ("inner", [MergeFate.GIVEN_UP, MergeFate.GIVEN_UP]),
        (None, [MergeFate.DISK, MergeFate.WAITING]),
    ],
)
def test_what_is_given_up_takes_with_it_what_was_built_on_it(table, cancelled, outcomes):
    _, t = table
    inner = intend(t, ["all_1_1_0", "all_2_2_0"])
    made = {"inner": inner, "outer": intend(t, [inner, "all_3_3_0"])}
    if cancelled:
        t.handle.log.commit(lambda _: [CancelVolatile((made[cancelled],))])
    _, merges = lives(t)
    assert [merge.outcome for merge in merges] == outcomes
    assert [(merge.level, merge.rows, merge.sources) for merge in merges] == [(1, 2, 2), (2, 3, 2)]
    assert [merge.ended_ms is None for merge in merges] == [outcome is MergeFate.WAITING for outcome in outcomes]
