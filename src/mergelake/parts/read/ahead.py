"""Opening many parts of a far store at once: everything needed before data is read comes in one round of requests.

1. A *small* part, one object of up to `SMALL_BYTES`, is fetched whole and cached (`PartCache.data`), unless the small
   parts together exceed the cache.
2. From another packed part its small files, which are at the front of the object, are fetched together.
3. From a part with an object for each file: header files, the marks of the wanted columns and, if requested, the
   primary index. Cached files are not fetched.
4. Dictionaries up to `DICTIONARY_BYTES` are fetched whole and cached, because every piece of the part needs them.

A merge, which reads all of its sources, has the packed ones fetched whole as far as its memory allows (`hold_packed`).
`fetch_windows` fetches ranges of data files of many parts in one round. Nothing is prefetched from a local directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.types import types as t
from mergelake.format.serializations.names import streams_by_column
from mergelake.parts.read.default_codec import CODEC_FILE, part_codec
from mergelake.parts.read.fetch import FileRange, fetch_parts, is_remote
from mergelake.parts.read.reader import HEADER_FILES, PartReader
from mergelake.parts.read.window import ReadWindow
from mergelake.store.interface.protocol import Buffer

SMALL_BYTES = 256 << 10
"""Maximum bytes of a small part: a round trip takes as long as the transfer of several of them."""
DICTIONARY_BYTES = 1 << 20
"""Maximum bytes of a dictionary that is fetched whole; larger ones are read by ranges."""
_KEYS = ("primary.idx", "primary.cidx")


def is_small(reader: PartReader) -> bool:
    """Whether the part is fetched whole."""
    manifest = reader.manifest
    return manifest.storage == "packed" and manifest.bytes_on_disk <= SMALL_BYTES and is_remote(reader.store)


def hold_packed(readers: Sequence[PartReader], room: int) -> int:
    """Fetch packed parts whole, in one round, and hold their files in the readers: the smallest, up to `room` bytes.

    Returns the bytes that are held. All readers have one far store. Missing or damaged objects are ignored, as by
    `open_parts`. Raises `UnavailableError`.
    """
    chosen: list[PartReader] = []
    held = 0
    packed = (reader for reader in readers if reader.manifest.storage == "packed" and not reader.complete)
    for reader in sorted(packed, key=lambda reader: reader.manifest.bytes_on_disk):
        held += reader.manifest.bytes_on_disk
        if held > room:
            break
        chosen.append(reader)
    if not chosen:
        return 0
    names = [list(reader.files) for reader in chosen]
    ranges = [
        [FileRange(name, 0, reader.files[name].size) for name in each]
        for reader, each in zip(chosen, names, strict=True)
    ]
    try:
        bodies = fetch_parts(
            chosen[0].store, [reader.part_ranges(each) for reader, each in zip(chosen, ranges, strict=True)]
        )
    except (CorruptDataError, NotFoundError):
        return 0
    for reader, each, files in zip(chosen, names, bodies, strict=True):
        reader.hold(dict(zip(each, files, strict=True)))
    return sum(reader.manifest.bytes_on_disk for reader in chosen)


def open_parts(
    readers: Sequence[PartReader],
    columns: Sequence[str],
    *,
    key: Sequence[t.DataType] | None = None,
    codec: bool = False,
) -> None:
    """Load headers and marks for reading `columns`; with `key`, the types of the primary key, also its index.

    With `codec`, the parts' default codecs are loaded too (`parts.read.default_codec`).

    Missing or damaged files are ignored here: reading the part raises the error. Raises `UnavailableError`.
    """
    if not readers or not is_remote(readers[0].store):
        return
    for reader in readers:
        reader.regain()
    small = [reader for reader in readers if is_small(reader) and not reader.complete]
    room = readers[0].caches.data.max_bytes // 2
    whole = sum(reader.manifest.bytes_on_disk for reader in small) <= room  # else they would evict each other
    wanted = [(reader, names) for reader in readers if (names := _unopened(reader, columns, key, whole, codec))]
    part_ranges = [
        reader.part_ranges([FileRange(n, 0, reader.files[n].size) for n in names]) for reader, names in wanted
    ]
    try:
        part_bodies = fetch_parts(readers[0].store, part_ranges)
    except (CorruptDataError, NotFoundError):
        return
    for (reader, names), bodies in zip(wanted, part_bodies, strict=True):
        held = frozenset(reader.manifest.columns)
        first = next((name for name in columns if name in reader.columns and reader.columns[name].id in held), "")
        reader.take(dict(zip(names, bodies, strict=True)), complete=whole and is_small(reader), first=first)
        if reader.complete:
            continue  # everything is in memory, and parts that are read together need no marks
        try:
            reader.warm([name for name in columns if name in reader.columns])
            if key is not None:
                reader.primary_index(key)
            if codec:
                part_codec(reader)
            reader.forget_small()
        except (CorruptDataError, NotFoundError):
            continue


def fetch_windows(
    wanted: Sequence[tuple[PartReader, Sequence[FileRange], ReadWindow | None]],
) -> list[ReadWindow | None]:
    """Fetch ranges of several parts in one round; each item is (part, ranges, window of bytes already in memory).

    Missing or damaged files are ignored, as by `open_parts`.
    """
    requested = [(reader, ranges) for reader, ranges, _ in wanted if ranges]
    bodies: Iterator[list[Buffer]] = iter(())
    if requested:
        try:
            bodies = iter(
                fetch_parts(requested[0][0].store, [reader.part_ranges(ranges) for reader, ranges in requested])
            )
        except (CorruptDataError, NotFoundError):
            return [under for _, _, under in wanted]
    return [ReadWindow(ranges, next(bodies), under) if ranges else under for _, ranges, under in wanted]


def _unopened(
    reader: PartReader, columns: Sequence[str], key: Sequence[t.DataType] | None, whole: bool, codec: bool
) -> list[str]:
    """The files of a part that have to be fetched; all of a small part if `whole`."""
    files, caches, own = reader.files, reader.caches, reader.cache_key
    if whole and is_small(reader):
        return [] if reader.complete else list(files)
    names: dict[str, None] = {}
    if reader.manifest.storage == "packed":
        if caches.get((*own, "front")) is None:
            names |= dict.fromkeys(reader.front_files())
    else:
        if codec:
            names[CODEC_FILE] = None
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


def small_files_of(reader: PartReader, columns: Sequence[str]) -> list[str]:
    """The files that reading `columns` of a part may request as a whole: headers, index, marks, dictionaries."""
    files = reader.files
    streams = [stream for each in streams_by_column(files, columns).values() for stream in each]
    packed = reader.manifest.storage == "packed"
    names = reader.front_files()
    if not packed:
        name, kind = next(iter(reader.layout.columns.items()))
        granules = reader.layout.mark_files(name, kind)[:1]  # of which `granule_rows` are
        names = [*HEADER_FILES, *_KEYS, *granules, *_mark_files(files, streams)]
    names += [f"{stream}.bin" for stream in streams if stream.endswith(".dict")]
    return [n for n in names if n in files and (not n.endswith(".dict.bin") or files[n].size <= DICTIONARY_BYTES)]


def _mark_files(files: Iterable[str], streams: Sequence[str]) -> list[str]:
    """The mark files of some streams; the only one of a Compact part."""
    stems = {*streams, "data"} if streams else set()
    return [
        name for name in files if (stem := name.rpartition("."))[0] in stems and stem[2].lstrip("c").startswith("mrk")
    ]
