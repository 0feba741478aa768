"""From ranges of parts' files to requests to the store.

A file is a list of extents, ranges of objects; several files, and parts, may lie in one object. All ranges that are
wanted at once are sorted by object, so that the store can join near ones, and what it cannot join is asked for at the
same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mergelake.core.errors import CorruptDataError
from mergelake.core.manifest import PartFile
from mergelake.format.hashes import file_hash
from mergelake.parts.flight import begin
from mergelake.parts.layout import locate, places
from mergelake.store.cached import CachedStore, forget
from mergelake.store.protocol import Buffer, Store

_GAP_BYTES = 1 << 20
"""Ranges of an object that are further apart than its store joins (`coalesce_gap`) are questions of their own."""


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


def fetch(store: Store, directory: str, files: Mapping[str, PartFile], ranges: Sequence[FileRange]) -> list[Buffer]:
    """The bytes of each range. Raises `CorruptDataError` if an object is shorter than the manifest says."""
    return fetch_parts(store, [PartRanges(directory, files, ranges)])[0]


def fetch_parts(store: Store, parts: Sequence[PartRanges]) -> list[list[Buffer]]:
    """The bytes of the ranges of each part, asked for in one round. Errors: those of `fetch`."""
    return begin_parts(store, parts)()


def begin_parts(store: Store, parts: Sequence[PartRanges]) -> Callable[[], list[list[Buffer]]]:
    """The same, asked for now where the store is far; what is returned waits for the bytes."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    pieces: list[list[list[tuple[str, int]]]] = []  # for each range: (object, index among its requests)
    for part in parts:
        places: list[list[tuple[str, int]]] = []
        for each in part.ranges:
            found: list[tuple[str, int]] = []
            for key, start, length in _pieces(part.directory, part.files[each.name], each):
                requests = wanted.setdefault(key, [])
                found.append((key, len(requests)))
                requests.append((start, length))
            places.append(found)
        pieces.append(places)
    coming = _begin(store, wanted)

    def bodies() -> list[list[Buffer]]:
        came = coming()
        return [
            [
                came[found[0][0]][found[0][1]] if len(found) == 1 else b"".join(came[key][i] for key, i in found)
                for found in places
            ]
            for places in pieces
        ]

    return bodies


def is_held(store: Store, directory: str, file: PartFile, start: int, end: int) -> bool:
    """Whether a cache directory of this machine seems to have bytes `start` to `end` of a file."""
    return isinstance(store, CachedStore) and all(
        store.holds(*piece) for piece in _pieces(directory, file, FileRange(file.name, start, end))
    )


def fetch_whole(store: Store, directory: str, files: Mapping[str, PartFile], names: Sequence[str]) -> list[Buffer]:
    """The whole of each file."""
    return fetch(store, directory, files, [FileRange(name, 0, files[name].size) for name in names])


def verified(store: Store, directory: str, file: PartFile, data: bytes) -> bytes:
    """`data`, which is the whole file, if it has the file's hash (where that is known); else CHECKSUM_DOESNT_MATCH."""
    if file.hash and (found := file_hash(data)) != file.hash:
        key, offset = locate(directory, file, 0)
        forget(store, key)
        raise CorruptDataError(
            f"Checksum of the file {file.name} does not match",
            name="CHECKSUM_DOESNT_MATCH",
            object_key=key,
            offset=offset,
            expected=file.hash,
            found=found,
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


def _begin(store: Store, wanted: Mapping[str, list[tuple[int, int]]]) -> Callable[[], dict[str, list[Buffer]]]:
    if not is_remote(store):
        return lambda: {key: store.get_ranges(key, requests) for key, requests in wanted.items()}
    local = _held(store, wanted)
    gap = int(dict(store.spec.options).get("coalesce_gap", _GAP_BYTES))
    far = [(key, requests) for key, requests in wanted.items() if key not in local]
    questions = [(key, near) for key, requests in far for near in _near(requests, gap)]

    def ask(question: tuple[str, list[int]]) -> list[Buffer]:
        key, near = question
        return store.get_ranges(key, [wanted[key][i] for i in near])

    coming = begin(store, ask, questions)

    def bodies() -> dict[str, list[Buffer]]:
        came = local | {key: [b""] * len(requests) for key, requests in far}
        for (key, near), found in zip(questions, coming(), strict=True):
            for i, body in zip(near, found, strict=True):
                came[key][i] = body
        return came

    return bodies


def _held(store: Store, wanted: Mapping[str, list[tuple[int, int]]]) -> dict[str, list[Buffer]]:
    """By object, what a cache directory has all of: it is read here, without a thread that would wait for it."""
    if not isinstance(store, CachedStore):
        return {}
    found = ((key, store.held(key, requests)) for key, requests in wanted.items())
    return {key: bodies for key, bodies in found if bodies is not None}


def _near(requests: Sequence[tuple[int, int]], gap: int) -> list[list[int]]:
    """The indexes of (start, length)s in groups that no gap of more bytes divides."""
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
