"""The sizes of all objects of a table, in little memory: some hundred bytes a part, however many files it has.

Parts that were written alike have files of the same names. So the objects of a directory are held together: their
sizes as an array, and their names as one tuple, which all directories with these names share.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from mergelake.log.retention import directory_of

_Names: TypeAlias = tuple[str, ...]


class ObjectSizes:
    """Bytes of each object by its key: below the table, or from the warehouse's root with a `/` before it."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[_Names, array[int]]] = {}
        self._shapes: dict[_Names, _Names] = {}

    def add(self, listing: Iterable[tuple[str, int]]) -> None:
        """These too: keys and sizes, in order of key."""
        for directory, found in groupby(listing, key=lambda item: directory_of(item[0])):
            cut = len(directory) + 1
            files = {key[cut:]: size for key, size in found}
            if directory in self._held:
                files = dict(zip(*self._held[directory], strict=True)) | files
            names = tuple(sorted(files))
            names = self._shapes.setdefault(names, names)
            self._held[directory] = names, array("q", [files[name] for name in names])

    def get(self, key: str) -> int | None:
        """Bytes of one object; None if it is not there."""
        directory = directory_of(key)
        names, sizes = self._held.get(directory, ((), array("q")))
        name = key[len(directory) + 1 :]
        at = bisect_left(names, name)
        return sizes[at] if at < len(names) and names[at] == name else None

    def __len__(self) -> int:
        """How many objects."""
        return sum(len(names) for names, _ in self._held.values())

    @property
    def directories(self) -> set[str]:
        """In which there is something."""
        return set(self._held)

    def names(self, directory: str) -> _Names:
        """The objects of a directory: keys below it, in order."""
        return self._held.get(directory, ((), array("q")))[0]

    def own(self) -> Iterator[tuple[str, int]]:
        """Keys and sizes of the table's own objects, in order of directory, but for folders with an underscore."""
        for directory in sorted(name for name in self._held if not name.startswith(("/", "_"))):
            for name, size in zip(*self._held[directory], strict=True):
                yield f"{directory}/{name}", size
