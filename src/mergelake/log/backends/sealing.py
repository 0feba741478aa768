"""Entries on their way from ZooKeeper to the bucket: sealed, then trimmed.

The bucket alone must be enough to read the log, and to take it over. Each process that commits copies missing entries
in the background; a process that writes a checkpoint copies before. Many entries go into one object (`batches`), so one
request copies up to 64 of them, and copying keeps up with commits that are thirty times faster than a request. A commit
waits for it only if `BACKLOG_MAX` entries are not copied.

Two rules make this safe for any number of copiers, of which any may stall, die or come back late:

1. an object that begins at v is created, if absent, only after the object before it is known to end at v-1, and all
   entries up to there to have **the same bytes** as here;
2. a node is removed only when its entry is sealed and there is a checkpoint at it or later.

Why the first is enough, although an object may hold many entries: objects are immutable, so their creation determines
where they end and where the next one begins: there is one chain, whichever process extends it. Of the copiers and
takeovers that try to create an object at v, create-if-absent lets one win. A slower copier reads the object that is
there. If it begins with the same entries, a copier of the same tree was faster, and this one goes on where the object
ends. Otherwise there are commits of the bucket (a forced takeover): then no entry of this tree may ever follow v, and
none does, as by rule 1 every copier has to get past v first. So the bucket always holds a complete beginning of the
log, a takeover that finds a free position at the end of the chain has all sealed entries, and there is never a gap.

`progress` is a version up to which all this is known to hold. It never decreases, and may lag.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mergelake.core.base.errors import CorruptDataError, FencedError, MergelakeError, UnavailableError
from mergelake.core.base.json_load import loads
from mergelake.log.backends import batches
from mergelake.log.backends.backend import ObjectBackend
from mergelake.log.backends.batches import BATCH_MAX
from mergelake.log.backends.keeper import Create, Delete, Keeper, KeeperNode, Refused, SetData
from mergelake.store.interface.protocol import OutcomeUnknown, Stored

FETCH = 64
"""Nodes that are removed at once."""
FORGET_TRIES = 5
"""Attempts to remove a tree: a copier that has just begun may create a node in it."""
LINGER_S, LINGER_MAX_S = 0.1, 0.8
"""Seconds that a copier waits for more entries, to copy many at once; longer while another process copies."""
ROUND = 16
"""A copier leaves the entries after the last multiple of this for the next batch, if it has others."""
TRIES_MAX = 6
"""Attempts to copy to a bucket that gives no clear answer."""
_logger = logging.getLogger("mergelake.log")


@dataclass(frozen=True, slots=True)
class Tree:
    """The paths of one log."""

    path: str

    def entry(self, version: int) -> str:
        """An entry's node."""
        return f"{self.path}/log/{version:020d}"

    @property
    def log(self) -> str:
        """Parent of the entries."""
        return f"{self.path}/log"

    @property
    def tail(self) -> str:
        """The node that counts the entries."""
        return f"{self.path}/tail"

    @property
    def end(self) -> str:
        """The fence."""
        return f"{self.path}/end"

    @property
    def progress(self) -> str:
        """The versions up to which entries are sealed and trimmed."""
        return f"{self.path}/progress"

    @property
    def intake(self) -> str:
        """Parent of the members that writers leave for the next entry."""
        return f"{self.path}/intake"

    @property
    def sealer(self) -> str:
        """The node of the process that copies now."""
        return f"{self.path}/sealer"


