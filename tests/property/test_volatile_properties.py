"""Volatile parts: what a node may propose, and that whoever builds one, from whatever, makes the same rows."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from mergelake.core.convert.storage import to_storage
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.types import parse_type
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.volatile import LocalPart, build_task, same_content
from mergelake.jobs.node.actions import Merge, Propose
from mergelake.log.model.conflict import Reject, step
from mergelake.log.model.operations import AddVolatile, Entry, MergeRecipe, Publish
from mergelake.log.model.state import VolatilePart
from mergelake.log.model.volatile import element_id, leaves, top_level
from mergelake.parts.read.reader import PartReader
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from tests.helpers.manifests import manifest
from tests.helpers.merging import SmallTable, plain
from tests.helpers.volatile import Shared, here, plan

SETTINGS = {"index_granularity": 50, "min_bytes_for_full_part_storage": 0, "merge_upload_policy": "volatile"}


@st.composite
def shared_states(draw):
    """A partition with volatile parts of several owners, and those whose bytes are on this node's disk."""
    shared = Shared(min_age_to_force_merge_seconds=draw(st.sampled_from([0, 1])))
    shared.insert(draw(st.integers(2, 25)), size=draw(st.sampled_from([1 << 10, 1 << 20, 1 << 28])))
    for _ in range(draw(st.integers(0, 6))):
        count = len(shared.elements())
        if count < 2:
            break
        first = draw(st.integers(0, count - 2))
        end = draw(st.integers(first + 2, min(count, first + 6)))
        part = shared.intend(first, end, draw(st.sampled_from(["me", "other"])))
        if draw(st.integers(0, 4)) == 0:
            shared.publish(part)
    shared.renew("me", "other")
    shared.pass_s(5)
    live = [part for held in shared.state.volatile.values() for part in held]
    local = here(*[part for part in live if draw(st.booleans())])
    return shared, local


@settings(max_examples=60, deadline=None)
@given(shared_states())
def test_what_a_node_proposes_is_legal_and_no_barrier_is_touched(case):
    # M-028
    shared, local = case
    for action in plan(shared, local=local):
        if isinstance(action, Propose):
            chosen = [e for e in shared.elements() if element_id(e) in action.source_ids]
            assert all(not isinstance(e, VolatilePart) or e.id in local for e in chosen)
        if isinstance(action, (Propose, Merge)):
            shared.commit(operation(shared, action, "me"))


def operation(shared: Shared, action: Propose | Merge, node: str) -> AddVolatile | Publish:
    """What an action commits."""
    if isinstance(action, Propose):
        return AddVolatile(shared.new_id(), action.partition_id, action.source_ids, MergeRecipe(1, 0), node)
    return Publish(manifest(shared.new_id()), tuple(part.manifest.id for part in action.sources))


@settings(max_examples=60, deadline=None)
@given(shared_states(), st.integers(2, 8))
def test_whatever_nodes_choose_on_the_same_state_what_is_live_stays_nested_or_disjoint(case, nodes):
    # M-014, M-020: one lands, who chose the same is refused
    shared, local = case
    wishes = []
    for number in range(nodes):
        name = f"n{number}"
        bytes_here = {key: found for at, (key, found) in enumerate(local.items()) if (at + number) % 3}
        wishes += [(name, action) for action in plan(shared, {"name": name}, local=bytes_here)]
    proposals = [(name, action) for name, action in wishes if isinstance(action, (Propose, Merge))]
    landed = 0
    for name, action in proposals:
        entry = Entry(shared.state.version + 1, "", shared.now_ms, "", (operation(shared, action, name),))
        after = step(shared.state, entry)
        if not isinstance(after, Reject):
            shared.state = after
            landed += 1
        elements = shared.elements()
        infos = [element.info for element in elements]
        assert all(left.max_block < right.min_block for left, right in pairwise(infos))
        for outer in shared.state.volatile.get("all", ()):
            inside = leaves(shared.state.partitions["all"], outer.info)
            assert (inside[0].info.min_block, inside[-1].info.max_block) == (outer.info.min_block, outer.info.max_block)
    assert landed > 0 or not proposals


