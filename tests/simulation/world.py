"""A world: one bucket, one or more tables, a cast of processes, and faults, all from one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mergelake.log import fold
from mergelake.log.state import ActivePart, State
from mergelake.log.volatile import pending
from mergelake.table.handle import TableHandle
from tests.simulation.actors import Actor, Admin, Collector, Inserter, Reader, Streamer
from tests.simulation.bucket import Bucket, ProcessStore
from tests.simulation.kernel import SKEW_MAX_S, Kernel, Machine, Process
from tests.simulation.nodes import Merger
from tests.simulation.planned import PlannedNode
from tests.simulation.table import Table
from tests.simulation.tiny import DIRECTORY, SCHEMA, Rows, changed

CAST: tuple[tuple[str, type[Actor]], ...] = (
    ("insert", Inserter),
    ("stream", Streamer),
    ("node 1", Merger),
    ("node 2", Merger),
    ("real node 1", PlannedNode),
    ("real node 2", PlannedNode),
    ("admin", Admin),
    ("gc 1", Collector),
    ("gc 2", Collector),
    ("reader", Reader),
)
HASHES_MAX = 4
SETTLE_STEPS = 4000
GRACE_S = 4200
"""More than the engine's least grace period, and the skew of two clocks."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One step: how much time goes by, who runs, and for how long its machine then stops."""

    pass_s: float
    machine: str
    stopped_s: float


