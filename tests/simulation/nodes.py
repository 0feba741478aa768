"""Nodes: they merge (directly or by volatile parts), upload, adopt and cancel, each with the mutations that are due.

Their choices are wilder than a real planner's: any legal merge, at any time, by anybody. The rule that they must keep
is the barrier: a Live volatile part whose bytes are not on the own disk is not merged with its neighbours. (Who writes
mutations down and does nothing else is in `rewriters`.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from mergelake.core.base.errors import ConflictError, InvalidInputError, UnavailableError
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.plan import plan_merge
from mergelake.log.model.operations import (
    AddVolatile,
    AdoptVolatile,
    CancelVolatile,
    MergeRecipe,
    Publish,
    ReleaseLease,
    RenewLease,
)
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation, VolatilePart
from mergelake.log.model.volatile import Element, element_id, lacking, leaves, nested, pending, sources, top_level
from mergelake.table.write.insert import COMMIT_REFUSED, discard_refused
from tests.simulation.rewriters import Rewriter, in_order, up_to
from tests.simulation.tiny import Rows, collapsed, decode, encode, mutated


class Merger(Rewriter):
    """A node with a disk."""

    def __init__(self, world, process) -> None:
        super().__init__(world, process)
        self.done: list[tuple[str, Publish]] = []
        """What was published, or may have been: by table."""

    @property
    def node(self) -> str:
        machine = self.process.machine
        return machine.alias or machine.name

    def actions(self):
        return {
            self.merge: 4,
            self.intend: 4,
            self.build: 6,
            self.upload: 4,
            self.wild_merge: 1,
            self.wild_intend: 1,
            self.adopt: 1,
            self.cancel: 1,
            self.write_down: 4,
            self.write_several: 1.2,
            self.wild_write: 0.5,
            self.end: 0.3,
            self.fail: 0.2,
            self.lease: 1,
            self.tidy: 0.5,
            self.publish_again: 1,
            self.reopen: 0.3,
        }

    def live(self) -> Iterator[VolatilePart]:
        for name in sorted(self.state.volatile):
            yield from self.state.volatile[name]

    def window(self, elements: list[Element]) -> list[Element]:
        if len(elements) < 2:
            return []
        first = self.random.randrange(len(elements) - 1)
        return elements[first : first + self.random.randint(2, 4)]

    def runs(self, *, volatile: bool) -> list[list[Element]]:
        """Neighbours that may be merged: a Live part that is not here is a barrier.

        For a volatile part all must lack the same mutations.
        """
        out: list[list[Element]] = []
        for name in sorted(self.state.partitions):
            before: object = None
            for element in top_level(self.state.partitions[name], self.state.volatile.get(name, ())):
                barrier = isinstance(element, VolatilePart) and not (volatile and element.id in self.disk)
                lacks = None if barrier else pending(self.state.mutations, element.info) if volatile else ()
                if lacks is not None and lacks == before:
                    out[-1].append(element)
                elif lacks is not None:
                    out.append([element])
                before = lacks
        return [run for run in out if len(run) > 1]

    def merge(self) -> None:
        """Straight to the store, by the engine's own commit."""
        runs = self.runs(volatile=False)
        if runs:
            chosen = self.window(self.random.choice(runs))
            due = self.some_of({m for element in chosen for m in lacking(self.state.mutations, element.info)})
            task = plan_merge(self.directory, self.state.schema, chosen, mutations=due)
            base_version = self.state.version
            rows = self.merged(chosen, due)
            new = self.write(chosen[0].info.partition_id, rows, base_version)
            op = Publish(new, task.source_ids, mutations=task.mutations)
            try:
                done = commit_merge(self.handle, task, new)
            except UnavailableError:
                self.done.append((self.directory, op))
                raise
            self.done.append((self.directory, op))
            assert any(isinstance(op, Publish) for op in self.table.entries[done.version].ops)

    def publish_again(self) -> None:
        """The same Publish once more, as after a lost answer: it lands once, and what landed stays."""
        mine = [each for each in self.done if each[0] == self.directory]
        if not mine:
            return
        chosen = self.random.choice(mine)
        try:
            self.commit(lambda _: [chosen[1]])
        except COMMIT_REFUSED:
            self.done.remove(chosen)
            discard_refused(self.handle, [chosen[1].part])
            raise

    def merged(self, elements: Sequence[Element], mutations: Sequence[PendingMutation]) -> Rows:
        """The rows of a merge: of each element with those of the mutations that it lacks."""
        rows: list = []
        for element in elements:
            rows += mutated(self.bytes_of(element), lacking(mutations, element.info))
        return collapsed(tuple(rows), self.engine)

    def intend(self) -> None:
        runs = self.runs(volatile=True)
        if runs:
            chosen = self.window(self.random.choice(runs))
            recipe = MergeRecipe(self.state.schema_version, self.process.clock.now_ms())
            ids = tuple(map(element_id, chosen))
            op = AddVolatile(self.process.ids.new_id(), chosen[0].info.partition_id, ids, recipe, self.node)
            self.commit(lambda _: [op])
            if self.random.random() < 0.5:
                self.build()

    def build(self) -> None:
        """Anybody may build anything; what a part needs is here, or its leaves are in the store.

        Mutations that were known when the part became Live belong to it.
        """
        wanted = [part for part in self.live() if part.id not in self.disk]
        if not wanted:
            return
        part = self.random.choice(wanted)
        elements = list(sources(self.state, part))
        inner_here = all(isinstance(element, ActivePart) or element.id in self.disk for element in elements)
        if not inner_here or self.random.random() < 0.3:
            elements = list(leaves(self.state.partitions[part.info.partition_id], part.info))
        rows = self.merged(elements, up_to(part.info.mutation, self.state))
        if self.random.random() < 0.5:
            self.process.sleep(self.random.random() * self.world.pace_s)
        self.disk[part.id] = encode(rows)
        truth = self.table.state
        if truth.live(part.id):
            held, due = leaves(truth.partitions[part.info.partition_id], part.info), up_to(part.info.mutation, truth)
            each = [mutated(self.table.model.known[leaf.manifest.id], lacking(due, leaf.info)) for leaf in held]
            expected = collapsed(tuple(row for some in each for row in some), self.engine)
            assert rows == expected, f"{part.name} was built with other rows"

    def upload(self) -> None:
        ready = [part for part in self.live() if part.id in self.disk]
        if not ready:
            return
        part = self.random.choice(ready)
        name = part.info.partition_id
        # Mutations that came later may be written down, too; but none that deletes rows of a merge that collapses.
        due = lacking(self.state.mutations, part.info)
        outer = any(part in nested(self.state.volatile[name], other) for other in self.state.volatile[name])
        kept = self.engine != "MergeTree" and any(m.drops_rows for m in due)
        due = () if outer or kept else due[: self.random.randint(0, len(due))]
        new = self.write(name, mutated(decode(self.disk[part.id]), due))

        # What is listed now may be out of date when it is committed; what was dropped during the upload lists nothing.
        known = self.state if self.random.random() < 0.3 else None

        def build(state):
            live = state.live(part.id)
            if live is None and known is None:
                raise ConflictError("it is not Live any more")
            state = known or state
            inside = leaves(state.partitions.get(name, ()), part.info)
            if not inside:
                raise ConflictError("it was dropped during the upload")
            applied = {v for leaf in inside for v in pending(up_to(part.info.mutation, state), leaf.info)}
            applied.update(m.version for m in due)
            ids = tuple(leaf.manifest.id for leaf in inside)
            return [Publish(new, ids, "volatile", part.id, tuple(sorted(applied)))]

        said: list[Publish] = []

        def remembered(state):
            said[:] = build(state)
            return said

        try:
            self.commit(remembered)
        except ConflictError:
            if self.random.random() < 0.7:
                self.store.delete([f"{self.directory}/{new.id}/files.packed"])
            raise
        except UnavailableError:
            self.done += [(self.directory, op) for op in said]
            raise
        self.done += [(self.directory, op) for op in said]

    def wild_merge(self) -> None:
        """A merge that nobody should ask for: any parts of a partition. The log must refuse what is not legal."""
        if not self.state.partitions:
            return
        parts = self.state.partitions[self.random.choice(sorted(self.state.partitions))]
        some = sorted(self.random.sample(range(len(parts)), min(len(parts), self.random.randint(1, 3))))
        chosen = [parts[at] for at in some] if self.random.random() < 0.5 else self.window([*parts]) or [parts[0]]
        lacks = in_order({m for part in chosen for m in lacking(self.state.mutations, part.info)})
        due = [m for m in lacks if self.random.random() < 0.5]
        new = self.write(chosen[0].info.partition_id, self.merged(chosen, due))
        op = Publish(new, tuple(part.manifest.id for part in chosen), mutations=tuple(m.version for m in due))
        self.commit(lambda _: [op])

    def wild_intend(self) -> None:
        """The same for an intention: any parts, Live ones included, wherever they stand."""
        if not self.state.partitions:
            return
        name = self.random.choice(sorted(self.state.partitions))
        every = [*self.state.partitions[name], *self.state.volatile.get(name, ())]
        chosen = sorted(self.random.sample(every, min(len(every), 2)), key=lambda element: element.info.min_block)
        recipe = MergeRecipe(self.state.schema_version, self.process.clock.now_ms())
        op = AddVolatile(self.process.ids.new_id(), name, tuple(map(element_id, chosen)), recipe, self.node)
        with contextlib.suppress(InvalidInputError):
            self.commit(lambda _: [op])

    def adopt(self) -> None:
        others = [part for part in self.live() if part.owner != self.node]
        if others:
            part = self.random.choice(others)
            self.commit(lambda _: [AdoptVolatile(part.id, self.node, part.owner)])

    def cancel(self) -> None:
        live = [*self.live()]
        if live:
            part = self.random.choice(live)
            self.commit(lambda _: [CancelVolatile((part.id,), "given up")])

    def lease(self) -> None:
        """Of what it reads; now and then that was collected meanwhile, and it is told so."""
        until_ms = self.process.clock.now_ms() + 30_000
        version = self.state.version
        if self.random.random() < 0.3:
            version = self.random.randint(1, version)
        way = self.random.random()
        self.commit(lambda _: [RenewLease(self.node, version, until_ms) if way < 0.8 else ReleaseLease(self.node)])

    def tidy(self) -> None:
        """What is on the disk and not Live any more goes."""
        live = {part.id for part in self.live()}
        for name in [*self.disk]:
            if name not in live:
                del self.disk[name]