class Sealer:
    """Copies the entries of one log; thread-safe."""

    def __init__(
        self,
        keeper: Keeper,
        tree: Tree,
        since: int,
        bucket: ObjectBackend,
        body: Callable[[int, KeeperNode | None], bytes | None],
    ) -> None:
        """`body` returns an entry's bytes for its node, None if it is missing."""
        self._keeper = keeper
        self._tree = tree
        self._since = since
        self._bucket = bucket
        self._body = body
        self._lock = threading.Lock()
        self._background = threading.Lock()
        self._wanted = False
        self._linger_s = LINGER_S
        self.sealed = since
        """The version up to which all entries are known here to be in the bucket."""

    def nudge(self) -> None:
        """Copy new entries in the background, by a short thread that the process joins at its end."""
        self._wanted = True
        if self._background.acquire(blocking=False):
            try:
                threading.Thread(target=self._drain, name="mergelake-seal").start()
            except RuntimeError:  # the interpreter is on its way out: the next writer copies
                self._background.release()

    def seal(self, version: int) -> None:
        """Copy all entries up to `version` that are not in the bucket yet.

        Raises FencedError if the log was taken over and goes on in the bucket without these entries.
        """
        with self._lock:
            try:
                sealed = self._progress()[0]
            except CorruptDataError:
                if self._bucket.read(version) is None:
                    raise
                return  # the log was sealed, has moved on, and its tree was removed
            while sealed < version:
                whole = sealed - sealed % BATCH_MAX + BATCH_MAX  # where the longest batch ends
                sealed = self._advance("sealed", self._copy(sealed + 1, min(whole, version)))
            self.sealed = sealed

    def end(self, last: int | None = None) -> int:
        """End the log here: no append succeeds any more, ever. Returns the last version; may be repeated.

        `last`: entries after it do not count, as the log was taken over without them.
        Raises UnavailableError if ZooKeeper does not answer: the outcome is unknown.
        """
        while True:
            tail, end = self._keeper.get_many([self._tree.tail, self._tree.end])
            if end is not None:
                return int(end.data)
            if tail is None:
                raise missing_tree(self._keeper, self._tree, self._bucket.prefix)
            version = int(tail.data or self._since) if last is None else last
            try:
                self._keeper.commit(Create(self._tree.end, b"%d" % version), Delete(self._tree.tail, tail.version))
            except Refused:
                continue  # an entry was appended in between, or another process ended the log

    def forget(self) -> None:
        """Remove the tree of a log that has ended here and is sealed, as far as possible.

        A process that still uses the tree finds it missing, reads the bucket, and finds the `MoveLog` there.
        """
        try:
            self.end()
            for left in reversed(range(FORGET_TRIES)):
                try:
                    self._remove_tree()
                    break
                except Refused:  # a copier created its node in between, which happens once
                    if not left or self._keeper.get(self._tree.path) is None:
                        raise
        except (MergelakeError, Refused) as problem:
            _logger.warning("%s is left in ZooKeeper, and nobody needs it: %s", self._tree.path, problem)

    def _remove_tree(self) -> None:
        for folder in (self._tree.log, self._tree.intake):
            paths = [f"{folder}/{name}" for name in sorted(self._keeper.children(folder))]
            for start in range(0, len(paths), FETCH):
                self._keeper.commit(*map(Delete, paths[start : start + FETCH]))
        with suppress(Refused):
            self._keeper.commit(Delete(self._tree.sealer))
        rest = (self._tree.log, self._tree.intake, self._tree.progress, self._tree.end, self._tree.path)
        self._keeper.commit(*map(Delete, rest))

    def trim(self, version: int) -> None:
        """Remove the nodes of sealed entries up to `version`, and the large objects that they name."""
        with self._lock:
            if self._keeper.get(self._tree.progress) is None:
                return  # the whole tree was removed
            sealed, trimmed, _ = self._progress()
            end, large = min(version, sealed), False
            while trimmed < end:
                last = min(trimmed + FETCH, end)
                large |= self._remove(trimmed + 1, last)
                trimmed = self._advance("trimmed", last)
            if large:
                # Also those of writers that lost their race: these positions are taken.
                folder, bound = self._bucket.large_key(0, "").rpartition("/")[0], self._bucket.large_key(end + 1, "")
                self._bucket.store.delete([item.key for item in self._bucket.store.list(folder) if item.key < bound])

    def _drain(self) -> None:
        try:
            while self._wanted:
                self._bucket.clock.sleep_s(self._linger_s)
                self._wanted = False
                self._round()
        except (MergelakeError, Refused) as problem:
            self._wanted = False
            _logger.warning("entries of %s wait in ZooKeeper to be copied: %s", self._bucket.prefix, problem)
        finally:
            self._background.release()
        if self._wanted:
            self.nudge()

    def _round(self) -> None:
        """Copy the waiting entries, unless another process copies now."""
        if not self._claim():
            # With many writers each tries more rarely, as each tries again after its next commit.
            self._linger_s = min(2 * self._linger_s, LINGER_MAX_S)
            return
        self._linger_s = LINGER_S
        try:
            last = self._last()
            whole = last - last % ROUND
            self.seal(whole if whole > self.sealed else last)
        finally:
            with suppress(Refused):  # it went with a session that expired
                self._keeper.commit(Delete(self._tree.sealer))
        self._wanted |= self._last() > self.sealed

    def _claim(self) -> bool:
        """Become the process that copies now; False if there is another one."""
        if self._keeper.get(self._tree.sealer) is not None:
            return False  # a read is cheaper than a transaction that is refused
        try:
            self._keeper.commit(Create(self._tree.sealer, ephemeral=True))
        except Refused:
            return False
        return True

    def _last(self) -> int:
        tail = self._keeper.get(self._tree.tail)
        return int(tail.data or self._since) if tail else self._since

    def _copy(self, first: int, last: int) -> int:
        """Create objects with these entries, in order; returns where the chain is known to end then."""
        nodes = self._keeper.get_many([self._tree.entry(version) for version in range(first, last + 1)])
        entries: list[bytes] = []
        gone = False
        for version, node in enumerate(nodes, first):
            data = self._body(version, node)
            if data is None:
                gone = True
                break
            entries.append(data)
        end = first - 1
        while end - first + 1 < len(entries):
            rest = entries[end - first + 1 :]
            count = batches.longest(end + 1, [len(data) for data in rest])
            end = self._put(end + 1, rest[:count])
        if not gone or end >= last:
            return end
        # The missing entries were trimmed, so they were sealed before, by another copier.
        sealed = self._progress()[0]
        if sealed < first + len(entries):
            key = self._tree.entry(first + len(entries))
            raise CorruptDataError("An entry that is not sealed is gone", object_key=key)
        return sealed

    def _put(self, first: int, entries: Sequence[bytes]) -> int:
        """Create the object at `first`, or check that the existing one begins like it; returns its last version."""
        problem: Exception = UnavailableError(f"It is not known whether entry {first} was copied to the bucket")
        for _ in range(TRIES_MAX):
            outcome = self._bucket.create(first, batches.encode(entries))
            if isinstance(outcome, OutcomeUnknown):
                continue
            try:
                existing = entries if isinstance(outcome, Stored) else self._bucket.object_at(first)
                if existing and all(entry == other for entry, other in zip(entries, existing, strict=False)):
                    return first + len(existing) - 1
                sealed = self._progress()[0]
                if sealed >= first:
                    return sealed  # and collected since
                # Read twice: an object truncated in transit, or a missing one, must not end the log.
                if existing and self._bucket.object_at(first) == existing:
                    self.end(first - 1)
                    raise lost_branch(self._bucket.prefix, first)
            except CorruptDataError as damaged:
                problem = damaged
        raise problem

    def _remove(self, first: int, last: int) -> bool:
        """Remove nodes; returns whether one of them named an object."""
        paths = [self._tree.entry(version) for version in range(first, last + 1)]
        while True:
            nodes = self._keeper.get_many(paths)
            deletes = [Delete(path) for path, node in zip(paths, nodes, strict=True) if node is not None]
            try:
                if deletes:
                    self._keeper.commit(*deletes)
            except Refused:
                continue  # another process removes the same nodes
            return any(node is not None and node.data.startswith(b"@") for node in nodes)

    def _progress(self) -> tuple[int, int, int]:
        """The version sealed up to, the version trimmed up to, and the version of the node."""
        node = self._keeper.get(self._tree.progress)
        if node is None:
            raise CorruptDataError("ZooKeeper has lost a node of a log", object_key=self._tree.progress)
        raw = loads(node.data)
        return raw.get("sealed", self._since), raw.get("trimmed", self._since), node.version

    def _advance(self, name: str, version: int) -> int:
        """Raise one of the two numbers; returns its value, which other processes may have raised further."""
        while True:
            sealed, trimmed, changes = self._progress()
            numbers = {"sealed": sealed, "trimmed": trimmed}
            if numbers[name] >= version:
                return numbers[name]
            data = json.dumps({**numbers, name: version}).encode()
            try:
                self._keeper.commit(SetData(self._tree.progress, data, changes))
            except Refused:
                continue
            return version


def lost_branch(prefix: str, version: int) -> FencedError:
    """The error for a process that uses a tree that a forced takeover has left."""
    return FencedError(
        f"The log of {prefix} was taken over by the bucket at version {version}, and what ZooKeeper held from there on "
        "is lost",
        hint="Open it anew, and write again what it does not show",
    )


def missing_tree(keeper: Keeper, tree: Tree, prefix: str) -> CorruptDataError:
    """The error for a ZooKeeper without the tree that the log names."""
    return CorruptDataError(
        f"ZooKeeper at {keeper.hosts} does not hold the log of {prefix} ({tree.path})",
        hint="It is another ensemble, or it has lost its data; what reached the bucket can be read with "
        'log="sealed" and taken over by `mergelake log seal --force`',
    )
