"""The directories that a state reaches (`log.model.retention.reachable`), updated incrementally from round to round.

Between two states of one process the differing partitions (`Partitions.touched_since`) and runs of retired parts
(`Retired.since`) are known; detached parts and holds are few. The references to each directory are counted, so that it
stays while any part needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

from mergelake.core.model.manifest import PartManifest
from mergelake.log.model.parts import ActivePart, RetiredPart
from mergelake.log.model.retention import reachable, refers
from mergelake.log.model.state import State


class Reached:
    """The directories that the state of the last `look` reaches. Not thread-safe."""

    def __init__(self) -> None:
        self.visited = 0
        """Number of parts visited so far."""
        self.shrunk = 0
        """Number of `look` calls after which a directory was no longer reached."""
        self._state = State()
        self._counts: Counter[str] = Counter()

    @property
    def directories(self) -> Container[str]:
        """The directories, valid until the next `look`."""
        return self._counts

    def look(self, state: State) -> None:
        """Update to a state."""
        difference = self._difference(state)
        if difference is None:
            self.shrunk += 1
            self._counts, self._state = Counter(), State(partitions=state.partitions)
            self._counts.update(self._led(part.manifest for part in state.parts()))
            difference = self._difference(state)
            assert difference is not None, "these partitions are the same"
        gained, lost = difference
        self._counts.update(gained)
        self.shrunk += bool(lost)
        for directory in lost:
            self._counts[directory] -= 1
            if not self._counts[directory]:
                del self._counts[directory]
        self._state = state

    def newer(self, state: State) -> set[str]:
        """Directories that a newer state may reach and the state of the last `look` does not."""
        difference = self._difference(state)
        return reachable(state) if difference is None else set(difference[0])

    def _difference(self, state: State) -> tuple[list[str], list[str]] | None:
        """References to directories that were gained and lost since the last `look`; None if that is not known."""
        before = self._state
        changed = state.partitions.touched_since(before.partitions)
        if changed is None:
            return None
        parts = {part.manifest.id: part for name in changed for part in state.partitions.get(name, ())}
        parts_before = {part.manifest.id: part for name in changed for part in before.partitions.get(name, ())}
        added, removed = _apart(parts, parts_before), _apart(parts_before, parts)
        retired, forgotten = state.retired.since(before.retired)
        gained = [*self._led(part.manifest for part in added), *self._behind(retired)]
        lost = [*self._led(part.manifest for part in removed), *self._behind(forgotten)]
        if state.detached is not before.detached:
            gained += self._led(part.manifest for part in state.detached)
            lost += self._led(part.manifest for part in before.detached)
        if state.holds is not before.holds:
            gained += (directory for held in state.holds.values() for directory in held)
            lost += (directory for held in before.holds.values() for directory in held)
        return gained, lost

    def _led(self, manifests: Iterable[PartManifest]) -> Iterator[str]:
        for manifest in manifests:
            self.visited += 1
            yield manifest.id
            yield from refers(manifest)

    def _behind(self, parts: Iterable[RetiredPart]) -> Iterator[str]:
        for part in parts:
            self.visited += 1
            yield part.id
            yield from part.refers


def _apart(held: dict[str, ActivePart], other: dict[str, ActivePart]) -> list[ActivePart]:
    return [part for part_id, part in held.items() if part_id not in other]
