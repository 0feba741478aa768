"""How much of the shared objects of parts is still needed. Pure: computed from the state, without a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mergelake.core.model.manifest import PartManifest
from mergelake.log.model.state import State
from mergelake.parts.write.objects import shared_size


@dataclass(frozen=True, slots=True)
class SharedSpace:
    """The shared objects in which a part of the table still lies."""

    objects: int
    bytes: int
    """Bytes of these objects."""
    dead_bytes: int
    """Bytes in them of parts that were merged or dropped: freed when the last part of their object goes."""


def shared_space(state: State) -> SharedSpace:
    """The shared objects of a table in which active or detached parts lie."""
    live: dict[str, int] = {}
    for manifest in _held(state):
        for key in manifest.keys_outside():
            if shared_size(key) is not None:  # all files of such a part lie in it
                live[key] = live.get(key, 0) + manifest.bytes_on_disk
    size = sum(shared_size(key) or 0 for key in live)
    return SharedSpace(len(live), size, size - sum(live.values()))


def _held(state: State) -> Iterable[PartManifest]:
    yield from (part.manifest for part in state.parts())
    yield from (part.manifest for part in state.detached)
