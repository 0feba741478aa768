"""One thread, many processes: a scheduler that stops unchanged code at any request to the store.

Every simulated process runs in a greenlet of its own. Whatever it asks of the store or of its clock first goes
to the scheduler, which may let others run before the request is carried out, and again before the reply is
heard. So a writer can sleep for hours between two lines of the real commit code, and nothing has to be rewritten
as a state machine for it.

All chance comes from the seed, from a source of its own for each process and one for the scheduler: so a history stays
the same for all others when one step is left out of it, and a failing schedule can be made shorter. The trace (who ran,
what was asked, what befell it) has a digest, which is the same for the same seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet

from mergelake.core.base.ids import SeededIds
from mergelake.testing.faulty_store import SimulatedCrash

EPOCH_MS = 1_700_000_000_000
SKEW_MAX_S = 600.0
"""Clocks of machines differ by up to ten minutes, either way."""


@dataclass
class Trace:
    """What happened: the digest of all of it, and the text if somebody wants it."""

    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    lines: list[str] | None = None
    """Every line, where a replay asked for them."""

    def add(self, line: str) -> None:
        self.digest.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)


class SimClock:
    """A machine's clock: skewed for people, not skewed for durations, and sleeping lets others run."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return EPOCH_MS + round((self._process.kernel.now_s + self._process.skew_s) * 1000)

    def monotonic_s(self) -> float:
        return self._process.kernel.now_s

    def sleep_s(self, seconds: float) -> None:
        self._process.thread.sleep(seconds)


class Process:
    """A simulated process: one greenlet, one clock, one source of ids; its disk outlives it."""

    def __init__(self, kernel: Kernel, name: str, main: Callable[[Process], None], machine: Machine) -> None:
        self.kernel = kernel
        self.name = name
        self.author = f"{machine.alias or machine.name}.{machine.lives}"
        """What it calls itself in the log: several processes may have one name."""
        self.machine = machine
        self.skew_s = machine.skew_s
        self.random = random.Random(f"{kernel.seed} {name} acts")
        self.chance = random.Random(f"{kernel.seed} {name} suffers")
        self.ids = SeededIds(self.random.getrandbits(64))
        self.clock = SimClock(self)
        self.dead = False
        self.wake_s = 0.0
        self.turns = 0
        """Actions that it has ended."""
        self.waits = False
        """For another thread of its process."""
        self.doubtful = False
        """Whether damaged bytes were handed to it since its last action began: it may complain then."""
        self._main = main
        self._greenlet = greenlet(self._run, kernel.hub)
        self._greenlet.process = self

    def _run(self) -> None:
        try:
            self._main(self)
        except SimulatedCrash:
            pass
        finally:
            self.dead = True

    @property
    def running(self) -> bool:
        """Whether it is this process that runs now (and not the scheduler, which looks on)."""
        return getcurrent() is self._greenlet

    @property
    def thread(self) -> Process:
        """Itself, or the thread that runs now, if both are of one process: what is open is used by all of them."""
        running = getattr(getcurrent(), "process", None)
        same = running is not None and self.machine.group and running.machine.group == self.machine.group
        return running if same else self

    def doubt(self) -> None:
        """Damaged bytes were handed to it: to all threads of its process."""
        self.doubtful = True
        for other in self.kernel.processes:
            if self.machine.group and other.machine.group == self.machine.group:
                other.doubtful = True

    def resume(self) -> None:
        """Let it run until it stops again; from the scheduler only."""
        self._greenlet.switch()

    def suspend(self) -> None:
        """Let others run."""
        if self.dead:
            raise SimulatedCrash(f"{self.name} is dead")
        self.kernel.hub.switch()
        if self.dead:
            raise SimulatedCrash(f"{self.name} is dead")

    def sleep(self, seconds: float) -> None:
        self.wake_s = self.kernel.now_s + seconds
        self.suspend()

    def die(self) -> None:
        """The end, at this very instant: nothing that it still does has an effect."""
        self.dead = True
        if self.running:
            raise SimulatedCrash(f"{self.name} dies")
        if self._greenlet:
            self._greenlet.switch()


@dataclass
class Machine:
    """What a process leaves behind when it dies: a disk and a clock."""

    name: str
    skew_s: float
    alias: str = ""
    """What it is called in the log, if not by its name."""
    group: str = ""
    """Those of one group are threads of one process: they share what is open, and die together."""
    _: KW_ONLY
    disk: dict[str, Any] = field(default_factory=dict)
    stops: Mapping[str, float] = field(default_factory=dict)
    """Where it stops more (or less) often than others: the beginning of what `Kernel.point` is told -> how often."""
    torn: int = 0
    """How many files of the disk were damaged: what is read from there may be wrong."""
    lives: int = 0


class Kernel:
    """Time, chance and the choice of who runs next."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.hub = getcurrent()
        self.now_s = 0.0
        self.steps = 0
        self.trace = Trace()
        self.processes: list[Process] = []
        self.preempt = self.random.choice([0.02, 0.1, 0.2, 0.4])
        """How often a request lets others run first."""
        self._late: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0

    def point(self, process: Process, what: str) -> None:
        """A place where `process` may be stopped."""
        if process.dead:
            raise SimulatedCrash(f"{process.name} is dead")
        often = self.preempt
        for place, own in process.machine.stops.items():
            if what.startswith(place):
                often = own
        if process.running and process.chance.random() < often:
            self.trace.add(f"{process.name} waits before {what}")
            process.suspend()

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """A request that its sender gave up, and that arrives all the same."""
        self._numbers += 1
        self._late.append((self.now_s + delay_s, self._numbers, work))
        self._late.sort(key=lambda item: item[:2])

    def advance(self, seconds: float) -> None:
        """Move time, and let late requests arrive."""
        self.now_s += seconds
        while self._late and self._late[0][0] <= self.now_s:
            self._late.pop(0)[2]()

    def pick(self) -> Process:
        """Who runs next: one of those that are awake, or the first that wakes."""
        awake = [process for process in self.processes if process.wake_s <= self.now_s]
        return self.random.choice(awake) if awake else min(self.processes, key=lambda process: process.wake_s)

    def close(self) -> None:
        """End every process, so that no greenlet is left hanging."""
        for process in self.processes:
            process.die()
