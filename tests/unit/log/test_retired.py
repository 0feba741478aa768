"""Retired parts: by runs and stored runs as one by one; what a change costs does not grow."""

from __future__ import annotations

import pickle
import random
from itertools import groupby

import pytest

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.names import PartInfo
from mergelake.log.model.parts import RetiredPart
from mergelake.log.model.retired import RUN_MAX, Retired
from mergelake.log.model.state import State
from mergelake.log.storage import stored_runs
from mergelake.log.storage.segment_objects import SegmentObjects
from mergelake.log.storage.stored_runs import PlacedRun, RunRef, Runs
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.work import bytecodes


def _retired(n: int, seed: int) -> list[RetiredPart]:
    draw = random.Random(seed)
    out, version = [], 5
    for number in range(n):
        version += draw.randrange(3)
        info = PartInfo("all", number, number, 0)
        # One in ten left long before it was given up: a part that had been detached.
        went = version if draw.random() < 0.9 else draw.randrange(3, version + 1)
        out.append(RetiredPart(f"{number:032x}", info, 1, 1, draw.randrange(1, went), went, 0, noted=version))
    return out


@pytest.mark.parametrize("seed", range(20))
def test_runs_keep_what_each_part_by_itself_is_kept_for(seed: int) -> None:
    draw = random.Random(seed)
    parts = _retired(4 * RUN_MAX, seed)
    held, at = Retired(), 0
    while at < len(parts):
        step = draw.randrange(1, 700)
        held, at = held.plus(parts[at : at + step]), at + step
    assert tuple(held) == tuple(parts)
    for _ in range(5):
        history = draw.randrange(parts[-1].retired + 2)
        pinned = sorted(draw.sample(range(1, max(history, 2)), min(draw.randrange(3), max(history, 2) - 1)))
        left = [p for p in parts if p.retired > history or any(p.added <= v < p.retired for v in pinned)]
        after = held.still_shown(history, pinned)
        assert tuple(after) == tuple(left)
        assert after == Retired().plus(left)
        assert (after is held) == (len(left) == len(parts))
        assert {p.id for p in parts if after.get(p.id)} == {p.id for p in left}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_affordable_is_the_oldest_version_within_the_limit(seed: int) -> None:
    draw = random.Random(seed)
    parts, version = [], 2
    for number in range(1, 3 * RUN_MAX):
        version += draw.choice([0, 0, 1, 3])
        added = draw.randrange(1, version)
        info = PartInfo("all", number, number, 0)
        parts.append(RetiredPart(f"{number:032x}", info, 1, draw.randrange(1, 100), added, version, 0))
    held = Retired().plus(parts)
    assert held.bytes_on_disk == sum(part.bytes_on_disk for part in parts)
    for pinned in ([], sorted(draw.sample(range(1, version + 1), 3))):
        counted = [p for p in parts if not any(p.added <= v < p.retired for v in pinned)]
        for limit in (0, 1, draw.randrange(sum(p.bytes_on_disk for p in counted)), 10**9):
            found = held.oldest_within(limit, pinned)
            kept = sum(p.bytes_on_disk for p in counted if p.retired > found)
            assert kept <= limit
            one_more = sum(p.bytes_on_disk for p in counted if p.retired > found - 1)
            assert not found or one_more > limit
    assert Retired().oldest_within(0, []) == 0
    assert Retired().plus(parts[:1]).oldest_within(0, []) == parts[0].retired


def test_one_more_costs_the_same_behind_many_as_behind_few() -> None:
    few, many = (Retired().plus(_retired(runs * RUN_MAX + 10, 1)) for runs in (2, 100))
    new = _retired(100 * RUN_MAX + 11, 2)[-1:]
    assert bytecodes(lambda: many.plus(new)) < 1.2 * bytecodes(lambda: few.plus(new))
    assert bytecodes(lambda: many.still_shown(2, ())) < len(many) / 10


@pytest.mark.parametrize("seed", range(20))
def test_what_came_and_went_among_retired_parts_is_found_by_runs(seed: int) -> None:
    draw = random.Random(seed)
    parts = _retired(3 * RUN_MAX, seed)
    older = Retired().plus(parts[: draw.randrange(len(parts))])
    newer = older
    for at in range(len(older), len(parts), 300):
        newer = newer.plus(parts[at : at + 300]).still_shown(draw.randrange(parts[-1].retired), [])
    came, went = newer.since(older)
    assert {part.id for part in came} == {part.id for part in newer} - {part.id for part in older}
    assert {part.id for part in went} == {part.id for part in older} - {part.id for part in newer}
    assert older.since(older) == ([], [])


def _runs(store: MemoryStore, state: State | None = None) -> Runs:
    return Runs(SegmentObjects(store, "t"), lambda *_: state)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_runs, "INLINE_PARTS_MAX", 20)
    monkeypatch.setattr(stored_runs, "RUN_PARTS_MAX", 60)


def _objects(store: MemoryStore) -> int:
    return len(list(store.list("t")))


