"""Runs of worlds: one seed, many seeds by two processes, and what a failed one prints.

A failing history is made shorter before it is shown: its turns are replayed without ever more of them, as long as the
same invariant breaks.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from unittest import mock

from mergelake.jobs.publish.plan import EmptyPart
from mergelake.log.commit import contention
from mergelake.log.storage import checkpoint, encoding, layout, stored_runs
from mergelake.log.storage.segments import EAGER_BYTES, MADE_MAX
from mergelake.table.handle.handle import TableHandle
from tests.simulation.bugs import BUGS, FIRST
from tests.simulation.real_world import RealWorld, real_parts
from tests.simulation.stages import OF_A_STAGE, REAL_ROWS, has_slow_appends, has_small_segments, seeds_of
from tests.simulation.threads import simulated_threads
from tests.simulation.world import Turn, World

STEPS = 900
REAL_SHARE = 3
"""Worlds of real parts have so many steps fewer."""
WORKERS = 2
TOKENS_MAX = 12
PREFETCH_MAX = 4
COLLECT_EVERY = 10
THINNED = 5
"""In one world of so many, checkpoints far behind the head are thinned out."""
CROWDED_S = 5.0
"""What writers take an append for in a crowd: they look for each other so long."""
SETTLES = (0, 4, 7, 8, 12)
"""The seeds, of sixteen, that go on without faults until all is at rest."""
SHORTEN_RUNS = 300
"""Replays that a failing history is worth."""


@dataclass
class Result:
    """What one or several histories were."""

    seeds: int = 0
    digest: str = ""
    steps: int = 0
    entries: int = 0
    requests: int = 0
    landed: Counter[str] = field(default_factory=Counter)
    did: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Result) -> Result:
        self.seeds += other.seeds
        self.digest = other.digest
        self.steps += other.steps
        self.entries += other.entries
        self.requests += other.requests
        self.landed += other.landed
        self.did += other.did
        self.failed += other.failed
        self.faults += other.faults
        return self


class Violation(AssertionError):
    """A history that broke an invariant. The text begins with what broke."""

    def __init__(self, text: str, seed: int, turns: Sequence[Turn], kind: str) -> None:
        super().__init__(text)
        self.seed = seed
        self.turns = turns
        self.kind = kind


@contextlib.contextmanager
def simulated(seed: int = 0) -> Iterator[None]:
    """The few things of the engine that must be smaller, or must not start threads, in a simulation."""
    prefetch = 1 + seed % PREFETCH_MAX
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    # Many processes read the same checkpoint, and the same entry; decoding is pure, but for segments.
    root, decode = functools.lru_cache(32)(checkpoint.decode_root), checkpoint.decode_checkpoint
    whole = functools.lru_cache(32)(decode)
    entry = functools.lru_cache(4096)(encoding.decode_entry)

    def has_segments(read: checkpoint.Root) -> bool:
        return bool(read.layout.members or read.layout.run_refs)

    try:
        with (
            mock.patch("mergelake.log.model.fold.TOKENS_MAX", TOKENS_MAX),
            simulated_threads(),
            mock.patch("mergelake.log.model.fold.FINISHED_MUTATIONS_TO_KEEP", 2),
            mock.patch("mergelake.log.reading.tail.PREFETCH_MAX", prefetch),
            mock.patch("mergelake.log.reading.verify.PREFETCH_MAX", prefetch),
            mock.patch("mergelake.log.commit.group.CALLERS_MAX", 2),
            mock.patch("mergelake.log.commit.group.BYTES_MAX", 1000),
            _crowded(seed),
            mock.patch("mergelake.log.reading.truncate.ENTRY_BYTES", 64 if seed % THINNED == 2 else 4096),
            mock.patch("mergelake.jobs.publish.publish._write_empty", _write_empty),
            mock.patch("mergelake.log.reading.tail.decode_entry", lambda data, key="": entry(data)),
            mock.patch("tests.simulation.table.decode_entry", entry),
            mock.patch.object(checkpoint, "decode_root", lambda data, key="": root(data)),
            mock.patch.object(
                checkpoint,
                "decode_checkpoint",
                lambda data, key="", segments=None: (
                    decode(data, key, segments) if has_segments(root(data)) else whole(data)
                ),
            ),
            _segmented(seed),
        ):
            yield
    finally:
        logging.disable(level)


@contextlib.contextmanager
def _segmented(seed: int) -> Iterator[None]:
    """Segments of checkpoints that are small, and read late, in some seeds; in the others none are needed."""
    small = has_small_segments(seed)
    with (
        mock.patch("mergelake.log.storage.layout.INLINE_MAX", 600 if small else layout.INLINE_MAX),
        mock.patch("mergelake.log.storage.layout.SEGMENT_MAX", 40000 if small else layout.SEGMENT_MAX),
        mock.patch("mergelake.log.storage.layout.FANOUT", 2 + seed % 3 if small else layout.FANOUT),
        mock.patch("mergelake.log.storage.segment.FRAME_ROWS", 2),
        mock.patch("mergelake.log.storage.stored_runs.INLINE_PARTS_MAX", 5 if small else stored_runs.INLINE_PARTS_MAX),
        mock.patch("mergelake.log.storage.stored_runs.RUN_PARTS_MAX", 8 if small else stored_runs.RUN_PARTS_MAX),
        mock.patch("mergelake.log.storage.segments.EAGER_BYTES", 0 if small and seed % 3 else EAGER_BYTES),
        mock.patch("mergelake.log.storage.segments.MADE_MAX", 6 if small and seed % 2 else MADE_MAX),
    ):
        yield


@contextlib.contextmanager
def _crowded(seed: int) -> Iterator[None]:
    """Few members in an entry, leaders that remember little, and in a crowd appends that take long."""
    crowd = has_slow_appends(seed)
    with (
        mock.patch("mergelake.log.backends.intake.TAKEN_MAX", 3),
        mock.patch("mergelake.log.reading.recent.VERSIONS_MAX", 4 + seed % 13),
        mock.patch("mergelake.log.relay.leader.ANSWER_MAX", 3000 if seed % 3 else 1 << 20),
        mock.patch("mergelake.log.commit.contention.APPEND_MIN_S", CROWDED_S if crowd else contention.APPEND_MIN_S),
        mock.patch("mergelake.log.commit.contention.APPEND_MAX_S", CROWDED_S if crowd else contention.APPEND_MAX_S),
    ):
        yield


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected: what is kept by weak references would depend on when it is."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _write_empty(handle: TableHandle, schema: object, cover: EmptyPart) -> None:
    handle.store.put(f"{handle.directory}/{cover.token}/data.bin", b"[]")


def run(seed: int, steps: int = STEPS, turns: Sequence[Turn] | None = None, lines: list[str] | None = None) -> Result:
    """One history, by the seed's own choice of turns or by `turns`; raises Violation."""
    with simulated(seed), uncollected(), contextlib.ExitStack() as stack:
        real = seed >= REAL_ROWS
        if real:
            stack.enter_context(real_parts(seed))
        world = RealWorld(seed, lines) if real else World(seed, lines)
        try:
            for turn in [None] * (steps // REAL_SHARE if real else steps) if turns is None else turns:
                world.step(turn)
            world.finish()
            if seed % 16 in SETTLES:
                world.settle()
        except Exception as failure:
            kind = f"{type(failure).__name__}: {failure}"
            text = f"SEED={seed}, step {world.kernel.steps}: {kind}"
            raise Violation(text, seed, world.turns, _shape(kind)) from failure
        finally:
            world.close()
    return Result(
        1,
        world.kernel.trace.digest.hexdigest(),
        world.kernel.steps,
        sum(table.state.version for table in world.tables.values()),
        world.bucket.requests,
        sum((table.landed for table in world.tables.values()), Counter()),
        world.did + Counter({"passed on": world.network.passed}),
        world.failed,
        Counter({fault.name: count for fault, count in world.bucket.faults.items()}),
    )


def _shape(text: str) -> str:
    """A failure without its numbers and ids: two with the same shape are the same."""
    letters = " ghijklmnopqrstuvwxyzA"
    return "".join(letter for letter in text.split(",")[0] if letter in letters or letter == " ")[:40]


def shorten(violation: Violation, runs: int = SHORTEN_RUNS) -> Violation:
    """The same failure by fewer turns, as few as `runs` replays find."""
    best, size = violation, max(1, len(violation.turns) // 2)
    while size and runs > 0:
        at = 0
        while at < len(best.turns) and runs > 0:
            runs -= 1
            try:
                run(best.seed, turns=[*best.turns[:at], *best.turns[at + size :]])
                at += size
            except Violation as shorter:
                if shorter.kind == best.kind:
                    best = shorter
                else:
                    at += size
        size //= 2
    return best


def explain(violation: Violation) -> str:
    """Seed, what broke, and the shortest trace that was found."""
    best = shorten(violation)
    lines: list[str] = []
    with contextlib.suppress(Violation):
        run(best.seed, turns=best.turns, lines=lines)
    # Reads and pauses that went well say little; who replays the seed sees them.
    told = [line for line in lines if " waits before " not in line and (": get " not in line or line.endswith(")"))]
    trace = "\n".join(f"    {line}" for line in told[-60:])
    return f"{violation}\nThe shortest trace found ({len(best.turns)} turns), which ends in\n    {best}:\n{trace}"


def tidily(seeds: Iterable[int]) -> Iterator[int]:
    """The same seeds; garbage is collected between some of them alone."""
    with uncollected():
        for number, seed in enumerate(seeds, 1):
            yield seed
            if number % COLLECT_EVERY == 0:
                gc.collect()


def hunt(name: str, seeds: Iterable[int]) -> int | None:
    """The first of these seeds that finds a deliberate bug. RuntimeError if its patch no longer fits the code."""
    for seed in tidily(seeds):
        with BUGS[name]():
            try:
                run(seed)
            except Violation as violation:
                if isinstance(violation.__cause__, (AttributeError, NameError, TypeError)):
                    raise RuntimeError(f"{name} is no bug any more: {violation}") from violation
                return seed
    return None


def run_seeds(seeds: Iterable[int], steps: int = STEPS) -> tuple[Result, list[str]]:
    """The sum of many histories, and the explanations of those that failed (three at most)."""
    total, failed = Result(), list[Violation]()
    for seed in tidily(seeds):
        try:
            total += run(seed, steps)
        except Violation as violation:
            failed.append(violation)
            if len(failed) == 3:
                break
    return total, [explain(violation) for violation in failed]


def seeds_for(name: str, seeds: int) -> list[int]:
    """The seed that found a deliberate bug last time, then others of its stage, or those from 0 on."""
    known = FIRST.get(name, 0)
    near = seeds_of(known // OF_A_STAGE - 1, seeds) if known >= OF_A_STAGE else range(seeds)
    return [*([known] if name in FIRST else ()), *near]


def hunt_all(seeds: int, workers: int = WORKERS) -> Iterator[tuple[str, int | None]]:
    """Each deliberate bug, and a seed that finds it: the one that did last time, or the first; as they are found."""
    with ProcessPoolExecutor(min(workers, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        under_way = {pool.submit(hunt, name, seeds_for(name, seeds)): name for name in BUGS}
        for done in as_completed(under_way):
            yield under_way[done], done.result()


def run_parallel(seeds: Sequence[int], steps: int = STEPS, workers: int = WORKERS) -> tuple[Result, list[str]]:
    """`run_seeds` by several processes."""
    total, failures = Result(), list[str]()
    size = max(1, min(50, -(-len(seeds) // workers)))
    chunks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    with ProcessPoolExecutor(min(workers, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for part, found in pool.map(run_seeds, chunks, [steps] * len(chunks)):
            total += part
            failures += found
    return total, failures
