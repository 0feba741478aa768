"""Attaching a table over a set of parts in the embedded ClickHouse.

A disk with `metadata_type = local` stores a small metadata text for each file of a part, which names the objects that
hold its bytes. So a set of parts becomes a directory of such texts, and a table over exactly these parts:

::

    <folder of the engine>/mergelake-attached/<disk>/store/<uuid[:3]>/<uuid>/<part name>/<file>

There are three disks, which ClickHouse never forgets. `files` refers to the objects of a store in a local directory. A
text names whole objects, so the files of a packed part, which share an object, are copied into `copies/<part id>/`. So
are those of small parts in a bucket, because a request to the endpoint costs more than a file. `served` refers to files
of our `endpoint`, for any store and any location in its objects. `kept` is the same for a store with a cache directory:
ClickHouse caches what it read in its own files, up to `KEPT_BYTES`, which is faster than requests. All disks are
read-only: nothing in the bucket is written, renamed or removed.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4  # noqa: TID251  a name within this process

from mergelake.core.base.cancel import current
from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.base.text import quote_string
from mergelake.jobs.publish.definition import definition
from mergelake.parts.read.ahead import SMALL_BYTES
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.layout import layout
from mergelake.query.attach.endpoint import Endpoint
from mergelake.query.attach.part_files import PartFiles
from mergelake.query.attach.readers import READERS
from mergelake.query.embedded import engine
from mergelake.query.part_set import PartSet
from mergelake.store.cache.cached import CachedStore
from mergelake.store.interface.protocol import Buffer
from mergelake.store.metering.meter import counted, counting

DATABASE = "_mergelake"
"""Database of the attached tables in the embedded ClickHouse."""
COPIED_MAX = 64 << 20
"""Maximum bytes of the packed parts of a set whose files are copied; a larger set is served by the endpoint."""
SMALL_MIN = 8
"""Number of small parts of a set in a bucket from which they are attached as a separate set."""
KEPT_BYTES = 2 << 30
"""Maximum bytes of ClickHouse's cache, in its temporary folder, which is removed with the process."""
_KEPT_SHARE = 16
"""The cache takes at most 1 in `_KEPT_SHARE` of the local disk; ClickHouse refuses one larger than the disk."""
_METADATA_VERSION = 3
_FORMAT_VERSION = "format_version.txt"
_FILES, _SERVED, _KEPT = "files", "served", "kept"
_lock = threading.Lock()
_endpoints: dict[int, Endpoint] = {}
"""Process id -> its endpoint, started on demand."""


class NotAttachedError(Exception):
    """ClickHouse refuses the parts; a scan raises an error that explains the problem."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A table of the embedded ClickHouse over a set of parts."""

    name: str
    """Name of the table, with its database."""
    parts: PartSet
    folder: Path
    """Directory of the metadata texts."""
    served: str = ""
    """Name under which the endpoint serves its files; empty if it does not."""


def attach(parts: PartSet) -> Attached:
    """Write the metadata texts and attach the table. In a local directory only objects of packed parts are read.

    Takes about half a millisecond of CPU a part. Raises NotAttachedError if ClickHouse refuses the parts.
    """
    uuid = str(uuid4())
    served = uuid if is_served(parts) else ""
    disk = _FILES if not served else _KEPT if isinstance(parts.store, CachedStore) else _SERVED
    folder = _root() / disk / "store" / uuid[:3] / uuid
    name, serving = f"{DATABASE}.t{uuid.replace('-', '')}", False
    try:
        folder.mkdir(parents=True)
        if disk == _KEPT:
            _close_to_others()
        if served:
            files = PartFiles(parts.store, parts.directory, parts.parts, parts.caches)
            files.prefetch()
            _serve(parts, files, uuid)
            serving = True
            _lay_out_served(parts, folder, uuid)
        else:
            _lay_out_files(parts, folder)
        try:
            engine.run(definition(f"ATTACH TABLE {name} UUID '{uuid}'", parts.schema, [f"disk = {_disk_text(disk)}"]))
        except MergelakeError as refused:
            if (cancel := current()) is not None:
                cancel.check()
            raise NotAttachedError(f"ClickHouse does not attach it: {refused}") from refused
        _check_whole(name, parts)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if serving:
            _serve_no_more(parts, uuid)
        raise
    return Attached(name, parts, folder, served)


