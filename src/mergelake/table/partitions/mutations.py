"""The end of mutations: which of them no part lacks after an entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mergelake.log.model.operations import FinishMutations, LogOp
from mergelake.log.model.state import PendingMutation, State
from mergelake.log.model.volatile import pending


def open_mutations(state: State) -> list[PendingMutation]:
    """The mutations that some part may lack."""
    return [m for m in state.mutations if not (m.killed or m.finished_ms)]


def finished_by(state: State, done: Mapping[str, int]) -> Sequence[LogOp]:
    """The operation that ends the mutations which no part lacks, once the parts in `done` have those up to a version.

    `done`: id of an active part -> version of a mutation.
    """
    open_ones = open_mutations(state)
    left: set[int] = set()
    for part in state.parts() if open_ones else ():
        last = done.get(part.manifest.id, 0)
        left.update(version for version in pending(open_ones, part.info) if version > last)
    ids = tuple(m.id for m in open_ones if m.version not in left)
    return (FinishMutations(ids),) if ids else ()
