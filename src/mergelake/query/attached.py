"""Snapshots that the embedded ClickHouse reads by itself: attached, read-only, without a copy.

A disk with `metadata_type = local` keeps a small text file for each file of a part, which names the objects that hold
its bytes. So a snapshot becomes a directory of such texts, and a table over exactly these parts:

::

    <folder of the engine>/mergelake-attached/store/<uuid[:3]>/<uuid>/<part name>/<file>

A text names whole objects. Of a packed part, whose files lie within one, they are copied into `copies/<part id>/`.

There is one disk (ClickHouse never forgets one), and a directory and a table for each set of parts. These are kept
until `SETS_MAX` others have been asked for, and go with the folder of the engine. The disk is read-only: nothing in the
bucket is written, renamed or removed from here.

`why_not` says what cannot be laid out like that, and is scanned.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4  # noqa: TID251  a name within this process

from cachetools import LRUCache

from mergelake.core.cancel import current
from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.manifest import PartFile, PartManifest
from mergelake.core.text import quote_string
from mergelake.parts.fetch import fetch_whole, object_key, verified
from mergelake.query import engine
from mergelake.query.access import check_expression, words
from mergelake.store.protocol import Store
from mergelake.table.attach import definition
from mergelake.table.handle import Snapshot

DATABASE = "_mergelake"
"""Where attached tables stand, in the embedded ClickHouse."""
SETS_MAX = 16
"""Sets of parts that are kept attached."""
PARTS_MAX = 300
"""Parts of a set: each costs about half a millisecond when it is attached."""
ROWS_MIN = 100_000
"""Rows of a set below which a scan is as fast."""
SCANNED_FIRST = 1
"""Statements that scan a set before it is attached: the first may be the only one, where a table changes often."""
COPIED_MAX = 64 << 20
"""Bytes of packed parts of a set, whose files are copied."""
_KEPT_MAX = 512
_METADATA_VERSION = 3
_FORMAT_VERSION = "format_version.txt"
_logger = logging.getLogger("mergelake.query")


DAMAGE = words(
    "attempt_to_read_after_eof cannot_decompress cannot_open_file cannot_read_all_data cannot_stat",
    "cannot_read_from_file_descriptor checksum_doesnt_match corrupted_data file_doesnt_exist",
    "too_large_size_compressed unexpected_end_of_file unknown_codec unknown_compression_method",
)
"""Errors that may come of damaged or missing objects: a scan tells which, and where."""


class NotAttachedError(Exception):
    """ClickHouse does not take the parts as they are; a scan tells what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A table of the embedded ClickHouse over a set of parts."""

    name: str
    """With its database."""
    folder: Path
    """Where the texts lie that name its objects."""
    copied: tuple[str, ...]
    """Ids of parts whose files were copied."""


class AttachedSets:
    """What is attached in one process; the sets that were used least recently go. Safe for threads."""

    def __init__(self, sets_max: int = SETS_MAX) -> None:
        self._sets_max = sets_max
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, Attached] = OrderedDict()
        self._users: Counter[str] = Counter()
        self._copies: Counter[str] = Counter()  # id of a part -> sets that use the copies of its files
        self._asked: LRUCache[Hashable, int] = LRUCache(_KEPT_MAX)  # how many statements have read it
        self._refused: LRUCache[Hashable, str] = LRUCache(_KEPT_MAX)  # why ClickHouse did not take it
        self._pid = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._held)

    def why_not(self, store: Store, directory: str, snapshot: Snapshot, *, count: bool = False) -> str:
        """Why ClickHouse does not read a snapshot by itself, for now or at all; empty if it does.

        `count`: a statement is about to read it.
        """
        told = why_not(store, directory, snapshot)
        if told:
            return told
        key = _key(store, directory, snapshot)
        with self._lock:
            before = self._asked.get(key, 0)
            if key in self._refused or key in self._held or before >= SCANNED_FIRST:
                return self._refused.get(key, "")
            self._asked[key] = before + count
        return "the first statement on this version"

    @contextmanager
    def using(self, store: Store, directory: str, snapshot: Snapshot) -> Iterator[str]:
        """The name of the table over a snapshot, which stays as long as it is needed; attached now if it was not."""
        key = _key(store, directory, snapshot)
        with self._lock:
            self._begin()
            held = self._held.get(key)
            if held is None:
                try:
                    held = self._held[key] = _attach(store, directory, snapshot)
                except (NotAttachedError, OSError) as why:  # without room for the texts, too
                    _logger.warning("a snapshot of %s is scanned: %s", directory, why)
                    self._refused[key] = str(why)
                    raise NotAttachedError(str(why)) from why
                self._copies.update(held.copied)
            self._held.move_to_end(key)
            self._users[held.name] += 1
        try:
            yield held.name
        finally:
            with self._lock:
                self._users[held.name] -= 1
                self._trim()

    def _begin(self) -> None:
        """Of a forked process nothing is attached."""
        if self._pid != os.getpid():
            for held in (self._held, self._users, self._copies, self._asked, self._refused):
                held.clear()
            engine.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE} ENGINE = Atomic")
            self._pid = os.getpid()

    def _trim(self) -> None:
        for key, held in list(self._held.items()):
            if len(self._held) > self._sets_max and not self._users[held.name]:
                del self._held[key], self._users[held.name]
                engine.forget_table(held.name)
                self._copies.subtract(held.copied)
                gone = [part_id for part_id in held.copied if not self._copies[part_id]]
                for folder in (held.folder, *(_copies(part_id) for part_id in gone)):
                    shutil.rmtree(folder, ignore_errors=True)


SETS = AttachedSets()
"""Those of this process."""


def _key(store: Store, directory: str, snapshot: Snapshot) -> Hashable:
    """What a set of parts is known by."""
    what = store.url, directory, snapshot.schema.version

    def made() -> tuple[str, ...]:
        return tuple(part.manifest.id for part in snapshot.parts)

    return what, snapshot.partitions.remembered(("attached", "ids"), made)


def why_not(store: Store, directory: str, snapshot: Snapshot) -> str:
    """Why ClickHouse cannot read a snapshot by itself; empty if it can."""
    if "://" in store.url:
        return "the store is no directory"
    if not store.url.isprintable() or "\\" in store.url:
        return "its path has characters that the texts of a disk escape"
    if snapshot.settings.integer("max_partitions_to_read") > 0:
        return "max_partitions_to_read is set"
    if snapshot.rows < ROWS_MIN:
        return f"it has fewer than {ROWS_MIN} rows"
    if snapshot.partitions.totals.parts > PARTS_MAX:
        return f"it has {snapshot.partitions.totals.parts} parts, more than {PARTS_MAX}"
    if engine.folder() is None:
        return "ClickHouse was started with a path by somebody else"

    def judged() -> str:
        manifests = (part.manifest for part in snapshot.parts)
        copied = sum(each.bytes_on_disk for each in manifests if not _lies_apart(each, each.file_table()))
        too_much = f"its packed parts have {copied >> 20} MiB, more than {COPIED_MAX >> 20}"
        return _of_schemas(snapshot) or (too_much if copied > COPIED_MAX else "")

    return snapshot.partitions.remembered((directory, snapshot.schema.version, "attached"), judged)


def _lies_apart(manifest: PartManifest, files: Mapping[str, PartFile]) -> bool:
    """Whether each file of a part is whole objects: a file that begins within one cannot be named."""
    return manifest.storage == "full" and not any(e.offset for file in files.values() for e in file.extents)


def _of_schemas(snapshot: Snapshot) -> str:
    """What a name means may have changed since parts were written: ClickHouse knows columns by their names."""
    newest = snapshot.schema
    try:
        for column in newest.columns:
            check_expression(column.default)
    except MergelakeError:
        return "a default reaches outside of its columns"
    today = {(column.name, column.id, column.type) for column in newest.columns}
    names, ids = {name for name, _, _ in today}, {column_id for _, column_id, _ in today}
    for version in {part.manifest.schema_version for part in snapshot.parts}:
        for column in snapshot.schemas[version].columns if version in snapshot.schemas else newest.columns:
            same = (column.name, column.id, column.type) in today
            if not same and (column.name in names or column.id in ids):
                return f"column {column.name} was another one when parts were written"
    return ""


def _attach(store: Store, directory: str, snapshot: Snapshot) -> Attached:
    """Lay the texts out, and attach the table. No object is read but packed parts."""
    root, uuid = _root(), str(uuid4())
    folder = root / "store" / uuid[:3] / uuid
    try:
        folder.mkdir(parents=True)
        (folder / "format_version.txt").write_text(_text([(str(root / _FORMAT_VERSION), 1)]))
        copied = []
        for part in snapshot.parts:
            inside, files = folder / part.name, part.manifest.file_table()
            inside.mkdir()
            copies = None
            if not _lies_apart(part.manifest, files):
                copies = _copy(store, directory, part.manifest.id, files)
                copied.append(part.manifest.id)
            for name, file in files.items():
                if copies is None:
                    objects = [(f"{store.url}/{object_key(directory, e)}", e.length) for e in file.extents]
                else:
                    objects = [(str(copies / name), file.size)]
                (inside / name).write_text(_text(objects))
        name = f"{DATABASE}.t{uuid.replace('-', '')}"
        disk = (
            "disk(type = object_storage, object_storage_type = local, metadata_type = local, readonly = 1, path = '/', "
            f"metadata_path = {quote_string(f'{root}/')}, skip_access_check = 1)"
        )
        _ask(definition(f"ATTACH TABLE {name} UUID '{uuid}'", snapshot.schema, [f"disk = {disk}"]))
        _check_whole(name, snapshot)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Attached(name, folder, tuple(copied))


def _ask(statement: str) -> None:
    """NotAttachedError where ClickHouse refuses."""
    try:
        engine.run(statement)
    except MergelakeError as refused:
        if (cancel := current()) is not None:
            cancel.check()
        raise NotAttachedError(f"ClickHouse does not attach it: {refused}") from refused


def _copy(store: Store, directory: str, part_id: str, files: Mapping[str, PartFile]) -> Path:
    """Where the files of a packed part are laid out; now, unless another set has done so: one request."""
    folder = _copies(part_id)
    if folder.exists():
        return folder
    making = folder.with_name(f"{part_id}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        bodies = fetch_whole(store, directory, files, list(files))
        for file, body in zip(files.values(), bodies, strict=True):
            # ClickHouse looks at the checksums of frames, and trusts indexes and marks.
            (making / file.name).write_bytes(
                body if file.name.endswith(".bin") else verified(directory, file, bytes(body))
            )
    except (CorruptDataError, NotFoundError) as damage:
        raise NotAttachedError(str(damage)) from damage
    return making.rename(folder)


def _copies(part_id: str) -> Path:
    return _root() / "copies" / part_id


def _check_whole(name: str, snapshot: Snapshot) -> None:
    """ClickHouse leaves out a part that it cannot load, and says so in its log only."""
    database, _, table = name.partition(".")
    taken = engine.run(
        f"SELECT count(), sum(rows) FROM system.parts WHERE database = '{database}' AND table = '{table}' AND active"
    ).table()
    found = tuple(column[0].as_py() for column in taken.columns)
    if found != (len(snapshot.parts), snapshot.rows):
        engine.forget_table(name)
        raise NotAttachedError(f"ClickHouse takes {found[0]} of {len(snapshot.parts)} parts")


def _root() -> Path:
    """The folder of the disk; with it a file whose bytes every table begins with."""
    folder = engine.folder()
    assert folder is not None
    root = folder / "mergelake-attached"
    if not (root / _FORMAT_VERSION).exists():
        root.mkdir(mode=0o700, exist_ok=True)
        (root / _FORMAT_VERSION).write_text("1")
    return root


def _text(objects: Sequence[tuple[str, int]]) -> str:
    """What a disk of `metadata_type = local` keeps for a file that is these objects, (path, bytes), in this order."""
    lines = [f"{_METADATA_VERSION}", f"{len(objects)}\t{sum(size for _, size in objects)}"]
    lines += [f"{size}\t{path[1:]}" for path, size in objects]
    return "\n".join((*lines, "0", "1", ""))
