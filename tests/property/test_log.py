"""Laws of the log: a random history, the real fold, and a model that a child could check."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from mergelake.core.base.ids import SeededIds
from mergelake.log.model.conflict import Reject, check, step
from mergelake.log.model.fold import fold
from mergelake.log.model.operations import AddParts, CreateTable, DropRange, Entry, Publish
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.retired import Retired
from mergelake.log.model.state import TOKENS_MAX, State
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint, state_hash
from mergelake.log.storage.encoding import decode_entry, encode_entry
from tests.helpers.manifests import SCHEMA, manifest

PARTITIONS = ("a", "b")

commands = st.one_of(
    st.tuples(st.just("insert"), st.lists(st.sampled_from(PARTITIONS), max_size=3), st.sampled_from(["", "t1", "t2"])),
    st.tuples(st.just("merge"), st.sampled_from(PARTITIONS), st.integers(0, 6), st.integers(1, 4)),
    st.tuples(st.just("bad merge"), st.sampled_from(PARTITIONS), st.integers(0, 6), st.integers(0, 6)),
    st.tuples(st.just("drop"), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("truncate")),
)
entries = st.lists(st.lists(commands, min_size=1, max_size=3), max_size=20)


@dataclass
class Model:
    """A table as a list of parts (partition, blocks, level), newest last; rows are their blocks."""

    parts: list[tuple[str, tuple[int, ...], int]] = field(default_factory=list)
    counter: int = 0
    tokens: dict[str, set[str]] = field(default_factory=dict)

    def names(self):
        return sorted(f"{p}_{blocks[0]}_{blocks[-1]}_{level}" for p, blocks, level in self.parts)

    def of(self, partition):
        return sorted(part for part in self.parts if part[0] == partition)

    def insert(self, partitions, token):
        if token and token in self.tokens:
            return False
        for partition in partitions:
            self.counter += 1
            self.parts.append((partition, (self.counter,), 0))
        if token:
            self.tokens[token] = set(partitions)
        return True

    def merge(self, sources):
        self.parts = [part for part in self.parts if part not in sources]
        blocks = tuple(sorted(b for _, held, _ in sources for b in held))
        self.parts.append((sources[0][0], blocks, max(level for *_, level in sources) + 1))

    def drop(self, partition):
        self.parts = [part for part in self.parts if partition not in (None, part[0])]
        if partition is None:
            self.tokens = {}
        self.tokens = {name: held - {partition} for name, held in self.tokens.items() if held != {partition}}


def operation(command, state, model, ids):
    """The operation that a command means on this state, and whether the model thinks that it is valid."""
    match command:
        case ("insert", partitions, token):
            parts = tuple(manifest(ids.new_id(), p) for p in partitions)
            return AddParts(parts, dedup_token=token), not (token and token in model.tokens)
        case ("merge", partition, first, count):
            held = state.partitions.get(partition, ())
            chosen = held[first : first + count]
            return Publish(manifest(ids.new_id(), partition), tuple(p.manifest.id for p in chosen)), bool(chosen)
        case ("bad merge", partition, one, two):
            held = state.partitions.get(partition, ())
            chosen = [held[at] for at in sorted({one, two}) if at < len(held)]
            valid = bool(chosen) and (len(chosen) == 1 or abs(one - two) == 1)
            return Publish(manifest(ids.new_id(), partition), tuple(p.manifest.id for p in chosen)), valid
        case ("drop", partition):
            return DropRange(partition), True
        case _:
            return DropRange(kind="truncate"), True


def execute(model, op, state):
    match op:
        case AddParts(parts, token):
            model.insert([part.partition_id for part in parts], token)
        case Publish(part, replaced):
            by_id = {p.manifest.id: p.info for p in state.partitions[part.partition_id]}
            chosen = {(by_id[i].min_block, by_id[i].max_block) for i in replaced}
            model.merge([p for p in model.of(part.partition_id) if (p[1][0], p[1][-1]) in chosen])
        case DropRange(partition):
            model.drop(partition)


def history(script):
    """Run a script; every step is compared with the model. Returns the entries and the states after each."""
    ids, model, state = SeededIds(1), Model(), State()
    log, states = [], []
    for commands_of_entry in [None, *script]:
        trial, ops = state, []
        for command in commands_of_entry or ():
            op, valid = operation(command, trial, model, ids)
            reject = check(trial, op)
            assert (reject is None) == valid, (op, reject)
            if reject is None:
                execute(model, op, trial)
                ops.append(op)
                trial = step(state, Entry(state.version + 1, "x", state.version, "me", tuple(ops)))
                assert not isinstance(trial, Reject)
                assert sorted(part.name for part in trial.parts()) == model.names()
        if commands_of_entry is None:
            ops = [CreateTable(SCHEMA)]
        entry = Entry(state.version + 1, ids.new_id(), state.version, "me", tuple(ops))
        state = step(state, entry)
        log.append(entry)
        states.append(state)
        assert set(state.tokens) == set(model.tokens)
    return log, states


def invariants(state):
    anew = Partitions.of(dict(state.partitions))
    assert (anew.totals, anew.most) == (state.partitions.totals, state.partitions.most)
    assert anew == state.partitions
    retired = Retired().plus(list(state.retired))
    assert retired == state.retired
    assert all(retired.get(part.id) == part for part in state.retired)
    assert len(retired) == len(state.retired) == len(list(state.retired))
    seen = set()
    for partition_id, parts in state.partitions.items():
        assert parts
        last = state.floor_of(partition_id)
        for part in parts:
            assert part.info.partition_id == partition_id == part.manifest.partition_id
            assert last < part.info.min_block <= part.info.max_block <= state.block_counter  # I4, floors
            last = part.info.max_block
            assert part.manifest.id not in seen
            seen.add(part.manifest.id)
    gone = [part.id for part in state.retired]
    assert len(set(gone)) == len(gone)
    assert not seen & set(gone)
    assert len(state.tokens) <= TOKENS_MAX


@given(entries)
def test_the_fold_agrees_with_the_model_and_keeps_its_invariants(script):  # M-038
    _, states = history(script)
    for state in states:
        invariants(state)


@given(entries, st.integers(0, 100))
def test_a_fold_is_the_same_whole_or_from_a_checkpoint(script, cut):  # M-070
    log, states = history(script)
    at = cut % len(states)
    restored = decode_checkpoint(encode_checkpoint(states[at]))
    assert restored == states[at]
    assert fold(restored, log[at + 1 :]) == fold(State(), log) == states[-1]
    assert state_hash(fold(restored, log[at + 1 :])) == state_hash(states[-1])


@given(entries)
def test_a_replay_from_json_gives_the_identical_state(script):  # M-021
    log, states = history(script)
    replayed = fold(State(), [decode_entry(encode_entry(entry)) for entry in log])
    assert replayed == states[-1]
    assert encode_checkpoint(replayed) == encode_checkpoint(states[-1])
