"""The node's own disk with the bytes of volatile parts, which may be lost at any time.

::

    <table>/<id of the bytes>/...           the files of a part, as in the table's directory of the store
    <table>/volatile/<volatile id>.json     its record with the manifest; written when the files are complete

What has no record was being written when the node died, and is deleted when it comes back; so is what is not as long
as its record says. The disk is not synced: after a power cut bytes may be wrong, which a merge notices by the checksum
of each compressed block, and an upload by the hash of each file. A record has a digest of its own: the manifest in it
becomes that of the published part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage

from mergelake.core.base.errors import CorruptDataError, MergelakeError, error
from mergelake.core.model.manifest import PartFile, PartManifest, with_keys
from mergelake.format.codecs.hashes import file_hash
from mergelake.jobs.merge.volatile import LocalPart
from mergelake.log.model.state import VolatilePart
from mergelake.store import open_store
from mergelake.store.interface.protocol import Buffer, Store
from mergelake.table.volatile.volatile_record import decode_record, encode_record, record_key, records_of

_SMALL = 16 << 20
_CHUNK = 8 << 20


class LocalDisk:
    """The part of a node's disk that belongs to one table. Threads may share it."""

    def __init__(self, store: Store, directory: str) -> None:
        """`store` belongs to this node alone; `directory` is that of the table in the table's store."""
        self.store = store
        self.directory = directory

    def load(self) -> dict[str, LocalPart]:
        """The complete parts, by id of the volatile part. All other files are deleted."""
        sizes = {item.key: item.size for item in self.store.list(self.directory)}
        parts: dict[str, LocalPart] = {}
        kept: set[str] = set()
        for key in [key for key in sizes if key.startswith(f"{records_of(self.directory)}/")]:
            record = decode_record(self.store.get(key))
            part = LocalPart(*record) if record is not None else None
            if part is not None and all(sizes.get(name) == size for name, size in self._objects(part.manifest).items()):
                parts[part.id] = part
                kept |= {key, *self._objects(part.manifest)}
        self.store.delete(sorted(sizes.keys() - kept))
        return parts

    def add(self, part: VolatilePart, manifest: PartManifest) -> LocalPart:
        """Write the record of a volatile part, whose files, described by the manifest, are complete."""
        self.store.put(record_key(self.directory, part.id), encode_record(part.id, part.info, manifest))
        return LocalPart(part.id, part.info, manifest)

    def drop(self, parts: Iterable[LocalPart]) -> None:
        """Delete bytes; the records first."""
        dropped = list(parts)
        self.store.delete([record_key(self.directory, part.id) for part in dropped])
        self.discard(part.manifest for part in dropped)

    def discard(self, manifests: Iterable[PartManifest]) -> None:
        """Delete bytes that have no record."""
        self.store.delete([key for manifest in manifests for key in self._objects(manifest)])

    def _objects(self, manifest: PartManifest) -> dict[str, int]:
        """Key and size of each object of a part."""
        return {f"{self.directory}/{key}": size for key, (size, _) in _objects(manifest).items()}


def open_disk(directory: str, node: str) -> tuple[Store, Callable[[], int | None]]:
    """The subdirectory of one node as a store, and a function that returns its free bytes."""
    if "://" in directory or not re.fullmatch(r"\w[\w.-]*", node):
        way_out = "Give a directory, and a name of letters, digits and inner dashes and dots"
        raise error("BAD_ARGUMENTS", f"'{directory}' and '{node}' do not make a directory on a node's disk", way_out)
    path = Path(directory, node)

    def free() -> int:
        try:
            path.mkdir(parents=True, exist_ok=True)  # it may be wiped at any time
            return disk_usage(path).free
        except OSError:  # or unmounted: there is no room on it
            return 0

    path.mkdir(parents=True, exist_ok=True)
    return open_store(str(path), {"sync": "false"}), free


def sweep(store: Store, tables: Collection[str]) -> None:
    """Delete the files of all tables but these: the others were dropped while the node was away."""
    known = tuple(f"{directory}/" for directory in tables)
    store.delete([item.key for item in store.list("") if not item.key.startswith(known)])


def copy_part(
    source: Store,
    target: Store,
    directory: str,
    manifest: PartManifest,
    new_id: str,
    base_version: int,
    go_on: Callable[[int], None] = lambda size: None,
) -> PartManifest:
    """Copy a part's objects from one store to another, under a new id; returns its manifest there.

    Each file's hash is verified. `go_on` is called with the size of each piece before it is sent, and may raise. A
    failure deletes the copied objects, or leaves them to collection. Raises CorruptDataError (CHECKSUM_DOESNT_MATCH) if
    the source does not match the manifest.
    """
    objects = _objects(manifest)
    done: list[str] = []
    try:
        # `checksums.txt` comes last, as when a part is written.
        for key in sorted(objects, key=lambda key: (key.endswith("/checksums.txt"), key)):
            size, files = objects[key]
            data = source.get_range(f"{directory}/{key}", 0, size) if size else b""
            for file in files:
                _verify(directory, file, data)
            new_key = f"{directory}/{_renamed(key, manifest.id, new_id)}"
            done.append(new_key)
            if size <= _SMALL:
                go_on(size)
                target.put(new_key, data)
            else:
                target.put_large(new_key, _pieces(data, go_on))
    except Exception:
        with suppress(MergelakeError):
            target.delete(done)
        raise
    keys = {key: _renamed(key, manifest.id, new_id) for key in manifest.object_keys()}
    return replace(with_keys(manifest, keys), id=new_id, base_version=base_version)


def _pieces(data: Buffer, go_on: Callable[[int], None]) -> Iterator[Buffer]:
    for at in range(0, len(data), _CHUNK):
        piece = data[at : at + _CHUNK]
        go_on(len(piece))
        yield piece


def _objects(manifest: PartManifest) -> dict[str, tuple[int, list[PartFile]]]:
    """Size of each object of a part, and the files in it. A part written here has each file in one piece."""
    out: dict[str, tuple[int, list[PartFile]]] = {}
    for file in manifest.file_table().values():
        for extent in file.extents:
            size, files = out.get(extent.key, (0, []))
            out[extent.key] = (max(size, extent.offset + extent.length), [*files, file])
    return out


def _verify(directory: str, file: PartFile, data: Buffer) -> None:
    at = file.extents[0].offset
    if file.hash and (actual := file_hash(memoryview(data)[at : at + file.size])) != file.hash:
        raise CorruptDataError(
            f"Checksum of the file {file.name} does not match",
            name="CHECKSUM_DOESNT_MATCH",
            object_key=f"{directory}/{file.extents[0].key}",
            offset=at,
            expected=file.hash,
            found=actual,
        )


def _renamed(key: str, old: str, new: str) -> str:
    return new + key.removeprefix(old)
