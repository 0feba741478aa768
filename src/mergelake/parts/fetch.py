"""From ranges of a part's files to requests to the store.

A file is a list of extents, ranges of objects; several files may lie in one object. All ranges that are wanted
at once are sorted by object, so that the store can join near ones, and different objects are asked at the same
time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from mergelake.core.errors import CorruptDataError
from mergelake.core.manifest import Extent, PartFile
from mergelake.format.hashes import file_hash
from mergelake.store.protocol import Buffer, Store

_REQUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes `start` to `end` of one file."""

    name: str
    start: int
    end: int


def object_key(directory: str, extent: Extent) -> str:
    """The key in the store: relative to the table's directory, or to the warehouse if it starts with `/`."""
    if extent.key.startswith("/"):
        return extent.key[1:]
    return f"{directory.rstrip('/')}/{extent.key}" if directory else extent.key


def locate(directory: str, file: PartFile, offset: int) -> tuple[str, int]:
    """Object and offset in it of a byte of a file; past the end it is the end of the last extent."""
    at = 0
    for extent in file.extents:
        if offset < at + extent.length or extent is file.extents[-1]:
            return object_key(directory, extent), extent.offset + offset - at
        at += extent.length
    return directory, offset


def fetch(store: Store, directory: str, files: Mapping[str, PartFile], ranges: Sequence[FileRange]) -> list[Buffer]:
    """The bytes of each range. Raises `CorruptDataError` if an object is shorter than the manifest says."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    pieces: list[list[tuple[str, int]]] = []  # for each range: (object, index among its requests)
    for part in ranges:
        found: list[tuple[str, int]] = []
        for key, start, length in _pieces(directory, files[part.name], part):
            requests = wanted.setdefault(key, [])
            found.append((key, len(requests)))
            requests.append((start, length))
        pieces.append(found)
    bodies = _get(store, wanted)
    return [
        bodies[found[0][0]][found[0][1]] if len(found) == 1 else b"".join(bodies[key][i] for key, i in found)
        for found in pieces
    ]


def fetch_whole(store: Store, directory: str, files: Mapping[str, PartFile], names: Sequence[str]) -> list[Buffer]:
    """The whole of each file."""
    return fetch(store, directory, files, [FileRange(name, 0, files[name].size) for name in names])


def verified(directory: str, file: PartFile, data: bytes) -> bytes:
    """`data`, which is the whole file, if it has the file's hash (where that is known); else CHECKSUM_DOESNT_MATCH."""
    if file.hash and (found := file_hash(data)) != file.hash:
        key, offset = locate(directory, file, 0)
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
    for extent in file.extents:
        low, high = max(part.start, at), min(part.end, at + extent.length)
        if low < high:
            out.append((object_key(directory, extent), extent.offset + low - at, high - low))
        at += extent.length
    return out


def _get(store: Store, wanted: Mapping[str, list[tuple[int, int]]]) -> dict[str, list[Buffer]]:
    if len(wanted) < 2 or not is_remote(store):
        return {key: store.get_ranges(key, requests) for key, requests in wanted.items()}
    bodies = _pool(os.getpid()).map(store.get_ranges, wanted.keys(), wanted.values())
    return dict(zip(wanted, bodies, strict=True))


def is_remote(store: Store) -> bool:
    """Whether a request waits for a network: starting a thread takes longer than a read from disk."""
    scheme, marker, _ = store.url.partition("://")
    return bool(marker) and scheme not in ("file", "memory")


@cache
def _pool(pid: int) -> ThreadPoolExecutor:
    """The threads that wait for replies; a forked process (Spark's workers are) needs its own."""
    return ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix=f"mergelake-get-{pid}")
