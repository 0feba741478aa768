"""The tail of a log in ZooKeeper, everything older in the bucket.

::

    <tree>                   {"log": "s3://…/<prefix>"}: the log it belongs to, for people
    <tree>/tail              the newest version; this node has changed once for each entry
    <tree>/log/<20 digits>   an entry, or "@" and the key of an object that holds it (more than `INLINE_MAX` bytes)
    <tree>/intake/<name>     ephemeral: a member that its writer leaves for the writer of the next entry (`intake`)
    <tree>/progress          {"sealed": …, "trimmed": …}: entries up to `sealed` are in the bucket, nodes up to
                             `trimmed` are removed
    <tree>/sealer            ephemeral: a process is copying entries to the bucket
    <tree>/end               instead of the tail: the last version here, after which the log goes on elsewhere

A tree belongs to one `MoveLog` and is created once, before that is committed, under a random name; so it is never
created again. It is removed once the log goes on elsewhere: if a tree is missing while the bucket knows of no move,
ZooKeeper has lost it.

**An append** is one transaction: change the tail, create the entry. Version p is allowed only if the tail has changed
exactly `p - 1 - since` times. So a writer that slept cannot take a position that was taken before, whether its entry
still exists or was trimmed; and after the end (the tail is removed) it cannot take any.

**A read** requests the entries and then the tail, in one round trip after a `sync`. An entry that is missing although
the tail has passed it lies in the bucket. From the tail a reader knows how many entries follow.

**A lost race** costs three round trips before the next try: the refused transaction, a read of the winner's entry, and
a read of the entries that followed it (two reads if there are many).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, FencedError, MergelakeError, NotFoundError, UnavailableError
from mergelake.log.backends.backend import CollectedError, ObjectBackend
from mergelake.log.backends.intake import PAGE, Intake, Page
from mergelake.log.backends.keeper import RECHECK_S, Check, Create, Delete, Keeper, KeeperNode, Refused, SetData
from mergelake.log.backends.sealing import Sealer, Tree, lost_branch, missing_tree
from mergelake.store.interface.protocol import Lost, OutcomeUnknown, PutOutcome, Stored

INLINE_MAX = 900_000
"""Bytes of an entry that still fit into a node: ZooKeeper ends a session that sends a packet of 1 MiB."""
READ_MAX = 256
"""Entries that a reader following the log reads at once."""
BACKLOG_MAX = 4096
"""Entries that may wait to be copied; with more of them an append copies the oldest ones first."""
TAKEOVER_S = 5.0
"""Seconds that a writer waits for a move of the log to be committed."""

_logger = logging.getLogger("mergelake.log")


class ZooKeeperBackend:
    """Entries as nodes, created by a transaction that also counts them."""

    intake: Intake | None
    tells = True

    def __init__(self, keeper: Keeper, path: str, since: int, bucket: ObjectBackend, clock: Clock) -> None:
        """`path` is that of the tree, `since` the version of the `MoveLog` that made it the sequencer."""
        self._keeper = keeper
        self._tree = Tree(path)
        self._since = since
        self._bucket = bucket
        self._clock = clock
        self._sealer = Sealer(keeper, self._tree, since, bucket, self._entry)
        self.intake = Intake(_Nodes(keeper, self._tree), self._tree.intake)
        self._taken = 0, b""  # the entry that a race was lost to, which is read next

    def key(self, version: int) -> str:
        """Path of an entry's node."""
        return self._tree.entry(version)

    def create(self, version: int, data: bytes) -> PutOutcome:
        """One transaction; before it, an object for a large entry, and copying if more than `BACKLOG_MAX` wait."""
        if version - self._sealer.sealed > BACKLOG_MAX:
            self._sealer.seal(version - BACKLOG_MAX)
        try:
            body = data if len(data) <= INLINE_MAX else self._put_large(version, data)
            number = b"%d" % version
            self._keeper.commit(
                SetData(self._tree.tail, number, version - 1 - self._since), Create(self.key(version), body)
            )
        except Refused:
            return self._refused(version)
        except UnavailableError as cause:
            return OutcomeUnknown(str(cause))
        self._sealer.nudge()
        return Stored()

    def read(self, version: int) -> bytes | None:
        """One round trip, none right after a race for it was lost; one more GET for what lies in the bucket."""
        taken, data = self._taken
        if version == taken:
            self._taken = 0, b""
            return data
        try:
            return self.read_many([version])[0]
        except CollectedError:
            return None

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """One round trip, and GETs for sealed entries. If ZooKeeper fails or has lost the log, the sealed ones only.

        Raises CollectedError for an entry that was committed and is gone.
        """
        return self._read(versions)[0]

    def read_on(self, first: int, ahead: int) -> list[bytes | None]:
        """One round trip for the first entries and the tail, and one for the others."""
        entries, last = self._read(range(first, first + ahead))
        if entries[-1] is not None and last is not None and last >= first + len(entries):
            following, last = self._read(range(first + len(entries), min(last, first + READ_MAX) + 1))
            entries += following
        if entries[-1] is not None and last is not None and last < first + len(entries):
            entries.append(None)
        return entries

    def _read(self, versions: Sequence[int]) -> tuple[list[bytes | None], int | None]:
        """The result of `read_many`, and the last version here; None if the log ended here, or the bucket was read."""
        try:
            nodes, last, ended = self._read_nodes([self.key(version) for version in versions])
        except (UnavailableError, CorruptDataError):
            sealed = list(takewhile(lambda data: data is not None, self._bucket.read_many(versions)))
            if sealed:
                return sealed, None
            raise
        if ended and min(versions) > last + 1:
            raise lost_branch(self._bucket.prefix, last + 1)
        # After the end of a forced takeover there may be entries that no longer count.
        entries = [
            None if ended and v > last else self._entry(v, node) for v, node in zip(versions, nodes, strict=True)
        ]
        elsewhere = [i for i, v in enumerate(versions) if entries[i] is None and (ended or v <= last)]
        if elsewhere:
            for i, data in zip(elsewhere, self._bucket.read_all([versions[i] for i in elsewhere]), strict=True):
                entries[i] = data
        for i in elsewhere:
            if entries[i] is None and versions[i] <= last:
                entries[i] = self._just_committed(versions[i])
        return entries, None if ended else last

    def seal(self, version: int) -> None:
        """Copy entries up to `version` to the bucket."""
        self._sealer.seal(version)

    def sealed_key(self, version: int) -> str:
        """As in the bucket."""
        return self._bucket.sealed_key(version)

    def trim(self, version: int) -> None:
        """Remove the nodes of sealed entries up to `version`."""
        self._sealer.trim(version)

    def wait(self, version: int, timeout_s: float, poll_s: float | None = None) -> bool:
        """Sleep until a watch reports that the tail has moved."""
        end_s = self._clock.monotonic_s() + timeout_s
        while True:
            left_s = end_s - self._clock.monotonic_s()
            try:
                (tail,), last, ended = self._read_nodes([self._tree.tail])
                if version <= last:
                    return True
                if ended:
                    return self._bucket.wait(version, max(left_s, 0.0), poll_s)
                if left_s > 0:
                    self._keeper.wait_change(self._tree.tail, tail, min(left_s, RECHECK_S))
            except UnavailableError:
                self._clock.sleep_s(max(min(left_s, 0.1), 0.0))
            except CorruptDataError:
                if self._bucket.read(version) is None:
                    raise
                return True
            if left_s <= 0:
                return False

    def pause(self, version: int, seconds: float) -> None:
        """Sleep until a watch reports the entry's node. One request; if that fails, sleep for all of `seconds`."""
        try:
            self._keeper.wait_change(self.key(version), None, seconds)
        except UnavailableError:
            self._clock.sleep_s(seconds)

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the tail moves, or the connection is lost."""
        self._keeper.watch(self._tree.tail, wake)

    def truncate(self, before: int) -> int:
        """As in the bucket, after entries up to `before` are sealed: the last deleted object ends where that begins."""
        self.seal(before)
        self.trim(before - 1)
        return self._bucket.truncate(before)

    def end(self) -> int:
        """End the log here: no append succeeds any more, ever. Returns the last version; may be repeated."""
        return self._sealer.end()

    def forget(self) -> None:
        """Remove the tree."""
        self._sealer.forget()

    def _read_nodes(self, paths: Sequence[str]) -> tuple[list[KeeperNode | None], int, bool]:
        """The nodes, the last version, and whether the log has ended here."""
        *nodes, tail = self._keeper.get_many([*paths, self._tree.tail])
        if tail is not None:
            return nodes, int(tail.data or self._since), False
        end = self._keeper.get(self._tree.end)
        if end is None:
            raise missing_tree(self._keeper, self._tree, self._bucket.prefix)
        return nodes, int(end.data), True

    def _entry(self, version: int, node: KeeperNode | None) -> bytes | None:
        if node is None or not node.data.startswith(b"@"):
            return None if node is None else node.data
        key = node.data[1:].decode()
        try:
            data = self._bucket.store.get(key)
        except NotFoundError:
            return None  # trimmed just now: by then the entry is sealed
        if _digest(data) != key.rpartition("-")[2]:
            raise CorruptDataError("A big log entry is not what was written", object_key=key)
        return data

    def _just_committed(self, version: int) -> bytes | None:
        """Read again an entry that was committed, but was found neither here nor in the bucket."""
        data = self._entry(version, self._keeper.get(self.key(version))) or self._bucket.read(version)
        if data is None:
            raise CollectedError(f"Version {version} was committed, and its entry has been collected since")
        return data

    def _refused(self, version: int) -> PutOutcome:
        """The outcome after a refused transaction: the position is taken, or no longer available here."""
        try:
            (node,), last, ended = self._read_nodes([self.key(version)])
        except CorruptDataError:
            if self._bucket.read(version) is None:
                raise
            return Lost()  # the log has moved on, and its tree was removed
        if ended and version > last + 1:
            raise lost_branch(self._bucket.prefix, last + 1)
        if version <= last and not ended and node is not None and (data := self._entry(version, node)) is not None:
            self._taken = version, data
        if version <= last or (ended and self._bucket.wait(version, TAKEOVER_S)):
            return Lost()
        if ended:
            raise FencedError(
                f"The log of {self._bucket.prefix} is being moved out of ZooKeeper, and nothing was committed",
                hint="Try again; if that does not end, repeat `mergelake log seal`, which was cut short",
            )
        return OutcomeUnknown("the tail is not where it was")

    def _put_large(self, version: int, data: bytes) -> bytes:
        key = self._bucket.large_key(version, _digest(data))
        self._bucket.store.put(key, data)
        return b"@" + key.encode()


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The intake as ephemeral nodes, which end with their writer's session; none is created after the log's end."""

    keeper: Keeper
    tree: Tree

    def put(self, key: str, data: bytes) -> None:
        """One transaction. If refused, the node exists, or the log has ended: the entry at the position decides."""
        with suppress(Refused):
            self.keeper.commit(Check(self.tree.tail), Create(key, data, ephemeral=True))

    def list_and_get(self, folder: str, keys: Sequence[str]) -> tuple[Page, list[bytes | None]]:
        """A round trip for the names, and one for the contents."""
        page = [(f"{folder}/{name}", 0) for name in sorted(self.keeper.children(folder))[:PAGE]]
        return page, self.get_many(keys) if keys else []

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """One round trip."""
        try:
            return [None if node is None else node.data for node in self.keeper.get_many(keys)]
        except MergelakeError as cause:
            _logger.warning("members are left out: %s", cause)
            return [None] * len(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """One transaction, or one each if some are gone already."""
        try:
            self.keeper.commit(*map(Delete, keys))
        except Refused:
            for key in keys:
                with suppress(Refused):
                    self.keeper.commit(Delete(key))


def make_tree(keeper: Keeper, path: str, about: str) -> None:
    """Create a new, empty tree under an unused name; UnavailableError if the outcome is unknown."""
    tree = Tree(path)
    keeper.ensure(path.rpartition("/")[0] or "/")
    keeper.commit(
        Create(tree.path, json.dumps({"log": about}).encode()),
        Create(tree.log),
        Create(tree.intake),
        Create(tree.progress, b"{}"),
        Create(tree.tail),
    )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
