"""The sizes of all objects of a table, in little memory: some hundred bytes per part, for any number of files.

Similar parts have files of the same names. So a directory is stored as an array of sizes and a tuple of names, which
all directories with the same names share.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from mergelake.log.model.retention import directory_of

_Names: TypeAlias = tuple[str, ...]


class ObjectSizes:
    """Bytes of each object by its key: relative to the table, or to the warehouse's root with a leading `/`."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[_Names, array[int]]] = {}
        self._shapes: dict[_Names, _Names] = {}

    def add(self, listing: Iterable[tuple[str, int]]) -> None:
        """Add keys and sizes, in order of key."""
        for directory, items in groupby(listing, key=lambda item: directory_of(item[0])):
            cut = len(directory) + 1
            files = {key[cut:]: size for key, size in items}
            if directory in self._held:
                files = dict(zip(*self._held[directory], strict=True)) | files
            names = tuple(sorted(files))
            names = self._shapes.setdefault(names, names)
            self._held[directory] = names, array("q", [files[name] for name in names])

    def get(self, key: str) -> int | None:
        """Bytes of one object; None if it is missing."""
        directory = directory_of(key)
        names, sizes = self._held.get(directory, ((), array("q")))
        name = key[len(directory) + 1 :]
        at = bisect_left(names, name)
        return sizes[at] if at < len(names) and names[at] == name else None

    def __len__(self) -> int:
        """Number of objects."""
        return sum(len(names) for names, _ in self._held.values())

    @property
    def directories(self) -> set[str]:
        """Directories with objects."""
        return set(self._held)

    def names(self, directory: str) -> _Names:
        """Keys of the objects of a directory, relative to it, in order."""
        return self._held.get(directory, ((), array("q")))[0]

    def own(self) -> Iterator[tuple[str, int]]:
        """Keys and sizes of the table's own objects, by directory, without folders that begin with an underscore."""
        for directory in sorted(name for name in self._held if not name.startswith(("/", "_"))):
            for name, size in zip(*self._held[directory], strict=True):
                yield f"{directory}/{name}", size
