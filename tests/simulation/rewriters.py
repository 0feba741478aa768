"""Who writes mutations down: parts are rewritten, marked or left by reference, wherever and whenever it is legal."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from mergelake.core.base.errors import ConflictError, NotFoundError, error
from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.mutate.commit import commit_results, note_failure
from mergelake.jobs.mutate.plan import due_parts, mutation_task
from mergelake.log.model.operations import FinishMutations, MarkMutated, Publish
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import Element, lacking, pending
from mergelake.table.partitions.mutations import open_mutations
from mergelake.table.write.insert import COMMIT_REFUSED, discard_refused
from tests.simulation.actors import Actor
from tests.simulation.tiny import Rows, decode, mutated


def up_to(version: int, state: State) -> tuple[PendingMutation, ...]:
    """The mutations up to a version."""
    return tuple(m for m in state.mutations if m.version <= version)


def in_order(mutations: Iterable[PendingMutation]) -> tuple[PendingMutation, ...]:
    return tuple(sorted(mutations, key=lambda m: m.version))


class Rewriter(Actor):
    """Writes mutations down, and does nothing else."""

    attentive = 0.8
    roams = 0.4

    def actions(self):
        return {self.write_down: 4, self.write_several: 1.2, self.wild_write: 0.5, self.end: 0.3, self.fail: 0.2}

    @property
    def disk(self) -> dict[str, bytes]:
        return self.process.machine.disk

    @property
    def engine(self) -> str:
        return self.state.schemas[self.state.schema_version].engine

    def bytes_of(self, element: Element) -> Rows:
        """The rows of an element: of a volatile one from the disk, of another from the store."""
        if not isinstance(element, ActivePart):
            return decode(self.disk[element.id])
        try:
            return self.read([element.manifest])
        except NotFoundError as gone:
            raise self.gone(gone) from gone

    def gone(self, why: NotFoundError) -> ConflictError:
        """An object is missing: only if what this process knows is too old."""
        if self.state.version in self.table.kept():
            raise why
        self.handle.refresh()
        return ConflictError("the sources were collected")

    def some_of(self, mutations: Collection[PendingMutation]) -> tuple[PendingMutation, ...]:
        """All of these, or the first ones."""
        due = in_order(mutations)
        return due if self.random.random() < 0.7 else due[: self.random.randint(0, len(due))]

    def rewritten(self, part: ActivePart, due: Collection[PendingMutation]) -> PartManifest | None:
        """The part after these mutations; None, or now and then the old object under a new id, if no row changes."""
        before, base_version = self.bytes_of(part), self.state.version
        rows = mutated(before, due)
        if rows != before:
            return self.write(part.info.partition_id, rows, base_version)
        if self.random.random() < 0.7:
            return None
        return dataclasses.replace(part.manifest, id=self.process.ids.new_id(), base_version=base_version)

    def write_down(self) -> None:
        """One part that is under no Live part."""
        self._write_down(1)

    def write_several(self) -> None:
        """Several in one entry."""
        self._write_down(self.random.randint(2, 4))

    def _write_down(self, count: int) -> None:
        due = [*due_parts(self.state)]
        results = []
        state, base_version = self.state, self.state.version
        for part in self.random.sample(due, min(count, len(due))):
            lacks = lacking(state.mutations, part.info)
            last = lacks[self.random.randint(0, len(lacks) - 1)].version
            task = mutation_task(self.directory, state.schema, part, state, last)
            task = dataclasses.replace(task, base_version=base_version)
            results.append((task, self.rewritten(part, task.sources[0].lacks)))
        if results:
            commit_results(self.handle, results)

    def wild_write(self) -> None:
        """What nobody should ask for: any part, with any of the mutations. The log must refuse what is not legal."""
        parts = [*self.state.parts()]
        if not parts or not self.state.mutations:
            return
        part = self.random.choice(parts)
        due = self.some_of(lacking(self.state.mutations, part.info))
        if not due or self.random.random() < 0.5:
            due = in_order(m for m in self.state.mutations if self.random.random() < 0.6)
        new = self.rewritten(part, due)
        versions = tuple(m.version for m in due)
        name, old = part.info.partition_id, part.manifest.id
        op = Publish(new, (old,), "mutation", mutations=versions) if new else MarkMutated(name, (old,), versions)
        try:
            self.commit(lambda _: [op])
        except COMMIT_REFUSED as refusal:
            if new:
                discard_refused(self.handle, [new])
            if getattr(refusal, "name", "") != "LOGICAL_ERROR":
                raise

    def end(self) -> None:
        """Say of a mutation that it is finished, whether or not it is."""
        if self.state.mutations:
            chosen = self.random.choice(self.state.mutations)
            self.commit(lambda _: [FinishMutations((chosen.id,))])

    def fail(self) -> None:
        """A part cannot be rewritten: it is noted, and changes nothing."""
        due = [part for part in due_parts(self.state) if pending(self.state.mutations, part.info)]
        if due and open_mutations(self.state):
            task = mutation_task(self.directory, self.state.schema, self.random.choice(due), self.state)
            note_failure(self.handle, task, error("CANNOT_PARSE_TEXT", f"no number {self.random.random()}", ""))
