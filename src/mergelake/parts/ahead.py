"""Opening many parts of a far store at once: all that has to be known before data is read, in one round of requests.

1. A *small* part, one object of up to `SMALL_BYTES`, is fetched whole and kept (`PartCache.data`), unless they are more
   than may be kept.
2. Of another packed part the files that it begins with come together.
3. Of a part with an object for each file: what says how it lies, the marks of the wanted columns and, if it is asked
   for, the primary index. What the caches have is not asked for.
4. Dictionaries that are not large come along whole and are kept, for every piece of the part needs them.

`fetch_windows` fetches ranges of data files of many parts in one round. In a directory nothing is fetched ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mergelake.core import types as t
from mergelake.core.errors import CorruptDataError, NotFoundError
from mergelake.format.names import streams_by_column
from mergelake.parts.fetch import FileRange, fetch_parts, is_remote
from mergelake.parts.reader import HEADER_FILES, PartReader
from mergelake.parts.window import Window
from mergelake.store.protocol import Buffer

SMALL_BYTES = 256 << 10
"""A round trip takes as long as the transfer of some such parts."""
DICTIONARY_BYTES = 1 << 20
"""Dictionaries of more bytes are read by ranges."""
_KEYS = ("primary.idx", "primary.cidx")


def is_small(reader: PartReader) -> bool:
    """Whether the part is fetched whole."""
    manifest = reader.manifest
    return manifest.storage == "packed" and manifest.bytes_on_disk <= SMALL_BYTES and is_remote(reader.store)


def open_parts(
    readers: Sequence[PartReader], columns: Sequence[str], *, key: Sequence[t.DataType] | None = None
) -> None:
    """Load what reading these columns (and with `key`, the types of the primary key, its index) needs beside data.

    What is lost or damaged is passed over: who reads that part will be told. `UnavailableError` is raised.
    """
    if not readers or not is_remote(readers[0].store):
        return
    for reader in readers:
        reader.regain()
    small = [reader for reader in readers if is_small(reader) and not reader.complete]
    room = readers[0].caches.data.max_bytes // 2
    whole = sum(reader.manifest.bytes_on_disk for reader in small) <= room  # else they would push out each other
    wanted = [(reader, names) for reader in readers if (names := _unopened(reader, columns, key, whole))]
    asked = [reader.part_ranges([FileRange(n, 0, reader.files[n].size) for n in names]) for reader, names in wanted]
    try:
        found = fetch_parts(readers[0].store, asked)
    except (CorruptDataError, NotFoundError):
        return
    for (reader, names), bodies in zip(wanted, found, strict=True):
        held = frozenset(reader.manifest.columns)
        first = next((name for name in columns if name in reader.columns and reader.columns[name].id in held), "")
        reader.take(dict(zip(names, bodies, strict=True)), complete=whole and is_small(reader), first=first)
        if reader.complete:
            continue  # nothing is fetched any more, and what is read together needs no marks
        try:
            reader.warm([name for name in columns if name in reader.columns])
            if key is not None:
                reader.primary_index(key)
            reader.forget_small()
        except (CorruptDataError, NotFoundError):
            continue


def fetch_windows(wanted: Sequence[tuple[PartReader, Sequence[FileRange], Window | None]]) -> list[Window | None]:
    """The ranges of each part, asked for in one round, over what is there of it already.

    What is lost or damaged is passed over, as by `open_parts`.
    """
    asked = [(reader, ranges) for reader, ranges, _ in wanted if ranges]
    bodies: Iterator[list[Buffer]] = iter(())
    if asked:
        try:
            bodies = iter(fetch_parts(asked[0][0].store, [reader.part_ranges(ranges) for reader, ranges in asked]))
        except (CorruptDataError, NotFoundError):
            return [under for _, _, under in wanted]
    return [Window(ranges, next(bodies), under) if ranges else under for _, ranges, under in wanted]


def _unopened(reader: PartReader, columns: Sequence[str], key: Sequence[t.DataType] | None, whole: bool) -> list[str]:
    """The files that have to be fetched; all of a small part if `whole`."""
    files, caches, own = reader.files, reader.caches, reader.cache_key
    if whole and is_small(reader):
        return [] if reader.complete else list(files)
    names: dict[str, None] = {}
    if reader.manifest.storage == "packed":
        if caches.get((*own, "front")) is None:
            names |= dict.fromkeys(reader.front_files())
    else:
        if caches.get((*own, "layout")) is None:
            names |= dict.fromkeys(HEADER_FILES if reader.written is None else HEADER_FILES[1:])
        if key is not None and caches.get((*own, "primary", tuple(map(str, key)))) is None:
            names |= dict.fromkeys(_KEYS)
    unread = [name for name in columns if caches.get((*own, "column", name)) is None]
    streams = [stream for each in streams_by_column(files, unread).values() for stream in each]
    if reader.manifest.storage != "packed":
        names |= dict.fromkeys(_mark_files(files, streams))
    for stream in streams:
        file = files[f"{stream}.bin"]
        if stream.endswith(".dict") and file.size <= DICTIONARY_BYTES:
            names[file.name] = None
    held = reader.held
    return [n for n in names if n in files and (held is None or not held.covers(FileRange(n, 0, files[n].size)))]


def _mark_files(files: Iterable[str], streams: Sequence[str]) -> list[str]:
    """The files with the marks of some streams; of a Compact part the one that it has."""
    stems = {*streams, "data"} if streams else set()
    return [
        name for name in files if (stem := name.rpartition("."))[0] in stems and stem[2].lstrip("c").startswith("mrk")
    ]
