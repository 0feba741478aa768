"""Which parts a read takes: stored ones, or Live volatile parts whose bytes some node has, in their place. Pure.

A volatile part V is Live in a state if the active parts within its blocks, its *leaves*, are exactly the rows that it
merges (`log.model.state`, invariant 6). So V may stand for its leaves in every read of **that** state, and in no other:
what matters is the state that is read, not what the node or the reader has learned since. V has the data version of its
own name: the mutations that it lacks are applied on reading, as for any part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation, State, VolatilePart
from mergelake.log.model.volatile import leaves, outermost


@dataclass(frozen=True, slots=True)
class PeerPlace:
    """A process that serves the bytes."""

    address: str
    token: str


@dataclass(frozen=True, slots=True)
class DiskPlace:
    """The disk of a node, as a store of this machine or process."""

    url: str


Place: TypeAlias = PeerPlace | DiskPlace


@dataclass(frozen=True, slots=True)
class Ready:
    """A node has the bytes of a volatile part."""

    manifest: PartManifest
    place: Place


Answers: TypeAlias = Mapping[str, "Ready | str"]
"""By id of a volatile part: its bytes, or why they cannot be read."""


@dataclass(frozen=True, slots=True)
class MergedPart(ActivePart):
    """A volatile part that a read takes as if it were active."""

    id: str
    """Of the volatile part; `manifest.id` is that of its bytes."""
    node: str
    place: Place
    sources: tuple[ActivePart, ...]
    """The active parts that it stands for."""
    mutations: tuple[PendingMutation, ...]
    """Mutations that these may lack."""


@dataclass(frozen=True, slots=True)
class VolatileRead:
    """What a read does about one volatile part, for EXPLAIN."""

    name: str
    node: str
    sources: int
    """Number of the stored parts that it stands for; 0: not counted."""
    why_not: str = ""
    """Why these are read; empty if it is."""

    def __str__(self) -> str:
        if self.why_not:
            count = f"{self.sources} stored parts" if self.sources else "Stored parts"
            return f"{count}, not volatile part {self.name} of node {self.node}: {self.why_not}"
        return f"Volatile part {self.name} from node {self.node}, in place of {self.sources} stored parts"


def choose(state: State, answers: Answers) -> tuple[tuple[MergedPart, ...], tuple[VolatileRead, ...]]:
    """The outermost volatile parts of `state` that are ready and fit it, and what is to be said about the others.

    Of nested ones the outermost ready one is taken. Together with the active parts under none of them they tile every
    partition once.
    """
    chosen: list[MergedPart] = []
    reads: list[VolatileRead] = []
    for partition_id, live in state.volatile.items():
        parts = state.partitions.get(partition_id, ())
        ready: list[MergedPart] = []
        for part in live:  # an outer one comes before those within
            if ready and part.info.min_block <= ready[-1].info.max_block:
                continue
            answer = answers.get(part.id, "nobody was asked")
            found = _merged(state, part, leaves(parts, part.info), answer)
            if isinstance(found, MergedPart):
                ready.append(found)
        chosen += ready
        reads += _reads(live, parts, ready, answers)
    return tuple(chosen), tuple(reads)


def _reads(
    live: Sequence[VolatilePart], parts: Sequence[ActivePart], ready: Sequence[MergedPart], answers: Answers
) -> Iterable[VolatileRead]:
    for taken in ready:
        yield VolatileRead(taken.name, taken.node, len(taken.sources))
    for part in outermost(live):
        if not any(_meet(part.info, other.info) for other in ready):
            answer = answers.get(part.id, "nobody was asked")
            why = answer if isinstance(answer, str) else "what its node has does not fit the version that is read"
            yield VolatileRead(part.name, part.owner, len(leaves(parts, part.info)), why)


def _meet(one: PartInfo, other: PartInfo) -> bool:
    return one.min_block <= other.max_block and other.min_block <= one.max_block


def _merged(
    state: State, part: VolatilePart, sources: tuple[ActivePart, ...], answer: Ready | str
) -> MergedPart | None:
    if isinstance(answer, str) or not _fits(state, part, sources, answer.manifest):
        return None
    partition_id = part.info.partition_id
    mutations = tuple(
        m
        for m in state.mutations
        if not (m.killed or m.finished_ms) and (m.partition_ids is None or partition_id in m.partition_ids)
    )
    return MergedPart(
        part.info, answer.manifest, part.added, part.added_ms, part.id, part.owner, answer.place, sources, mutations
    )


def _fits(state: State, part: VolatilePart, sources: Sequence[ActivePart], manifest: PartManifest) -> bool:
    """Whether a manifest can be that of the volatile part in this state: what another process says is not trusted."""
    if not sources or manifest.partition_id != part.info.partition_id or manifest.schema_version not in state.schemas:
        return False
    if (sources[0].info.min_block, sources[-1].info.max_block) != (part.info.min_block, part.info.max_block):
        return False
    if any(not key.startswith(f"{manifest.id}/") for key in manifest.object_keys()):
        return False
    rows = sum(source.manifest.rows for source in sources)
    keeps_rows = (
        state.schemas[manifest.schema_version].engine == "MergeTree"
        and not any(source.manifest.masked for source in sources)
        and not any(m.drops_rows and m.version <= part.info.mutation for m in state.mutations)
    )
    return manifest.rows == rows if keeps_rows else manifest.rows <= rows


def unread(state: State, why: str) -> tuple[VolatileRead, ...]:
    """What is to be said if none is taken. Looks at no active part."""

    def reads() -> tuple[VolatileRead, ...]:
        return tuple(VolatileRead(p.name, p.owner, 0, why) for live in state.volatile.values() for p in outermost(live))

    return state.partitions.remembered(("unread", state.version, why), reads)