class World:
    """Everything that a seed makes."""

    def __init__(self, seed: int, lines: list[str] | None = None) -> None:
        self.kernel = kernel = Kernel(seed)
        kernel.trace.lines = lines
        draw = kernel.random
        fault_rate = draw.choice([0.0, 0.01, 0.05, 0.15])
        self.bucket = Bucket(kernel, fault_rate, draw.choice([0.0, 0.002, 0.01]))
        self.pace_s = draw.choice([1.0, 10.0, 100.0])
        self.leaps = draw.choice([0.0, 0.05, 0.15, 0.3])
        """How often a good while goes by at once."""
        self.sleepy = draw.choice([0.0, 0.01, 0.03])
        """How often a machine stops for long, wherever its process is."""
        busy, sweeping = draw.choice([0.4, 0.7, 1.0]), draw.random() < 0.25
        """How many of the cast come, and whether it is all about collection and who sleeps through it."""
        self.bodies: dict[str, Rows] = {}
        self.stream: dict[str, list] = {}
        self.rows = 0
        self.turns: list[Turn] = []
        self.settling = False
        self.did: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.tables: dict[str, Table] = {}
        self.know(DIRECTORY)
        self.actors: dict[Process, Actor] = {}
        self._create()
        cast = [role for role in CAST if role[1] is Inserter or draw.random() < busy]
        if sweeping:
            cast = [role for role in CAST if role[1] in (Inserter, Streamer, Collector, Reader) or draw.random() < 0.3]
            self.leaps, self.sleepy, kernel.preempt = 0.3, 0.05, 0.4
        for name, role in cast if len(cast) > 3 else CAST:
            self.start(Machine(name, draw.uniform(-SKEW_MAX_S, SKEW_MAX_S)), role)

    def know(self, directory: str) -> None:
        """A table is one from now on: whatever its log holds already is judged, and all that follows."""
        windows = {"tokens_max": fold.TOKENS_MAX, "hashes_max": HASHES_MAX}
        self.tables[directory] = Table(self.bucket, directory, self.bodies, self.kernel.trace, **windows)
        self.tables[directory].catch_up()

    def _create(self) -> None:
        """The table, made by a process that meets no faults: it is not scheduled."""
        process = Process(self.kernel, "creator", lambda _: None, Machine("creator", 0.0))
        schema = SCHEMA.with_settings(
            {
                "checkpoint_interval": str(self.kernel.random.choice([3, 8, 20])),
                "history_retention_seconds": str(self.kernel.random.choice([0, 600, 7200])),
                "gc_grace_seconds": str(GRACE_S),
                "merge_upload_policy": self.kernel.random.choice(["direct", "volatile", "volatile"]),
                "merge_selector_base": "1.2",
                "volatile_upload_age_seconds": "60",
                "parts_to_upload_volatile": "6",
                "max_bytes_to_merge_volatile": "400",
                "non_replicated_deduplication_window": str(HASHES_MAX),
            }
        )
        store = ProcessStore(self.bucket, process)
        TableHandle.create(store, DIRECTORY, schema, clock=process.clock, ids=process.ids, author="creator")

    def start(self, machine: Machine, role: type[Actor]) -> None:
        machine.lives += 1
        holder: list[Actor] = []
        process = Process(self.kernel, f"{machine.name}.{machine.lives}", lambda p: holder[0].run(p), machine)
        holder.append(role(self, process))
        self.actors[process] = holder[0]
        self.kernel.processes.append(process)

    def step(self, turn: Turn | None = None) -> None:
        """One process runs until it stops; who died is replaced. Without a turn, one is drawn."""
        kernel = self.kernel
        kernel.steps += 1
        if turn is None:
            draw = kernel.random
            pass_s = draw.random() ** 4 * self.pace_s
            if draw.random() < self.leaps:
                pass_s += draw.random() * GRACE_S
            stopped_s = draw.random() * 4 * GRACE_S if draw.random() < self.sleepy else 0.0
            turn = Turn(pass_s, kernel.pick().machine.name, stopped_s)
        if not self.settling:
            self.turns.append(turn)
        process = next((process for process in kernel.processes if process.machine.name == turn.machine), None)
        if process is None:
            return
        kernel.advance(max(turn.pass_s, process.wake_s - kernel.now_s))
        process.resume()
        if self.bucket.violation is not None:
            raise self.bucket.violation
        if process.dead:
            self.bury(process)
        else:
            if turn.stopped_s:
                kernel.trace.add(f"{process.name} stands still for {turn.stopped_s:.0f} s")
                process.wake_s = max(process.wake_s, kernel.now_s + turn.stopped_s)
            self.actors[process].look()

    def bury(self, process: Process) -> None:
        actor = self.actors.pop(process)
        self.kernel.processes.remove(process)
        machine = process.machine
        if process.chance.random() < 0.3:
            machine.disk.clear()
            self.kernel.trace.add(f"{machine.name} lost its disk")
        self.start(machine, type(actor))

    def weighed(self, actions: dict[Callable[[], None], float]) -> dict[Callable[[], None], float]:
        """Each seed has its own taste: histories without some of the actions, and full of others, find more."""
        return {act: weight * self.liking(act.__name__, weight <= 1) for act, weight in actions.items()}

    def liking(self, name: str, rare: bool) -> float:
        if self.settling:
            return 1.0
        return random.Random(f"{self.kernel.seed} likes {name}").choice([0.0 if rare else 0.3, 0.5, 1.0, 1.0, 4.0])

    def new_rows(self, count: int) -> Rows:
        self.rows += count
        return tuple((self.rows - at, ()) for at in range(count))

    def seen(self, state: State, parts: Sequence[ActivePart], held: Sequence[Rows]) -> Rows:
        """What a reader makes of the rows of parts: with the mutations that these lack."""
        commands = {m.version: m.commands for m in state.mutations}
        out: list = []
        for part, rows in zip(parts, held, strict=True):
            for version in pending(state.mutations, part.info):
                rows = changed(rows, version, commands[version])
            out += rows
        return tuple(out)

    def settle(self) -> None:
        """14: without faults, nodes and collectors bring everything to rest: no Live part, no object of nobody's."""
        self.settling = True
        self.bucket.fault_rate = self.bucket.crash_rate = self.kernel.preempt = 0.0
        for process in [*self.kernel.processes]:
            process.wake_s = 0.0
            if not isinstance(self.actors[process], (PlannedNode, Collector)):
                process.die()
                del self.actors[process]
                self.kernel.processes.remove(process)
        for name, role in (("last node", PlannedNode), ("last gc", Collector)):
            self.start(Machine(name, 0.0), role)
        for _ in range(SETTLE_STEPS):
            left = [table.unrest() for table in self.tables.values()]
            if not any(left):
                return
            names = [process.machine.name for process in self.kernel.processes]
            self.step(Turn(GRACE_S / 40, self.kernel.random.choice(names), 0.0))
        raise AssertionError(f"there is no rest: {left}")

    def close(self) -> None:
        self.kernel.close()
