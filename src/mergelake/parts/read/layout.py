"""Location of the files of parts: part -> file -> ranges of objects. Pure.

Readers, publishing (which lays parts out as plain files) and the attached sets of the embedded ClickHouse use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mergelake.core.model.manifest import Extent, PartFile, PartManifest


class ByteRange(NamedTuple):
    """Bytes of one object."""

    key: str
    """Key of the object in the store."""
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PartLayout:
    """The files of a part by name, each as the ordered places of its bytes."""

    files: Mapping[str, tuple[ByteRange, ...]]

    @property
    def named(self) -> bool:
        """Whether each file consists of ranges that start at offset 0, so that keys and sizes describe it."""
        return not any(place.offset for places in self.files.values() for place in places)

    def elsewhere(self, prefix: str) -> list[str]:
        """The files that are not one object `<prefix><file>`."""
        return [
            name
            for name, places in self.files.items()
            if len(places) != 1 or places[0].key != prefix + name or places[0].offset
        ]


def layout(directory: str, manifest: PartManifest) -> PartLayout:
    """The layout of a part of the table in `directory`."""
    return PartLayout({name: places(directory, file) for name, file in manifest.file_table().items()})


def places(directory: str, file: PartFile) -> tuple[ByteRange, ...]:
    """The places of the bytes of a file."""
    return tuple(ByteRange(object_key(directory, e), e.offset, e.length) for e in file.extents)


def object_key(directory: str, extent: Extent) -> str:
    """The key in the store: an extent's key is relative to the table's directory, or to the warehouse after a `/`."""
    if extent.key.startswith("/"):
        return extent.key[1:]
    return f"{directory.rstrip('/')}/{extent.key}" if directory else extent.key


def locate(directory: str, file: PartFile, offset: int) -> tuple[str, int]:
    """Object and offset in it of a byte of a file; past the end, the end of the last extent."""
    at = 0
    for extent in file.extents:
        if offset < at + extent.length or extent is file.extents[-1]:
            return object_key(directory, extent), extent.offset + offset - at
        at += extent.length
    return directory, offset
