"""`RowsUnchanged`: what was computed from the rows of a version is committed only if no row has changed since.

And the texts of mutations that are over: the state keeps their beginnings.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.log.backends.intake import Left
from mergelake.log.commit.group import taken_along
from mergelake.log.model.conflict import Reject, check, step
from mergelake.log.model.describe import describe_op
from mergelake.log.model.fold import fold
from mergelake.log.model.operations import (
    AddParts,
    AlterMetadata,
    CreateTable,
    DropParts,
    DropRange,
    DropTable,
    Entry,
    FinishMutations,
    KillMutation,
    Mutation,
    Publish,
    RenewLease,
    RowsUnchanged,
    Tag,
    UndropTable,
)
from mergelake.log.model.state import COMMANDS_KEPT_MAX, State
from mergelake.log.storage import checkpoint
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.log.storage.machine import TableMachine
from mergelake.log.storage.part_rows import header_of
from mergelake.store import open_store
from tests.helpers.manifests import SCHEMA, manifest, new_log, open_log, schema_with


def entry(state, *ops):
    return Entry(state.version + 1, f"attempt {state.version + 1}", 1000 + state.version, "test", ops)


def run(state, *ops):
    after = step(state, entry(state, *ops))
    assert not isinstance(after, Reject), after
    return after


@pytest.fixture
def state():
    state = run(State(), CreateTable(SCHEMA))
    for n in (1, 2, 3):
        state = run(state, AddParts((manifest(n),), dedup_token=f"t{n}"))
    return run(state, Mutation("m", "DELETE WHERE k = 1"))


def ids(state, *names):
    return tuple(part.manifest.id for part in state.parts() if part.name in names)


CHANGES = {
    "insert": lambda state: [AddParts((manifest(9),))],
    "mutation": lambda state: [Mutation("n", "DELETE WHERE k = 2")],
    "kill": lambda state: [KillMutation("m")],
    "drop": lambda state: [DropRange("all", "drop")],
    "drop of old blocks": lambda state: [DropRange("all", max_block=1)],
    "truncate": lambda state: [DropRange(kind="truncate")],
    "drop of a part": lambda state: [DropParts("all", ids(state, "all_2_2_0"))],
    "alter": lambda state: [AlterMetadata(replace(schema_with(merge_max_block_size=1), version=2))],
}
NO_CHANGES = {
    "merge": lambda state: [Publish(manifest(9), ids(state, "all_1_1_0", "all_2_2_0"))],
    "merge with the mutation": lambda state: [
        Publish(manifest(9), ids(state, "all_1_1_0", "all_2_2_0"), mutations=(4,))
    ],
    "token of an insert without rows": lambda state: [AddParts((), dedup_token="empty")],
    "tag": lambda state: [Tag("release", state.version)],
    "lease": lambda state: [RenewLease("node", state.version, 10**12)],
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_rows_refuses_it(state, what):
    since = state.version
    assert check(state, RowsUnchanged(since)) is None
    after = run(state, *CHANGES[what](state))
    reject = check(after, RowsUnchanged(since))
    assert reject is not None
    assert reject.kind == "conflict"
    assert check(after, RowsUnchanged(after.version)) is None
    later = run(after, Tag("later", 1))
    assert check(later, RowsUnchanged(after.version)) is None
    # Also before it in the same entry, where the state has not got its version yet.
    assert isinstance(step(state, entry(state, *CHANGES[what](state), RowsUnchanged(since))), Reject)


@pytest.mark.parametrize("what", NO_CHANGES)
def test_merges_and_housekeeping_do_not(state, what):
    since = state.version
    after = run(state, *NO_CHANGES[what](state))
    assert check(after, RowsUnchanged(since)) is None
    run(state, *NO_CHANGES[what](state), RowsUnchanged(since), AddParts((manifest(10),)))


def test_a_table_that_comes_back_may_have_other_rows(state):
    since = state.version
    after = run(run(state, DropTable()), UndropTable())
    assert check(after, RowsUnchanged(since)) is not None


def test_a_checkpoint_keeps_it_and_an_old_one_errs_to_the_safe_side(state, monkeypatch):
    state = run(state, Tag("release", 1))
    assert state.rows_version == state.version - 1
    data = encode_checkpoint(state)
    assert decode_checkpoint(data) == state
    # One that was written before the field existed.
    monkeypatch.setattr(checkpoint, "header_of", lambda schema: without(header_of(schema), "rows_version"))
    assert decode_checkpoint(data) == replace(state, rows_version=state.version)


def without(header, name):
    return {key: value for key, value in header.items() if key != name}


def test_members_of_other_processes_before_it_in_an_entry_count(tmp_path):
    """A member in the intake is checked at its own place: behind an insert of the entry's writer it is void."""
    store = open_store(str(tmp_path))
    log = new_log(store)
    before = log.state
    own = Entry(before.version + 1, "a" * 32, 5, "one", (AddParts((manifest(1),)),))
    machine = TableMachine()
    after = machine.step(before, own)
    left = Left(own.version, "b" * 32, "two", (RowsUnchanged(before.version), Mutation("m", "DELETE WHERE 1")))
    whole, state = taken_along(machine, before, own, after, [left])
    assert whole.ops == own.ops
    assert not state.mutations
    quiet = Entry(before.version + 1, "a" * 32, 5, "one", (Tag("now", before.version),))
    whole, state = taken_along(machine, before, quiet, machine.step(before, quiet), [left])
    assert [m.id for m in state.mutations] == ["m"]
    assert open_log(store).state == before


LONG = "DELETE WHERE k IN CAST([" + ", ".join(f"'{n}'" for n in range(100_000)) + "], 'Array(UInt64)')"


@pytest.mark.parametrize("end", [FinishMutations(("m",)), KillMutation("m")])
def test_of_a_mutation_that_is_over_the_state_keeps_the_beginning(end):
    entries = []
    state = State()
    for ops in ((CreateTable(SCHEMA),), (AddParts((manifest(1),)),), (Mutation("m", LONG),)):
        entries.append(entry(state, *ops))
        state = run(state, *ops)
    assert state.mutations[0].commands == LONG
    pending = encode_checkpoint(state)
    publish = Publish(manifest(2), ids(state, "all_1_1_0"), "mutation", mutations=(2,))
    for ops in ((publish,), (end,)) if isinstance(end, FinishMutations) else ((end,),):
        entries.append(entry(state, *ops))
        state = run(state, *ops)
    (over,) = state.mutations
    assert len(over.commands) == COMMANDS_KEPT_MAX
    assert over.commands == LONG[: COMMANDS_KEPT_MAX - 1] + "…"
    # The same from the beginning, from a checkpoint before the end, and through one after it.
    assert fold(State(), entries) == state
    assert fold(decode_checkpoint(pending), entries[3:]) == state
    data = encode_checkpoint(state)
    assert decode_checkpoint(data) == state
    assert len(data) < 20_000 < len(pending)
    assert len(describe_op(Mutation("m", LONG))) < COMMANDS_KEPT_MAX + 100


def test_short_texts_stay_whole():
    state = run(run(State(), CreateTable(SCHEMA)), AddParts((manifest(1),)))
    state = run(state, Mutation("m", "DELETE WHERE 1"))
    assert run(state, KillMutation("m")).mutations[0].commands == "DELETE WHERE 1"
