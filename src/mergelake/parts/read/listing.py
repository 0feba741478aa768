"""A part as plain files, whatever objects hold its bytes: for `publish` and exports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.parts.read.fetch import FileRange, fetch, fetch_whole
from mergelake.store.interface.protocol import Buffer, Store

CHUNK_BYTES = 8 << 20
"""Maximum bytes of a large file that are in memory at a time."""


def projection_names(files: Iterable[str]) -> tuple[str, ...]:
    """Names of the projections among a part's files: each is a part of its own in `<name>.proj/`."""
    return tuple(sorted({file.partition(".proj/")[0] for file in files if ".proj/" in file}))


def plain_files(store: Store, directory: str, manifest: PartManifest) -> Iterator[tuple[str, Iterator[Buffer]]]:
    """Every file of a part, by name, as chunks of bytes; `checksums.txt` comes last.

    A packed part is read by one request. Each file's chunks must be consumed before the next file is requested.
    """
    files = manifest.file_table()
    names = sorted(files, key=lambda name: (name == "checksums.txt", name))
    if manifest.storage == "packed":
        for name, data in zip(names, fetch_whole(store, directory, files, names), strict=True):
            yield name, iter([data])
        return
    for name in names:
        yield name, file_chunks(store, directory, files[name])


def file_chunks(store: Store, directory: str, file: PartFile) -> Iterator[Buffer]:
    """One file, in pieces of at most `CHUNK_BYTES`."""
    table = {file.name: file}
    for start in range(0, file.size, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, file.size)
        yield from fetch(store, directory, table, [FileRange(file.name, start, end)])
