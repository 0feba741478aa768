"""Whole files of a part in memory: all files of a small part, dictionaries of another."""

from __future__ import annotations

from collections.abc import Mapping

from mergelake.format.indexes.skip_files import is_index_file
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.fetch import FileRange
from mergelake.parts.read.window import ReadWindow
from mergelake.store.interface.protocol import Buffer, Store


def is_data(name: str) -> bool:
    """Whether a file is read by ranges."""
    return name.endswith(".bin") or is_index_file(name)


def held_key(own: tuple[str, str, str]) -> tuple[str, ...]:
    """Key in `PartCache.data` of the whole files of a part; `own` is its store, directory and id."""
    return (*own, "files")


def whole_files(caches: PartCache, store: Store, directory: str, part_id: str) -> Held | None:
    """All files of a part, if they are cached."""
    kept = caches.data.get(held_key((store.url, directory, part_id)))
    return kept if isinstance(kept, Held) and kept.complete else None


class Held:
    """Some files of one part; all of them if `complete`."""

    __slots__ = ("bytes", "complete", "data", "files", "small")

    def __init__(self, files: Mapping[str, Buffer], *, complete: bool) -> None:
        self.files = files
        self.complete = complete
        self.small = {name: body for name, body in files.items() if not is_data(name)}
        """Files that are read whole."""
        data = {name: body for name, body in files.items() if is_data(name)}
        self.data = ReadWindow([FileRange(name, 0, len(body)) for name, body in data.items()], list(data.values()))
        """Files that are read by ranges."""
        self.bytes = sum(map(len, files.values())) + 200 * len(files)