@pytest.mark.parametrize("seed", range(12))
def test_stored_runs_of_several_writers_hold_what_a_plain_list_has(small: None, seed: int) -> None:
    """Writers that take turns with checkpoints, each with its own state; some open from the newest checkpoint."""
    draw = random.Random(seed)
    store, ids, parts = MemoryStore(), SeededIds(seed), _retired(500, seed)
    writers = [(_runs(store), Retired()) for _ in range(3)]
    plain, base, at, history, version, stored = Retired(), tuple[PlacedRun, ...](), 0, 0, 0, 0
    while at < len(parts):
        end = min(at + draw.randrange(1, 40), len(parts))
        while end < len(parts) and parts[end].noted == parts[end - 1].noted:  # parts of an entry come together
            end += 1
        history = draw.randrange(history, parts[at].noted + 1) if draw.random() < 0.2 else history
        pinned = sorted(draw.sample(range(1, history), min(2, history - 1))) if history > 1 else []
        states = [plain, *(retired for _, retired in writers)]
        plain, *held = [state.plus(parts[at:end]).still_shown(history, pinned) for state in states]
        at, version, chosen = end, version + 1, draw.randrange(3)
        runs, before = writers[chosen][0], held[chosen]
        if draw.random() < 0.7:
            lost = {run.name for run in base if draw.random() < 0.05}
            base = runs.laid_out(State(version=version, retired=before), base, lost, ids)
            held[chosen] = before.held_as(runs.stored(version, base))
            if draw.random() < 0.3:  # as if opened anew
                fresh = _runs(store)
                whole = [fresh.stored(version, [run])[0] if isinstance(run, RunRef) else run for run in base]
                writers[chosen], held[chosen] = (fresh, held[chosen]), Retired.of(whole)
            assert sum(run.facts.parts for run in base if not isinstance(run, RunRef)) <= 20
        writers = [(each, after) for (each, _), after in zip(writers, held, strict=True)]
        stored += sum(after.in_memory < len(after) for after in held)
        for after, was in zip(held, states[1:], strict=True):
            assert after == plain
            assert after.hash == Retired().plus(tuple(plain)).hash
            assert after.bytes_on_disk == plain.bytes_on_disk
            assert after.oldest_within(7, pinned) == plain.oldest_within(7, pinned)
            came, went = after.since(was)
            assert {p.id for p in came} == {p.id for p in plain} - {p.id for p in states[0]}
            assert {p.id for p in went} == {p.id for p in states[0]} - {p.id for p in plain}
            wanted = draw.sample(parts[:at], min(at, 10))
            base_version = min(part.added for part in wanted) - 1
            assert after.find({p.id for p in wanted}, base_version) == {p.id: p for p in wanted if p in plain}
    assert stored > 5
    assert pickle.loads(pickle.dumps(writers[0][1])) == plain
    assert _objects(store) > 3


def test_a_part_that_was_begun_lately_is_not_looked_for_in_old_runs(small: None) -> None:
    store, parts = MemoryStore(), _retired(200, 1)
    runs = _runs(store)
    laid = runs.laid_out(State(version=1000, retired=Retired().plus(parts)), (), (), SeededIds(1))
    held = Retired.of(_runs(store).stored(1000, laid))
    before = store.counters
    assert held.find({"f" * 32}, base_version=parts[-1].noted) == {}
    assert held.bytes_on_disk == 200
    assert len(held) == 200
    assert held.still_shown(parts[-1].noted + 1, []) == ()
    assert store.counters.requests == before.requests
    assert held.find({"f" * 32}) == {}
    assert store.counters.requests == before.requests + len(laid)
    assert held.find({"e" * 32}) == {}
    assert store.counters.requests == before.requests + len(laid)  # kept


def test_each_part_is_written_a_few_times_however_many_there_are(small: None) -> None:
    written = []
    for count in (1000, 4000):
        store, ids, parts = MemoryStore(), SeededIds(1), _retired(count, 3)
        runs, base, held = _runs(store), tuple[PlacedRun, ...](), Retired()
        for version, entry in groupby(parts, lambda part: part.noted):
            held = held.plus(tuple(entry))
            base = runs.laid_out(State(version=version, retired=held), base, (), ids)
            held = held.held_as(runs.stored(version, base))
        written.append(store.counters.bytes_put / count)
        assert len(base) < count / 20
    assert written[1] < 1.2 * written[0]


def test_a_run_that_is_damaged_or_gone_is_made_from_an_older_checkpoint(small: None) -> None:
    store, parts = MemoryStore(), _retired(100, 1)
    state = State(version=1000, retired=Retired().plus(parts))
    laid = _runs(store).laid_out(state, (), (), SeededIds(1))
    keys = [meta.key for meta in store.list("t")]
    store.put(f"t/checkpoints/{laid[0].name}", b"x")
    for without in (None, state):
        (run,) = _runs(store, without).stored(1000, laid[:1])
        if without is None:
            with pytest.raises(CorruptDataError, match="does not hold what was written"):
                run.parts()
        else:
            assert run.parts() == tuple(parts[: run.facts.parts])
            assert list(run.find([parts[0].id])) == parts[:1]
    store.delete(keys)
    with pytest.raises(NotFoundError):
        _runs(store).stored(1000, laid)[0].parts()
