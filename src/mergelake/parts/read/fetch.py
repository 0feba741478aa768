"""Translation of ranges of parts' files into requests to the store.

A file is a list of extents, ranges of objects; several files, and parts, may be in one object. The ranges of one call
are grouped by object, so that the store can join adjacent ones; the others are requested concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.manifest import PartFile
from mergelake.format.codecs.hashes import file_hash
from mergelake.parts.read.flight import begin
from mergelake.parts.read.layout import locate, places
from mergelake.store.cache.cached import cache_of, forget
from mergelake.store.interface.protocol import Buffer, Store

_GAP_BYTES = 1 << 20
"""Default of `coalesce_gap`: ranges of an object that are further apart are separate requests."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes `start` to `end` of one file."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartRanges:
    """Byte ranges of the files of one part."""

    directory: str
    files: Mapping[str, PartFile]
    ranges: Sequence[FileRange]
    gap: int | None = None
    """Ranges of an object that are further apart are requested apart; None: as the store does."""


def fetch(
    store: Store,
    directory: str,
    files: Mapping[str, PartFile],
    ranges: Sequence[FileRange],
    gap: int | None = None,
) -> list[Buffer]:
    """The bytes of each range; `gap` as of `PartRanges`.

    Raises `CorruptDataError` if an object is shorter than the manifest says.
    """
    return fetch_parts(store, [PartRanges(directory, files, ranges, gap)])[0]


def fetch_parts(store: Store, parts: Sequence[PartRanges]) -> list[list[Buffer]]:
    """The bytes of the ranges of each part, requested in one round. Errors: those of `fetch`."""
    return begin_parts(store, parts)()


def begin_parts(store: Store, parts: Sequence[PartRanges]) -> Callable[[], list[list[Buffer]]]:
    """Request the ranges of each part now, if the store is far; the returned function waits for the bytes."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    pieces: list[list[list[tuple[str, int]]]] = []  # for each range: (object, index among its requests)
    for part in parts:
        part_pieces: list[list[tuple[str, int]]] = []
        for each in part.ranges:
            requested: list[tuple[str, int]] = []
            for key, start, length in _pieces(part.directory, part.files[each.name], each):
                requests = wanted.setdefault(key, [])
                requested.append((key, len(requests)))
                requests.append((start, length))
            part_pieces.append(requested)
        pieces.append(part_pieces)
    wait_for = _begin(store, wanted, min((part.gap for part in parts if part.gap is not None), default=None))

    def bodies() -> list[list[Buffer]]:
        received = wait_for()
        return [
            [
                received[requested[0][0]][requested[0][1]]
                if len(requested) == 1
                else b"".join(received[key][i] for key, i in requested)
                for requested in part_pieces
            ]
            for part_pieces in pieces
        ]

    return bodies


def is_held(store: Store, directory: str, file: PartFile, start: int, end: int) -> bool:
    """Whether the cache directory of this machine probably has bytes `start` to `end` of a file."""
    cached = cache_of(store)
    return cached is not None and all(
        cached.holds(*piece) for piece in _pieces(directory, file, FileRange(file.name, start, end))
    )


def fetch_whole(store: Store, directory: str, files: Mapping[str, PartFile], names: Sequence[str]) -> list[Buffer]:
    """The whole of each file."""
    return fetch(store, directory, files, [FileRange(name, 0, files[name].size) for name in names])


def verified(store: Store, directory: str, file: PartFile, data: bytes) -> bytes:
    """`data`, a whole file, after comparing its hash, if that is known. Raises CHECKSUM_DOESNT_MATCH."""
    if file.hash and (actual := file_hash(data)) != file.hash:
        key, offset = locate(directory, file, 0)
        forget(store, key)
        raise CorruptDataError(
            f"Checksum of the file {file.name} does not match",
            name="CHECKSUM_DOESNT_MATCH",
            object_key=key,
            offset=offset,
            expected=file.hash,
            found=actual,
        )
    return data


def _pieces(directory: str, file: PartFile, part: FileRange) -> list[tuple[str, int, int]]:
    """(object, start, length) of a range's extents."""
    if not 0 <= part.start <= part.end <= file.size:
        raise CorruptDataError(
            f"Bytes {part.start} to {part.end} of {file.name} are wanted, past its end",
            object_key=locate(directory, file, 0)[0],
            offset=part.start,
            expected=f"at most {file.size}",
            found=str(part.end),
        )
    out: list[tuple[str, int, int]] = []
    at = 0
    for place in places(directory, file):
        low, high = max(part.start, at), min(part.end, at + place.length)
        if low < high:
            out.append((place.key, place.offset + low - at, high - low))
        at += place.length
    return out


def _begin(
    store: Store, wanted: Mapping[str, list[tuple[int, int]]], gap_max: int | None = None
) -> Callable[[], dict[str, list[Buffer]]]:
    if not is_remote(store):
        return lambda: {key: store.get_ranges(key, requests) for key, requests in wanted.items()}
    local = _held(store, wanted)
    gap = int(dict(store.spec.options).get("coalesce_gap", _GAP_BYTES))
    gap = gap if gap_max is None else min(gap, gap_max)
    far = [(key, requests) for key, requests in wanted.items() if key not in local]
    groups = [(key, near) for key, requests in far for near in _near(requests, gap)]

    def fetch_group(group: tuple[str, list[int]]) -> list[Buffer]:
        key, near = group
        return store.get_ranges(key, [wanted[key][i] for i in near])

    wait_for = begin(store, fetch_group, groups)

    def bodies() -> dict[str, list[Buffer]]:
        received = local | {key: [b""] * len(requests) for key, requests in far}
        for (key, near), group_bodies in zip(groups, wait_for(), strict=True):
            for i, body in zip(near, group_bodies, strict=True):
                received[key][i] = body
        return received

    return bodies


def _held(store: Store, wanted: Mapping[str, list[tuple[int, int]]]) -> dict[str, list[Buffer]]:
    """By object, the bodies of requests that a cache directory can answer in full, read in this thread."""
    cached = cache_of(store)
    if cached is None:
        return {}
    bodies_by_key = ((key, cached.held(key, requests)) for key, requests in wanted.items())
    return {key: bodies for key, bodies in bodies_by_key if bodies is not None}


def _near(requests: Sequence[tuple[int, int]], gap: int) -> list[list[int]]:
    """Indexes of the (start, length) requests in groups without gaps of more than `gap` bytes."""
    groups: list[list[int]] = []
    reach = 0
    for i in sorted(range(len(requests)), key=requests.__getitem__):
        start, length = requests[i]
        if not groups or start > reach + gap:
            groups.append([])
        groups[-1].append(i)
        reach = max(reach, start + length)
    return groups


def is_remote(store: Store) -> bool:
    """Whether a request waits for a network: starting a thread takes longer than a read from disk."""
    scheme, marker, _ = store.url.partition("://")
    return bool(marker) and scheme not in ("file", "memory")
