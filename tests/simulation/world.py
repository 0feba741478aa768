"""A world: one bucket, one or more tables, a cast of processes, and faults, all from one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from mergelake.core.model.schema import TableSchema
from mergelake.log.model import fold
from mergelake.log.model.operations import AddParts, DropTable
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retention import refers
from mergelake.log.model.state import State
from mergelake.log.storage.encoding import decode_entry
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from tests.simulation.actors import Actor, Reader
from tests.simulation.admins import Admin
from tests.simulation.bucket import Bucket, ProcessStore
from tests.simulation.inserters import Caller, Inserter, Streamer
from tests.simulation.keepers import Collector, Inspector, Publisher
from tests.simulation.kernel import SKEW_MAX_S, Kernel, Machine, Process
from tests.simulation.model import RowKind
from tests.simulation.network import Network
from tests.simulation.nodes import Merger
from tests.simulation.planned import PlannedNode
from tests.simulation.rest import left_over
from tests.simulation.stages import NAP_MAX, Stage, has_collapsing_engine, stages_of
from tests.simulation.table import Table
from tests.simulation.tiny import DIRECTORY, SCHEMA, Bodies, Rows, TinyRows, collapsed, mutated
from tests.simulation.transactions import Transactions
from tests.simulation.weather import Weather

Theme: TypeAlias = tuple[type[Actor], ...]
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
SWEEPING: Theme = (Inserter, Streamer, Collector, Reader)
POWER_CUTS: Theme = (Inserter, PlannedNode, Admin)
SHOWING: Theme = (Inserter, Merger, Admin, Collector)
THEMES: tuple[Theme, ...] = (
    SWEEPING,
    SWEEPING,
    POWER_CUTS,
    POWER_CUTS,
    SHOWING,
    (Inserter, Admin, Merger, Reader),
    (Inserter, Admin, Collector, Reader),
    (Inserter, PlannedNode, Collector),
)
GUESTS: tuple[tuple[float, tuple[tuple[str, type[Actor], str, str], ...]], ...] = (
    (0.3, (("publisher", Publisher, "", ""),)),
    (0.3, (("fsck", Inspector, "", ""),)),
    (0.25, tuple((f"caller {n}", Caller, "server", "server") for n in (1, 2, 3))),
    (0.15, (("insert b", Inserter, "insert", ""),)),
    (0.15, (("stream b", Streamer, "stream", ""),)),
    (0.15, (("node 1 b", Merger, "node 1", ""),)),
    (0.15, (("real node 1 b", PlannedNode, "real node 1", ""),)),
)
"""How often they come; machine, role, the name that it shares with others, the process of which it is a thread."""
HASHES_MAX = 4
SETTLE_STEPS = 16_000
ANSWER_STEPS = 480
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

    table_class = Table
    node_class: type[Actor] = PlannedNode
    kind: RowKind = TinyRows()
    """Of the rows of all tables."""

    def __init__(self, seed: int, lines: list[str] | None = None) -> None:
        kernel = Kernel(seed)
        kernel.trace.lines = lines
        draw = kernel.random
        fault_rate = draw.choice([0.0, 0.01, 0.05, 0.15])
        self.furnish(kernel, Bucket(kernel, fault_rate, draw.choice([0.0, 0.002, 0.01])))
        self.pace_s = draw.choice([1.0, 10.0, 100.0])
        self.leaps = draw.choice([0.0, 0.05, 0.15, 0.3])
        """How often a good while goes by at once."""
        self.sleepy = draw.choice([0.0, 0.01, 0.03])
        """How often a machine stops for long, wherever its process is."""
        self.network.patience_s *= self.pace_s
        stages = stages_of(seed)
        self.stage = draw.choice(stages) if stages else None
        if self.stage is not None:
            self._set(self.stage)
            return
        busy, theme = draw.choice([0.4, 0.7, 1.0]), draw.choice([*THEMES, *[()] * len(THEMES)])
        """How many of the cast come, and what it is all about: collection and who sleeps through it, for instance."""
        # Where history is long, it has a price limit in every third world.
        self._create({"retention_max_bytes": "1000", "retention_max_ratio": "0"} if seed % 3 == 1 else {})
        cast = [role for role in CAST if role[1] is Inserter or draw.random() < busy]
        if theme:
            cast = [role for role in CAST if role[1] in theme or draw.random() < 0.2]
        if theme is SWEEPING:
            self.leaps, self.sleepy, kernel.preempt = 0.3, 0.05, 0.4
        if theme is POWER_CUTS:
            self.bucket.crash_rate = 0.02
        for name, role in cast if len(cast) > 3 else CAST:
            self.start(Machine(name, draw.uniform(-SKEW_MAX_S, SKEW_MAX_S)), role)
        for often, guests in GUESTS:
            skew_s = draw.uniform(-SKEW_MAX_S, SKEW_MAX_S)
            if draw.random() < often or (theme is SHOWING and guests[0][1] is Publisher):
                for name, role, alias, group in guests:
                    self.start(Machine(name, skew_s, alias, group), role)
        self.weather = Weather(self, draw)
        if theme is POWER_CUTS:
            self.weather.tears = 1.0

    def _set(self, stage: Stage) -> None:
        """The cast of a stage, and its weather."""
        self._create(stage.settings)
        if stage.leaps is not None:
            self.leaps, self.sleepy = stage.leaps, 0.0
        if stage.pace_s is not None:
            self.pace_s = stage.pace_s
        if stage.preempt is not None:
            self.kernel.preempt = stage.preempt
        if stage.crash_rate is not None:
            self.bucket.crash_rate = stage.crash_rate
        if stage.fault_rate is not None:
            self.bucket.fault_rate = stage.fault_rate
        skews = {}
        for name, role, alias, group in stage.cast:
            skew_s = skews.setdefault(group or name, self.kernel.random.uniform(-SKEW_MAX_S, SKEW_MAX_S))
            stops = stage.stops if name in stage.sleepers else {}
            self.start(Machine(name, skew_s, alias, group, stops=stops), role)
        self.weather = Weather(self, self.kernel.random)
        if stage.wrong_digits:
            self.weather.tears, self.weather.digits = 1.0, True
        if stage.outages is not None:
            self.weather.outages = stage.outages

    def furnish(self, kernel: Kernel, bucket: Bucket) -> None:
        """An empty world, at peace."""
        self.kernel, self.bucket = kernel, bucket
        self.pace_s, self.rows, self.updates = 1.0, 0, 0
        self.network = Network(kernel, bucket)
        self.bodies: Bodies = {}
        self.rotten: dict[str, bytes] = {}
        """Objects of parts with a wrong bit -> what they held."""
        self.stream: dict[str, tuple[dict[str, int], dict[int, dict[str, Rows]]]] = {}
        """Stream -> the next batch of each who writes it, and the batches."""
        self.shared: dict[str, dict] = {}
        """What the threads of a process share."""
        self.turns: list[Turn] = []
        self.stage: Stage | None = None
        self.settling = False
        self.did: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.tables: dict[str, Table] = {}
        self.transactions = Transactions(bucket, self.tables)
        self.home = DIRECTORY
        self.schema = SCHEMA
        self.buried: set[str] = set()
        self.actors: dict[Process, Actor] = {}
        bucket.watchers.append(self.on_change)
        bucket.watchers.append(self.transactions.on_change)
        self.know(DIRECTORY)

    def on_change(self, key: str, data: bytes | None) -> None:
        """A table begins: what it refers to elsewhere is held for it, or was until a collector buried it."""
        directory, _, rest = key.partition("/")
        if data is None or rest != f"_log/{1:020d}.json" or directory in self.tables:
            return
        entry = decode_entry(data)
        if isinstance(entry.ops[-1], DropTable):
            self.buried.add(directory)
        if directory in self.buried:
            return
        parts = [part for op in entry.ops if isinstance(op, AddParts) for part in op.parts]
        for name in {name for part in parts for name in refers(part)}:
            _, owner, inner = name.split("/", 2)
            held = self.tables[owner].state.holds.get(directory, ()) if owner in self.tables else (inner,)
            assert inner in held, f"{directory} begins, and {owner} does not hold {inner} for it"

    def know(self, directory: str) -> None:
        """A table is one from now on: whatever its log holds already is judged, and all that follows."""
        windows = {"tokens_max": fold.TOKENS_MAX, "hashes_max": HASHES_MAX}
        table = self.table_class(self.bucket, directory, self.bodies, self.tables, self.kind, **windows)
        table.catch_up()
        self.tables[directory] = table

    def living(self) -> list[str]:
        """The tables that were not dropped."""
        return [name for name, table in self.tables.items() if not table.state.dropped]

    def choose(self, chance: random.Random, roams: float, dropped: bool = False) -> str:
        """A table to open: the first one, or with this probability any that is there (or was)."""
        if chance.random() >= roams:
            return self.home
        return chance.choice([*self.tables] if dropped else self.living() or [self.home])

    def _create(self, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """The table, made by a process that meets no faults: it is not scheduled."""
        process = Process(self.kernel, "creator", lambda _: None, Machine("creator", 0.0))
        self.schema = self.schema_of(self.kernel.seed).with_settings(
            {
                "checkpoint_interval": str(self.kernel.random.choice([3, 8, 20])),
                "history_retention_seconds": str(self.kernel.random.choice([0, 600, 7200])),
                "gc_grace_seconds": str(GRACE_S),
                "merge_upload_policy": self.kernel.random.choice(["direct", "auto", "volatile"]),
                "write_amplification_target": ("2.1", "0", "3", "1.2")[self.kernel.seed % 4],
                "merge_selector_base": "1.2",
                "volatile_upload_age_seconds": "60",
                "parts_to_upload_volatile": "6",
                "max_bytes_to_merge_volatile": "400",
                "non_replicated_deduplication_window": str(HASHES_MAX),
                **settings,
            }
        )
        store = ProcessStore(self.bucket, process)
        TableHandle.create(store, DIRECTORY, self.schema, clock=process.clock, ids=process.ids, author="creator")

    def schema_of(self, seed: int) -> TableSchema:
        """The table's schema, without its settings."""
        return replace(SCHEMA, engine="ReplacingMergeTree") if has_collapsing_engine(seed) else SCHEMA

    def start(self, machine: Machine, role: type[Actor], only: str = "") -> None:
        """A process; `only`: it works on one table."""
        machine.lives += 1
        holder: list[Actor] = []
        process = Process(self.kernel, f"{machine.name}.{machine.lives}", lambda p: holder[0].run(p), machine)
        holder.append(role(self, process))
        holder[0].only = only
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
            if self.stage and turn.machine in self.stage.sleepers and draw.random() < self.stage.naps:
                turn = replace(turn, stopped_s=draw.random() * NAP_MAX * GRACE_S)
        if not self.settling:
            self.turns.append(turn)
            self.weather.step(turn.pass_s)
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
        """Who died comes back, with what its disk still holds; all threads of a process die together."""
        machine = process.machine
        for other in [each for each in self.kernel.processes if machine.group and each.machine.group == machine.group]:
            if other is not process:
                other.die()
                self.replace(other)
        self.shared.pop(machine.group, None)
        if process.chance.random() < 0.3:
            machine.disk.clear()
            self.kernel.trace.add(f"{machine.name} lost its disk")
        self.weather.tear(machine, process.chance)
        self.replace(process)

    def replace(self, process: Process) -> None:
        actor = self.actors.pop(process)
        self.kernel.processes.remove(process)
        self.start(process.machine, type(actor), actor.only)

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

    def new_update(self) -> str:
        """A mutation of all rows."""
        self.updates += 1
        return f"UPDATE {self.updates}"

    def seen(self, state: State, parts: Sequence[ActivePart], held: Sequence[Rows]) -> Rows:
        """What a reader makes of the parts of a partition: with the mutations that these lack, and FINAL."""
        snapshot = Snapshot.of(state)
        out: list = []
        for part, rows in zip(parts, held, strict=True):
            out += mutated(rows, snapshot.lacking(part.info))
        return collapsed(tuple(out), snapshot.schema.engine)

    def finish(self) -> None:
        """What must be true at any end."""
        self.answer()
        for table in self.tables.values():
            table.finish()

    def answer(self) -> None:
        """14: a thread that waits for others of its process is answered, once requests are."""
        threads = [process for process in self.kernel.processes if process.machine.group]
        busy = {process: process.turns for process in threads if process.waits}
        if not busy:
            return
        self.settling = True
        self.calm()
        for at in range(ANSWER_STEPS):
            self.step(Turn(1.0, threads[at % len(threads)].machine.name, 0.0))
            # Each goes on with something new, so it may wait at any time: but not for the same all the while.
            # Who died meanwhile waits for nothing.
            left = [process for process in busy if process.waits and not process.dead]
            busy = {process: busy[process] for process in left if process.turns == busy[process]}
            if not busy:
                return
        raise AssertionError(f"{', '.join(process.name for process in busy)} waits for ever")

    def calm(self) -> None:
        """No faults any more."""
        self.weather.restore()
        self.bucket.fault_rate = self.bucket.crash_rate = self.kernel.preempt = self.network.trouble = 0.0
        for process in self.kernel.processes:
            process.machine.stops = {}
        self.bucket.page = 1000

    def settle(self) -> None:
        """14: without faults, nodes and collectors bring everything to rest, and nothing is kept that need not be."""
        self.settling = True
        self.calm()
        shown = any(isinstance(actor, Publisher) for actor in self.actors.values())
        for process in [*self.kernel.processes]:
            process.wake_s = 0.0
            if not isinstance(self.actors[process], (PlannedNode, Collector)):
                process.die()
                del self.actors[process]
                self.kernel.processes.remove(process)
        self.start(Machine("last gc", 0.0), Collector)
        for name in self.living():
            self.start(Machine(f"last node {name}", 0.0), self.node_class, name)
            if shown:
                self.start(Machine(f"last publisher {name}", 0.0), Publisher, name)
        left: list[list[str]] = []
        for at in range(SETTLE_STEPS):
            if at % 10 == 0:
                nodes = {p.machine.alias or p.machine.name for p in self.kernel.processes}
                left = [left_over(table, nodes) for table in self.tables.values()]
                if not any(left):
                    break
            names = [process.machine.name for process in self.kernel.processes]
            self.step(Turn(GRACE_S / 10, self.kernel.random.choice(names), 0.0))
        else:
            raise AssertionError(f"there is no rest: {left}")
        if shown:
            self.check_shown()

    def check_shown(self) -> None:
        """What ClickHouse reads once a publisher has had its time."""
        for process in [p for p in self.kernel.processes if isinstance(self.actors[p], Publisher)]:
            for _ in range(12):
                self.step(Turn(1.0, process.machine.name, 0.0))
        for name in self.living():
            self.tables[name].shown.check_rows()

    def close(self) -> None:
        self.kernel.close()
