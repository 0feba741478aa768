"""Parts as a state holds them: active ones, and those that were active once."""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo


@dataclass(frozen=True, slots=True)
class ActivePart:
    """A part that holds rows of the table now."""

    info: PartInfo
    manifest: PartManifest
    added: int
    """Version of the entry that brought it."""
    added_ms: int
    """Timestamp of that entry: the age that merge selection sees."""

    @property
    def name(self) -> str:
        """ClickHouse's name of the part."""
        return str(self.info)


@dataclass(frozen=True, slots=True)
class RetiredPart:
    """A part that was active once. Its objects stay until they are collected."""

    id: str
    info: PartInfo
    rows: int
    bytes_on_disk: int
    added: int
    retired: int
    """Version of the entry that retired it: versions from `added` up to, not including, this one show it."""
    retired_ms: int
    refers: tuple[str, ...] = ()
    """Directories, other than its own, in which files of it lie."""
    noted: int = 0
    """Version of the entry that added it to the retired parts: later than `retired` if it was detached in between."""