def forget(attached: Attached) -> None:
    """Detach a table and remove its metadata texts, but not the copies."""
    engine.forget_table(attached.name)
    if attached.served:
        _serve_no_more(attached.parts, attached.served)
    shutil.rmtree(attached.folder, ignore_errors=True)


def forget_copies(part_ids: Iterable[str]) -> None:
    """Remove the copied files of these parts."""
    for part_id in part_ids:
        shutil.rmtree(_copies(part_id), ignore_errors=True)


def is_served(parts: PartSet) -> bool:
    """Whether ClickHouse reads the set from the endpoint, because files that it cannot name are too large to copy."""
    if is_remote(parts.store) and any(each.bytes_on_disk > SMALL_BYTES for each in parts.unnamed):
        return True
    return sum(each.bytes_on_disk for each in parts.unnamed) > COPIED_MAX


def endpoint() -> Endpoint:
    """The endpoint of this process."""
    with _lock:
        if os.getpid() not in _endpoints:
            _endpoints[os.getpid()] = Endpoint()
        return _endpoints[os.getpid()]


@dataclass(frozen=True, slots=True)
class _Part:
    """The files of one part, served under the same name for all sets, because ClickHouse caches them by name."""

    files: PartFiles
    name: str

    def size(self, path: str) -> int:
        with counting(READERS.first(self.files.directory)):
            return self.files.size(f"{self.name}/{path}")

    def pieces(self, path: str, start: int, end: int) -> Iterator[Buffer]:
        return counted(READERS.first(self.files.directory), self.files.pieces(f"{self.name}/{path}", start, end))


class _FormatVersion:
    """The file `format_version.txt`, which ClickHouse reads first for every table."""

    def size(self, path: str) -> int:
        if path != _FORMAT_VERSION:
            raise NotFoundError(f"There is no file {path} in a set")
        return 1

    def pieces(self, path: str, start: int, end: int) -> Iterator[Buffer]:
        return iter([b"1"[start:end]])


def _serve(parts: PartSet, files: PartFiles, uuid: str) -> None:
    door = endpoint()
    door.add(uuid, _FormatVersion())
    for part in parts.parts:
        door.add(part.manifest.id, _Part(files, part.name))


def _serve_no_more(parts: PartSet, uuid: str) -> None:
    for name in (uuid, *(part.manifest.id for part in parts.parts)):
        endpoint().remove(name)


def _lay_out_served(parts: PartSet, folder: Path, uuid: str) -> None:
    (folder / _FORMAT_VERSION).write_text(_text([(f"{uuid}/{_FORMAT_VERSION}", 1)]))
    for part in parts.parts:
        for name, file in part.manifest.file_table().items():
            _place(folder / part.name / name).write_text(_text([(f"{part.manifest.id}/{name}", file.size)]))


def sets(parts: PartSet) -> list[PartSet]:
    """The sets to attach for `parts`: if it is served and has many small parts, these are a separate set."""
    if not is_served(parts) or len(parts.small) < SMALL_MIN or len(parts.small) == len(parts.parts):
        return [parts]
    small = parts.only(parts.small)
    return [parts] if is_served(small) else [parts.only(parts.ids - parts.small), small]


def copied(parts: PartSet) -> tuple[str, ...]:
    """Ids of the parts whose files are copied to attach a set."""
    return () if is_served(parts) else tuple(each.id for each in parts.unnamed)


