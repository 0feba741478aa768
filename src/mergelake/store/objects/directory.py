"""`DirectoryStore`: objects as files below a directory, with the guarantees of an object store.

- A put is atomic: the bytes go to a file in `<root>/.tmp`, are synced, and are renamed to their key.
- A create is atomic and exclusive: the synced temporary file is *linked* to its key. `link(2)` fails if the
  name exists, and a reader never meets half a file. (A rename would overwrite; opening the key with `O_EXCL`
  and writing then would show readers the first half.)
- Both are durable on return: file and directory entries are synced, unless opened with `sync=false`.
- Reads go straight to the file: `pread` for small ranges, a memory map for large ones. A map outlives a
  delete or an overwrite of the key, because files are only ever replaced, never written in place.
- Symbolic links are never followed (`folders`): nothing outside the directory is read, listed, overwritten or deleted.
  The directory itself may be a link; it is resolved when the store is opened.
- A failure before the link has no effect: a full disk, a quota, a read-only file system are errors, never
  `OutcomeUnknown`.
  For operations that free space there is a `reserve`.

`.tmp` lies at the root so that a listing of a table's directory, also by ClickHouse, does not show it.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import (
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnavailableError,
)
from mergelake.core.base.ids import IdSource, RandomIds
from mergelake.store.interface.keys import LIST_PAGE, check_key, directory_prefix
from mergelake.store.interface.protocol import (
    Buffer,
    Counters,
    Lost,
    ObjectMeta,
    OutcomeUnknown,
    PutOutcome,
    Stored,
    StoreSpec,
)
from mergelake.store.interface.ranges import Fetch, coalesce, scatter, truncated
from mergelake.store.metering.meter import Meter
from mergelake.store.objects.folders import (
    LinkError,
    NotAFileError,
    enter,
    entered,
    make_folders,
    open_file,
    remove_empty,
)
from mergelake.store.objects.reserve import RESERVE, Reserve

T = TypeVar("T")

GAP_BYTES = 64 << 10
"""Reading this much more costs less than another system call and seek."""
MAP_BYTES = 8 << 20
"""From this size on a memory map is faster than `pread`, which copies (measured: 0.3 against 0.7 ms at 16 MiB)."""
TEMPORARY_AGE_S = 7 * 86400
"""No write takes this long: an older temporary file was left behind."""
_TEMPORARY = ".tmp"
_OWN = (_TEMPORARY, RESERVE)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOENT}
"""Errors of `link(2)` after which the name was certainly not created."""
_RELEASES_MAX = 8
"""Slices of the reserve for one write, as other writers may take the freed space."""


class DirectoryStore:
    """A `Store` in a local directory, which is made by the first write."""

    def __init__(
        self,
        root: str,
        *,
        gap: int = GAP_BYTES,
        sync: bool = True,
        ids: IdSource | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = str(Path(root).expanduser().absolute())
        self.spec = StoreSpec.of(self.url, {"coalesce_gap": str(gap), "sync": str(sync).lower()})
        self._root = os.path.realpath(self.url)
        self._gap = gap
        self._sync = sync
        self._ids = ids or RandomIds()
        self._clock = clock or SystemClock()
        self._meter = Meter(self.url)
        self._reserve = Reserve(self._root)
        self._swept = False
        if Path(root).exists() and not Path(root).is_dir():
            raise InvalidInputError(f"{root} is a file, not a directory", name="BAD_ARGUMENTS")

    @property
    def counters(self) -> Counters:
        """Requests and bytes so far, counted as a bucket would count them."""
        return self._meter.counters

    # -- reading -------------------------------------------------------------------------------

    @contextmanager
    def _file(self, key: str) -> Iterator[int]:
        *folders, name = _names(key)
        with _translated(self.url, key):
            with entered(self._root, folders) as folder:
                fd = open_file(folder, name)
            try:
                yield fd
            finally:
                os.close(fd)

    def get(self, key: str) -> bytes:
        """The whole object."""
        self._meter.count("get", key)
        with self._file(key) as fd:
            size = os.fstat(fd).st_size
            data = _pread(fd, size, 0)
        if len(data) != size:
            raise truncated(key, 0, size, len(data))
        self._meter.count("get", key, requests=0, received=size)
        return data

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One result for each (start, length), views of one read or map for each coalesced range."""
        fetches = coalesce(ranges, self._gap)
        if not fetches:
            return scatter(ranges, [], [])
        self._meter.count("get", key, requests=len(fetches))
        with self._file(key) as fd:
            bodies = [_read(fd, key, fetch) for fetch in fetches]
        self._meter.count("get", key, requests=0, received=sum(fetch.length for fetch in fetches))
        return scatter(ranges, fetches, bodies)

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object."""
        self._meter.count("head", key)
        with self._file(key) as fd:
            status = os.fstat(fd)
        return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects below `prefix`, those greater than `after` and less than `until`."""
        self._meter.count("list", prefix)
        for number, meta in enumerate(self._walk(directory_prefix(prefix), after, until)):
            if number and number % LIST_PAGE == 0:
                self._meter.count("list", prefix)
            yield meta

    def _walk(self, prefix: str, after: str, until: str) -> Iterator[ObjectMeta]:
        try:
            with _translated(self.url, prefix), entered(self._root, prefix.split("/")[:-1]) as folder:
                yield from self._below(folder, prefix, after, until)
        except NotFoundError:
            return

    def _below(self, folder: int, prefix: str, after: str, until: str) -> Iterator[ObjectMeta]:
        # A directory sorts as "name/", which is the place of its keys. Entries other than files and directories are no
        # objects.
        with os.scandir(folder) as entries:
            names = sorted(
                e.name + "/" if e.is_dir(follow_symlinks=False) else e.name
                for e in entries
                if e.name not in _OWN and (e.is_dir(follow_symlinks=False) or e.is_file(follow_symlinks=False))
            )
        for name in names:
            key = prefix + name
            if until and key >= until:
                return
            if name.endswith("/"):
                if key > after or after.startswith(key):
                    try:
                        inner = enter(folder, name[:-1])
                    except (FileNotFoundError, NotADirectoryError, LinkError):
                        continue  # deleted or replaced meanwhile
                    try:
                        yield from self._below(inner, key, after, until)
                    finally:
                        os.close(inner)
            elif key > after:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    yield ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)

    # -- writing -------------------------------------------------------------------------------

    def put(self, key: str, data: Buffer) -> None:
        """Write (or overwrite) an object, atomically and durably."""
        self._meter.count("put", key, sent=len(data))
        self._with_room(len(data), lambda: self._put(key, [data]))

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write an object from a stream; counted as one put."""
        size = self._put(key, chunks)
        self._meter.count("put", key, sent=size)
        return size

    def _put(self, key: str, chunks: Iterable[Buffer]) -> int:
        *folders, name = _names(key)
        with self._temporary(key, chunks) as (held, temporary, size), _translated(self.url, key, writing=True):

            def move(folder: int) -> None:
                os.rename(temporary, name, src_dir_fd=held, dst_dir_fd=folder)
                self._sync_directory(folder)

            self._within(folders, move)
        return size

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write the object only if the key is free, atomically and durably."""
        self._meter.count("put", key, sent=len(data))
        outcome = self._with_room(len(data), lambda: self._create(key, data))
        self._reserve.keep()
        return outcome

    def _create(self, key: str, data: Buffer) -> PutOutcome:
        *folders, name = _names(key)
        if self._exists(key):  # the common way to lose a race, without a synced temporary file
            return Lost()
        with self._temporary(key, [data]) as (held, temporary, _), _translated(self.url, key, writing=True):

            def move(folder: int) -> PutOutcome:
                try:
                    os.link(temporary, name, src_dir_fd=held, dst_dir_fd=folder, follow_symlinks=False)
                except FileExistsError:
                    # A network file system may repeat a link whose reply was lost, and find its own name.
                    if not _same(os.stat(temporary, dir_fd=held), folder, name):
                        return Lost()
                except OSError as problem:
                    if problem.errno in _NO_LINKS:
                        raise _no_links(self.url) from problem
                    if problem.errno in _REFUSED:
                        raise
                    return OutcomeUnknown(f"'{key}' may or may not have got its name: {problem}")
                try:
                    self._sync_directory(folder)
                except OSError as problem:
                    return OutcomeUnknown(f"the new name could not be synced: {problem}")
                return Stored()

            return self._within(folders, move)

    def _exists(self, key: str) -> bool:
        *folders, name = _names(key)
        try:
            with _translated(self.url, key, writing=True), entered(self._root, folders) as folder:
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except NotFoundError:
            return False
        if stat.S_ISLNK(mode):
            raise _link(self.url, key)
        return True

    def _with_room(self, size: int, write: Callable[[], T]) -> T:
        """Write; on a full disk, again with some of the reserve, if the caller may use it (`freeing`)."""
        for _ in range(_RELEASES_MAX):
            try:
                return write()
            except InvalidInputError as problem:
                if problem.name != "NOT_ENOUGH_SPACE" or not self._reserve.release(size):
                    raise
        return write()

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects and the directories that this leaves empty; a missing object is no error.

        If a key is a symbolic link, the link is deleted, not its target.
        """
        wanted = list(keys)
        for first in range(0, len(wanted), LIST_PAGE):
            self._meter.count("delete", wanted[first])
        parents: set[tuple[str, ...]] = set()
        for key in wanted:
            *folders, name = _names(key)
            with suppress(NotFoundError), _translated(self.url, key), entered(self._root, folders) as folder:
                os.unlink(name, dir_fd=folder)
                parents.add(tuple(folders))
        for directory in sorted(parents, key=len, reverse=True):
            remove_empty(self._root, directory)

    @contextmanager
    def _temporary(self, key: str, chunks: Iterable[Buffer]) -> Iterator[tuple[int, str, int]]:
        """A synced temporary file with those bytes, whose name is removed at the end.

        Yields a descriptor of its directory, its name there and its size. Errors of the file are translated, those of
        `chunks` pass through.
        """
        name, size = self._ids.new_id(), 0
        with _translated(self.url, key):
            folder = self._temporary_folder()
        try:
            with _translated(self.url, key):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                fd = os.open(name, flags, 0o666, dir_fd=folder)
            try:
                try:
                    for chunk in chunks:
                        view = memoryview(chunk).cast("B")
                        size += len(view)
                        with _translated(self.url, key):
                            while view:
                                view = view[os.write(fd, view) :]
                    if self._sync:
                        with _translated(self.url, key):
                            os.fsync(fd)
                finally:
                    with _translated(self.url, key):  # a network file system reports a quota here
                        os.close(fd)
                yield folder, name, size
            finally:
                with suppress(OSError):  # renamed, or left behind until `_sweep`
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def _temporary_folder(self) -> int:
        """A descriptor of the directory for temporary files, which is created if it is missing."""
        try:
            with entered(self._root, ()) as root:
                folder = enter(root, _TEMPORARY)
        except FileNotFoundError:
            make_folders(self._root, [_TEMPORARY], sync=self._sync)
            with entered(self._root, ()) as root:
                folder = enter(root, _TEMPORARY)
        if not self._swept:
            self._swept = True
            self._sweep(folder)
        return folder

    def _sweep(self, folder: int) -> None:
        """Remove temporary files that a crash left behind long ago."""
        oldest_s = self._clock.now_ms() / 1000 - TEMPORARY_AGE_S
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest_s:
                        os.unlink(entry.name, dir_fd=folder)

    def _within(self, folders: Sequence[str], move: Callable[[int], T]) -> T:
        """Run `move` in a directory, which is created if it is missing; a concurrent delete may remove it again."""
        for _ in range(100):
            with suppress(FileNotFoundError), entered(self._root, folders) as folder:
                return move(folder)
            with suppress(FileNotFoundError):
                make_folders(self._root, folders, sync=self._sync)
        with entered(self._root, folders) as folder:
            return move(folder)

    def _sync_directory(self, folder: int) -> None:
        """Make the entries of an open directory durable."""
        if self._sync:
            os.fsync(folder)


def _names(key: str) -> list[str]:
    """The segments of a key."""
    names = check_key(key).split("/")
    if names[0] in _OWN:
        raise InvalidInputError(f"'{key}' is the store's own: {names[0]}", name="BAD_ARGUMENTS")
    return names


def _same(status: os.stat_result, folder: int, name: str) -> bool:
    """Whether a name in an open directory is this very file. (Its link count may be a backup's.)"""
    try:
        return os.path.samestat(status, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _pread(fd: int, length: int, start: int) -> bytes:
    """Up to `length` bytes from `start`; fewer only at the end of the file."""
    data = os.pread(fd, length, start)
    if len(data) == length or not data:
        return data
    pieces = [data]  # one call moves at most 2 GiB
    left = length - len(data)
    while left and (data := os.pread(fd, left, start + length - left)):
        pieces.append(data)
        left -= len(data)
    return b"".join(pieces)


def _read(fd: int, key: str, fetch: Fetch) -> Buffer:
    if fetch.length < MAP_BYTES:
        data = _pread(fd, fetch.length, fetch.start)
        if len(data) != fetch.length:
            raise truncated(key, fetch.start, fetch.length, len(data))
        return data
    size = os.fstat(fd).st_size
    if size < fetch.end:  # a map beyond the end of the file would kill the process on access
        raise truncated(key, fetch.start, fetch.length, size - fetch.start)
    aligned = fetch.start - fetch.start % mmap.ALLOCATIONGRANULARITY
    mapped = mmap.mmap(fd, fetch.end - aligned, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ, offset=aligned)
    return memoryview(mapped)[fetch.start - aligned :]


def _no_links(url: str) -> MergelakeError:
    return InvalidInputError(
        f"the file system of {url} has no hard links, so no commit could be exclusive there",
        name="SUPPORT_IS_DISABLED",
        hint="Use a directory on a POSIX file system, or a bucket",
    )


def _link(url: str, key: str) -> MergelakeError:
    return CorruptDataError(
        f"a symbolic link lies in {url}, and links are never followed there",
        name="CANNOT_OPEN_FILE",
        object_key=key,
        hint="Put the file or directory itself in its place, or mount it there",
    )


@contextmanager
def _translated(url: str, key: str, writing: bool = False) -> Iterator[None]:
    """Translate errors of the operating system to ours."""
    try:
        yield
    except OSError as problem:
        raise _translation(url, key, problem, writing) from problem


def _translation(url: str, key: str, problem: OSError, writing: bool) -> MergelakeError:
    if isinstance(problem, LinkError):
        return _link(url, key)
    if isinstance(problem, NotAFileError):
        message = f"{problem.strerror} lies in {url} in place of a file"
        return CorruptDataError(message, name="CANNOT_OPEN_FILE", object_key=key)
    match problem.errno:
        case errno.ENOTDIR | errno.EISDIR if writing:
            message = f"'{key}' cannot be an object in {url}: it is a directory, or lies below an object"
            return InvalidInputError(message, name="BAD_ARGUMENTS")
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            return NotFoundError(f"there is no object '{key}' in {url}", name="FILE_DOESNT_EXIST")
        case errno.EACCES | errno.EPERM:
            way_out = "Give this user access to the directory, or open another one"
            message = f"no permission for '{key}' in {url}: {problem.strerror}"
            return InvalidInputError(message, name="CANNOT_OPEN_FILE", hint=way_out)
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            way_out = "Make room there; DROP TABLE, TRUNCATE and mergelake gc work on a full disk too"
            message = f"'{key}' could not be written to {url}: {problem.strerror}"
            return InvalidInputError(message, name="NOT_ENOUGH_SPACE", hint=way_out)
        case errno.EROFS:
            way_out = "It can be read; to write, mount the file system for writing"
            message = f"'{key}' could not be written to {url}: {problem.strerror}"
            return InvalidInputError(message, name="CANNOT_OPEN_FILE", hint=way_out)
        case errno.ENAMETOOLONG:
            message = f"'{key}' cannot be an object in {url}: {problem.strerror}"
            return InvalidInputError(message, name="BAD_ARGUMENTS")
        case _:
            return UnavailableError(f"{url}: '{key}' failed: {problem}", name="CANNOT_OPEN_FILE")
