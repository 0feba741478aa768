"""Notes of collectors between finding unused directories and deleting them: objects below `_gc/`.

::

    <table>/_gc/<fence>-<time, ms>-<kind>-<id>.json

The fence is a log position that was still free when the listing had ended: all listed objects were begun at an older
version. `kind` is `objects` (directories and their files), `holders` (tables with a hold that do not exist), `name`
(the table has no name), `table` (all of it may be deleted), `log` (it may be cut at this position) or `history` (the
version at that time, if the timestamps of the log are wrong).

The clocks of collectors may differ by more than the age of a note. So its age is measured by the store's clock: the
time of the note's object, and that of `_gc/now`, an object that is written to learn the current time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mergelake.core.base.errors import NotFoundError
from mergelake.core.base.ids import IdSource
from mergelake.core.model.stored_form import stored
from mergelake.store.interface.protocol import Store

FOLDER = "_gc"
_logger = logging.getLogger("mergelake.table")


class Unused(msgspec.Struct, frozen=True):
    """An unreferenced directory, as it was listed."""

    directory: str = stored("directory")
    files: Mapping[str, int] = stored("files")
    """Keys below the directory -> bytes."""
    why: str = stored("why", default="")

    @property
    def bytes(self) -> int:
        """Sum of the bytes of its files."""
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class NoteName:
    """A note, as a listing shows it."""

    fence: int
    time_ms: int
    """When it was written, by its writer's clock: for people."""
    kind: str
    id: str
    stored_ms: int = 0
    """When it was written, by the store's clock."""

    @property
    def name(self) -> str:
        """Last segment of its key."""
        return f"{self.fence:020d}-{self.time_ms:014d}-{self.kind}-{self.id}.json"

    @staticmethod
    def parse(name: str, stored_ms: int = 0) -> NoteName | None:
        """Inverse of `name`; None for other names."""
        pieces = name.removesuffix(".json").split("-")
        if len(pieces) != 4 or not (pieces[0].isdigit() and pieces[1].isdigit()):
            return None
        return NoteName(int(pieces[0]), int(pieces[1]), pieces[2], pieces[3], stored_ms)


class Note(msgspec.Struct, frozen=True):
    """The content of a note."""

    unused: tuple[Unused, ...] = stored("unused", default=())
    holders: tuple[str, ...] = stored("holders", default=())
    leases: Mapping[str, tuple[int, int]] = stored("leases", default_factory=dict)
    """Node -> the version and the end of its lease."""


_decode = msgspec.json.Decoder(Note).decode


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one table."""

    store: Store
    directory: str
    ids: IdSource = field(repr=False)

    def names(self) -> list[NoteName]:
        """All notes, by one LIST, oldest fence first."""
        listed = self.store.list(self._key(""))
        parsed = (NoteName.parse(meta.key.rpartition("/")[2], meta.modified_ms) for meta in listed)
        return [name for name in parsed if name is not None]

    def now_ms(self) -> int:
        """The time by the store's clock: a PUT and a HEAD."""
        self.store.put(self._key("now"), b"")
        return self.store.head(self._key("now")).modified_ms

    def read(self, name: NoteName) -> Note:
        """One note; an empty one if another collector has removed it, or if it is unreadable."""
        try:
            return _decode(self.store.get(self._key(name.name)))
        except NotFoundError:
            return Note()
        except (msgspec.MsgspecError, ValueError) as cause:  # bytes that are no UTF-8 are a ValueError
            _logger.warning("the note %s is not readable and is thrown away: %s", self._key(name.name), cause)
            return Note()

    def write(self, fence: int, time_ms: int, kind: str, note: Note) -> NoteName:
        """Write a new note; returns its name."""
        name = NoteName(fence, time_ms, kind, self.ids.new_id())
        self.store.put(self._key(name.name), msgspec.json.encode(note))
        return name

    def remove(self, names: Sequence[NoteName]) -> None:
        """Delete notes that have been worked off."""
        if names:
            self.store.delete([self._key(name.name) for name in names])

    def _key(self, name: str) -> str:
        return f"{self.directory}/{FOLDER}/{name}".rstrip("/")