def _lay_out_files(parts: PartSet, folder: Path) -> None:
    root, url, copies_of = _root(), parts.store.url, frozenset(copied(parts))
    packed = [part for part in parts.parts if part.manifest.id in copies_of]
    bodies = PartFiles(parts.store, parts.directory, packed, parts.caches)
    if is_remote(parts.store):
        bodies.prefetch()
    (folder / _FORMAT_VERSION).write_text(_text([(str(root / _FORMAT_VERSION)[1:], 1)]))
    for part in parts.parts:
        part_id = part.manifest.id
        copies = _copy(bodies, part.name, part_id) if part_id in copies_of else None
        for name, places in layout(parts.directory, part.manifest).files.items():
            if copies is None:
                objects = [(f"{url}/{place.key}"[1:], place.length) for place in places]
            else:
                objects = [(str(copies / quote(name, safe=""))[1:], sum(place.length for place in places))]
            _place(folder / part.name / name).write_text(_text(objects))


def _place(path: Path) -> Path:
    """`path`, after creating its directory: projections have their own."""
    path.parent.mkdir(exist_ok=True, parents=True)
    return path


def _copy(bodies: PartFiles, part_name: str, part_id: str) -> Path:
    """Directory with copies of the files of a part; copies them unless another set has. One request if it is packed."""
    folder = _copies(part_id)
    making = folder.with_name(f"{part_id}.{uuid4().hex}")
    if folder.exists():
        return folder
    making.mkdir(parents=True)
    try:
        for name, body in bodies.whole(part_name).items():
            (making / quote(name, safe="")).write_bytes(body)
        return making.rename(folder)
    except (CorruptDataError, NotFoundError) as damage:
        raise NotAttachedError(str(damage)) from damage
    except OSError:
        if folder.exists():
            return folder  # another thread has copied it
        raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _copies(part_id: str) -> Path:
    return _root() / "copies" / part_id


def _check_whole(name: str, parts: PartSet) -> None:
    """Check the number of parts and rows: ClickHouse only logs parts that it cannot load. Raises NotAttachedError."""
    database, _, table = name.partition(".")
    taken = engine.run(
        f"SELECT count(), sum(rows) FROM system.parts WHERE database = '{database}' AND table = '{table}' AND active"
    ).table()
    actual = tuple(column[0].as_py() for column in taken.columns)
    if actual != (len(parts.parts), parts.rows):
        engine.forget_table(name)
        raise NotAttachedError(f"ClickHouse takes {actual[0]} of {len(parts.parts)} parts")


def _disk_text(disk: str) -> str:
    place = f"metadata_type = local, readonly = 1, metadata_path = {quote_string(f'{_root() / disk}/')}"
    if disk == _FILES:
        reached = "object_storage_type = local, path = '/'"
    else:
        reached = f"object_storage_type = s3, endpoint = {quote_string(endpoint().url)}, no_sign_request = 1"
        reached += ", access_key_id = '', secret_access_key = '', region = 'local', s3_retry_attempts = 0"
    text = f"disk(type = object_storage, {reached}, {place}, skip_access_check = 1)"
    if disk != _KEPT:
        return text
    status = os.statvfs(_root())
    size = min(KEPT_BYTES, status.f_blocks * status.f_frsize // _KEPT_SHARE)
    exact = "boundary_alignment = 1, background_download_threads = 0"  # caches exactly the requested ranges
    return f"disk(type = cache, path = 'mergelake/', max_size = {size}, {exact}, disk = {text})"


def _root() -> Path:
    """The folder of the disks; creates it with `format_version.txt`."""
    folder = engine.folder()
    assert folder is not None
    root = folder / "mergelake-attached"
    if not (root / _FORMAT_VERSION).exists():
        root.mkdir(mode=0o700, exist_ok=True)
        (root / _FORMAT_VERSION).write_text("1")
    return root


def _close_to_others() -> None:
    """Restrict the folder of ClickHouse's caches, which it makes readable for all users, to this user."""
    folder = _root().parent / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)


def _text(objects: Iterable[tuple[str, int]]) -> str:
    """The metadata text of a file that is the concatenation of these objects, (key, bytes)."""
    listed = list(objects)
    lines = [f"{_METADATA_VERSION}", f"{len(listed)}\t{sum(size for _, size in listed)}"]
    lines += [f"{size}\t{key}" for key, size in listed]
    return "\n".join((*lines, "0", "1", ""))
