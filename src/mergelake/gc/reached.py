"""The directories that a state reaches (`log.retention.reachable`), kept between rounds: a look costs what changed.

Between two states of one process it is known which partitions differ (`Partitions.touched_since`), and which runs of
retired parts (`Retired.since`); detached parts and holds are few. Each directory is counted as often as something leads
to it, so that what one part no longer needs stays while another does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

from mergelake.core.manifest import PartManifest
from mergelake.log.retention import reachable, refers
from mergelake.log.state import ActivePart, RetiredPart, State


class Reached:
    """The directories that the state of the last look reaches. Not for threads."""

    def __init__(self) -> None:
        self.looked = 0
        """How many parts were looked at so far."""
        self.shrunk = 0
        """How many looks found something that is no longer reached."""
        self._state = State()
        self._counts: Counter[str] = Counter()

    @property
    def directories(self) -> Container[str]:
        """The directories, until the next look."""
        return self._counts

    def look(self, state: State) -> None:
        """Make it that of this state."""
        found = self._difference(state)
        if found is None:
            self.shrunk += 1
            self._counts, self._state = Counter(), State(partitions=state.partitions)
            self._counts.update(self._led(part.manifest for part in state.parts()))
            found = self._difference(state)
            assert found is not None, "these partitions are the same"
        gained, lost = found
        self._counts.update(gained)
        self.shrunk += bool(lost)
        for directory in lost:
            self._counts[directory] -= 1
            if not self._counts[directory]:
                del self._counts[directory]
        self._state = state

    def newer(self, state: State) -> set[str]:
        """What a newer state may reach and that of the last look does not."""
        found = self._difference(state)
        return reachable(state) if found is None else set(found[0])

    def _difference(self, state: State) -> tuple[list[str], list[str]] | None:
        """What leads to directories now and did not before, and the other way round; None if that is not known."""
        before = self._state
        changed = state.partitions.touched_since(before.partitions)
        if changed is None:
            return None
        here = {part.manifest.id: part for name in changed for part in state.partitions.get(name, ())}
        there = {part.manifest.id: part for name in changed for part in before.partitions.get(name, ())}
        came, went = _apart(here, there), _apart(there, here)
        retired, forgotten = state.retired.since(before.retired)
        gained = [*self._led(part.manifest for part in came), *self._behind(retired)]
        lost = [*self._led(part.manifest for part in went), *self._behind(forgotten)]
        if state.detached is not before.detached:
            gained += self._led(part.manifest for part in state.detached)
            lost += self._led(part.manifest for part in before.detached)
        if state.holds is not before.holds:
            gained += (directory for held in state.holds.values() for directory in held)
            lost += (directory for held in before.holds.values() for directory in held)
        return gained, lost

    def _led(self, manifests: Iterable[PartManifest]) -> Iterator[str]:
        for manifest in manifests:
            self.looked += 1
            yield manifest.id
            yield from refers(manifest)

    def _behind(self, parts: Iterable[RetiredPart]) -> Iterator[str]:
        for part in parts:
            self.looked += 1
            yield part.id
            yield from part.refers


def _apart(held: dict[str, ActivePart], other: dict[str, ActivePart]) -> list[ActivePart]:
    return [part for part_id, part in held.items() if part_id not in other]