def read(disk, manifest: PartManifest, table: TableSchema) -> list:
    reader = PartReader(disk, "t", manifest, {column.name: column for column in table.stored})
    return [row for batch in reader.read(list(COLUMNS)) for row in plain(pa.Table.from_batches([batch]))]


COLUMNS = {
    "k": "UInt64",
    "l": "LowCardinality(String)",
    "n": "Nullable(Int32)",
    "s": "String",
    "v": "UInt32",
    "a": "Array(UInt8)",
}
FUNCTIONS = {"l": "max", "n": "anyLast", "s": "min", "v": "groupBitXor", "a": "groupArrayArray"}
AGGREGATED = {name: f"SimpleAggregateFunction({function}, {COLUMNS[name]})" for name, function in FUNCTIONS.items()}


def schema(engine: str, profile: str, compact: bool) -> TableSchema:
    given = {**SETTINGS, "part_profile": profile, "min_bytes_for_wide_part": 1 << 20 if compact else 0}
    columns = COLUMNS | AGGREGATED if engine == "AggregatingMergeTree" else COLUMNS
    return define(columns, order_by="k", engine=engine, settings=given)


@st.composite
def rows(draw):
    seed, count = draw(st.integers(0, 10_000)), draw(st.integers(1, 300))
    values = {
        "k": [(seed * 31 + i * 7919) % 200 for i in range(count)],
        "l": [f"label {(seed + i) % 7}" for i in range(count)],
        "n": [None if i % 3 == 0 else i for i in range(count)],
        "s": [f"{seed} {i}" for i in range(count)],
        "v": [(seed + i) % 5 for i in range(count)],
        "a": [[1] * (i % 4) for i in range(count)],
    }
    return pa.table(
        {name: to_storage(pa.array(values[name]), parse_type(kind), name) for name, kind in COLUMNS.items()}
    )


@settings(max_examples=15, deadline=None)
@given(
    st.lists(rows(), min_size=4, max_size=7),
    st.sampled_from(
        ["MergeTree", "ReplacingMergeTree(v)", "CoalescingMergeTree", "SummingMergeTree((v))", "AggregatingMergeTree"]
    ),
    st.sampled_from(["classic", "modern"]),
    st.booleans(),
    st.data(),
)
def test_a_volatile_part_has_the_same_rows_from_its_sources_from_its_leaves_and_from_a_disk(
    blocks, engine, profile, compact, data
):
    table, disk = SmallTable(schema(engine, profile, compact)), MemoryStore()
    for block in blocks:
        table.insert(block)
    local: dict[str, LocalPart] = {}
    log = table.handle.log
    for _ in range(data.draw(st.integers(1, 3))):
        state = log.state
        elements = top_level(state.partitions["all"], state.volatile.get("all", ()))
        if len(elements) < 2:
            break
        first = data.draw(st.integers(0, len(elements) - 2))
        end = data.draw(st.integers(first + 2, len(elements)))
        volatile_id = table.ids.new_id()
        intention = AddVolatile(
            volatile_id, "all", tuple(map(element_id, elements[first:end])), MergeRecipe(1, 0), "me"
        )
        log.commit(lambda _, intention=intention: [intention])
        part = log.state.live(volatile_id)
        made = []
        for known in (local, {}):
            task = build_task("t", log.state, part, known)
            made.append(execute_merge(table.store, task, table.ids, table.clock, threads=1, disk=disk))
        assert same_content(*made)
        assert made[0].rows == made[1].rows
        one, other = (read(disk, manifest, task.schema) for manifest in made)
        assert one == other
        local[volatile_id] = LocalPart(volatile_id, part.info, made[0])
