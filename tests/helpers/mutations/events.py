"""What happens between the statements of a sequence and changes no answer: rewrites, merges, parts that go and come."""

from __future__ import annotations

import random
from collections.abc import Iterator

from mergelake.jobs.mutate.commit import run_tasks
from mergelake.jobs.mutate.plan import due_parts, mutation_task
from mergelake.log.model.volatile import pending
from tests.helpers.mutations.sides import Ours


def happen(ours: Ours, rng: random.Random, rewrites: float, *, keeps_all: bool) -> Iterator[str]:
    """Let something happen, perhaps, and tell what; `rewrites` is the chance that parts are rewritten.

    `keeps_all`: the engine drops no rows, so that merges do not matter, nor the order of parts.
    """
    if rng.random() < rewrites:
        rewrite(ours, rng)
        yield "rewrite"
    if keeps_all and rng.random() < 0.05:
        ours.table.optimize()
        yield "merge"
    snapshot = ours.handle.snapshot()
    whole = [part for part in snapshot.parts if not snapshot.lacking(part.info)]
    if keeps_all and rng.random() < 0.04 and whole:
        name = str(rng.choice(whole).info)
        ours.table.detach_part(name)
        ours.table.attach_part(name)
        yield f"detach and attach {name}"
    if snapshot.parts and rng.random() < 0.04:
        ours.table.delete("1")
        ours.table.kill_mutation(ours.handle.log.state.mutations[-1].id)
        yield "DELETE FROM t WHERE 1, killed"


def rewrite(ours: Ours, rng: random.Random) -> None:
    """Rewrite all parts that lack mutations, or some of them, with all that they lack or the first few."""
    table = ours.table
    if rng.random() < 0.5:
        table.apply_mutations()
        return
    state = ours.handle.refresh()
    for part in due_parts(state):
        if rng.random() < 0.6:
            until = rng.choice(pending(state.mutations, part.info))
            task = mutation_task(ours.handle.directory, state.schema, part, state, until)
            run_tasks(ours.handle, lambda tasks: table.env.run_mutations(ours.handle, tasks), [task])
