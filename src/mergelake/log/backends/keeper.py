"""A session with ZooKeeper: the only module that uses kazoo.

kazoo has some twenty exceptions; here they become three outcomes:

* a value, or `Refused`: the server checked the transaction and did not execute it;
* `UnavailableError`: no clear answer (connection or session lost, time-out). A transaction may have happened, or may
  still happen: read the nodes to find out;
* `InvalidInputError`: refused for good (credentials, access rights, an invalid address).

A session is shared by all users in a process that name the same servers, connects when it is first used, and
reconnects by itself. Reads are preceded by a `sync`, so that they see all transactions committed before they began,
through any server. A forked child gets a session of its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import InvalidInputError, MergelakeError, UnavailableError, error

if TYPE_CHECKING:
    from kazoo.client import KazooClient

SCHEME = "zookeeper"
RECHECK_S = 10.0
"""Seconds after which a waiting reader checks again even if no watch fires."""
_OPTIONS = {"timeout_s": "10", "ca": "", "cert": "", "key": "", "tls": "false"}

_logger = logging.getLogger("mergelake.log.zookeeper")


@dataclass(frozen=True, slots=True)
class Address:
    """`zookeeper://[user:password@]host:port,host:port/root[?timeout_s=10&tls=true&ca=…&cert=…&key=…]`."""

    hosts: str
    root: str
    """Path of the node that holds everything, without a slash at its end."""
    user: str = ""
    """`user:password` of the digest scheme; nodes are made accessible to that user alone."""
    options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def parse(url: str) -> Address:
        """Parse an address; raises BAD_ARGUMENTS."""
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(options.keys() - _OPTIONS.keys())
        if parts.scheme != SCHEME or not hosts.strip(",") or unknown:
            detail = f"It has no option {', '.join(unknown)}. " if unknown else ""
            raise error(
                "BAD_ARGUMENTS",
                f"'{url.replace(user, '…') if user else url}' does not say where a log is",
                f"{detail}Say zookeeper://host:2181,host:2181/path (options: {', '.join(_OPTIONS)}), bucket or sealed",
            )
        try:
            timeout_s = float(options.get("timeout_s", "10"))
        except ValueError:
            timeout_s = 0.0
        if timeout_s <= 0:
            raise error("BAD_ARGUMENTS", "timeout_s of a ZooKeeper address must be a positive number of seconds")
        root = parts.path.rstrip("/") or "/mergelake"
        return Address(hosts, root, unquote(user), tuple(sorted(options.items())))

    @property
    def public(self) -> str:
        """The address without secrets and options."""
        return f"{SCHEME}://{self.hosts}{self.root}"

    def option(self, name: str) -> str:
        """The value of an option, or its default."""
        return dict(self.options).get(name, _OPTIONS[name])


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node that does not exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Change a node if its version (number of changes) is this one."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node if its version is this one; -1 is any."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Refuse the transaction if a node does not exist."""

    path: str


KeeperOp = Create | SetData | Delete | Check


class Refused(Exception):
    """The transaction was not executed: a node exists, is missing, has children, or has another version."""


@dataclass(frozen=True, slots=True)
class KeeperNode:
    """The content of a node."""

    data: bytes
    version: int


class Keeper:
    """One session; safe for many threads."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self.timeout_s = float(address.option("timeout_s"))
        """Seconds after which the outcome of a request is unknown; also the timeout of the session."""
        self._lock = threading.Lock()
        self._client: KazooClient | None = None
        self._up = threading.Event()
        self._process = 0
        self._changed = threading.Condition()
        self._changes = 0
        self._watches: set[tuple[str, Callable[[], None]]] = set()

    @property
    def hosts(self) -> str:
        """The servers."""
        return self._address.hosts

    def commit(self, *steps: KeeperOp) -> None:
        """Execute all steps or none. Raises `Refused` if none was executed, UnavailableError if that is unknown."""
        transaction = self._connected().transaction()
        for step in steps:
            match step:
                case Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path):
                    transaction.check(path, -1)
        # A failed transaction is a list with an exception for each step: the culprit's, and markers for the others.
        for result in self._result(transaction.commit_async(), "a commit"):
            if isinstance(result, Exception) and type(result).__name__ not in _MARKERS:
                raise self._translated(result, "a commit") from result

    def get_many(self, paths: Sequence[str]) -> list[KeeperNode | None]:
        """The nodes at `paths`, None for those that do not exist, as of now; one round trip."""
        client = self._connected()
        pending = [client.sync_async(paths[0]), *(client.get_async(path) for path in paths)]
        nodes: list[KeeperNode | None] = []
        self._result(pending[0], "a sync")
        for path, answer in zip(paths, pending[1:], strict=True):
            try:
                data, stat = self._result(answer, path)
                nodes.append(KeeperNode(data, stat.version))
            except Refused:
                nodes.append(None)
        return nodes

    def get(self, path: str) -> KeeperNode | None:
        """One node."""
        return self.get_many([path])[0]

    def children(self, path: str) -> list[str]:
        """Names of the nodes below one, unsorted; none if it does not exist."""
        client = self._connected()
        synced, pending = client.sync_async(path), client.get_children_async(path)
        self._result(synced, "a sync")
        try:
            return list(self._result(pending, path))
        except Refused:
            return []

    def ensure(self, path: str) -> None:
        """Make a node and those above it, where they do not exist."""
        self._result(self._connected().ensure_path_async(path), path)

    def wait_change(self, path: str, seen: KeeperNode | None, timeout_s: float) -> None:
        """Return once a node differs from `seen`, after `timeout_s` seconds, or spuriously: the caller checks again."""
        with self._changed:
            changes = self._changes
        client = self._connected()
        try:
            stat = self._result(client.exists_async(path, watch=self._wake), path)
        except Refused:
            stat = None
        version = None if stat is None else stat.version
        if version == (None if seen is None else seen.version):
            with self._changed:
                self._changed.wait_for(lambda: self._changes != changes, max(timeout_s, 0.0))

    def watch(self, path: str, wake: Callable[[], None]) -> None:
        """Call `wake` once when a node changes, appears or goes, or the connection ends; not if there is none now."""

        def fired(_: object) -> None:
            with self._changed:
                self._watches.discard((path, wake))
            wake()

        client = self._client
        with self._changed:
            if client is None or not client.connected or (path, wake) in self._watches:
                return
            self._watches.add((path, wake))
        try:
            self._result(client.exists_async(path, watch=fired), path)
        except MergelakeError:
            with self._changed:
                self._watches.discard((path, wake))

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes. A new one begins with the next use."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.stop()
            client.close()

    def _wake(self, _: object) -> None:
        # One function for all watches: kazoo keeps a set of them, so that repeated waiting adds none.
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _connected(self) -> KazooClient:
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client, self._process = self._started(), os.getpid()
            client = self._client
        end_s = self._clock.monotonic_s() + self.timeout_s
        while not client.connected:
            if client.client_state == "AUTH_FAILED":
                raise self._translated(_kazoo().exceptions.AuthFailedError(), "the connection")
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise self._silent("it cannot be reached")
            self._up.wait(min(left_s, 0.1))
        return client

    def _started(self) -> KazooClient:
        kazoo = _kazoo()
        address = self._address
        client = kazoo.client.KazooClient(
            hosts=address.hosts,
            timeout=self.timeout_s,
            auth_data=[("digest", address.user)] if address.user else None,
            default_acl=kazoo.security.CREATOR_ALL_ACL if address.user else None,
            use_ssl=address.option("tls").lower() == "true",
            ca=address.option("ca") or None,
            certfile=address.option("cert") or None,
            keyfile=address.option("key") or None,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 2.0},
            logger=_logger,
        )
        self._up = client.start_async()
        return client

    def _result(self, answer: Any, what: str) -> Any:
        kazoo = _kazoo()
        try:
            return answer.get(timeout=self.timeout_s)
        except kazoo.handlers.threading.KazooTimeoutError as cause:
            raise self._silent("it did not answer in time") from cause
        except kazoo.exceptions.KazooException as cause:
            raise self._translated(cause, what) from cause

    def _translated(self, cause: Exception, what: str) -> Exception:
        exceptions = _kazoo().exceptions
        refusals = (
            exceptions.BadVersionError,
            exceptions.NodeExistsError,
            exceptions.NoNodeError,
            exceptions.NotEmptyError,
        )
        if isinstance(cause, refusals):
            return Refused(f"{what}: {type(cause).__name__}")
        if isinstance(cause, exceptions.NoAuthError | exceptions.AuthFailedError | exceptions.InvalidACLError):
            return InvalidInputError(
                f"ZooKeeper at {self.hosts} refused {what}: {type(cause).__name__}",
                name="KEEPER_EXCEPTION",
                hint="Say who you are: zookeeper://user:password@host:2181/path",
            )
        return self._silent(type(cause).__name__)

    def _silent(self, reason: str) -> MergelakeError:
        return UnavailableError(
            f"ZooKeeper at {self.hosts} gave no clear answer: {reason}",
            name="KEEPER_EXCEPTION",
            hint='Try again when it is well. Without it, log="sealed" reads what has reached the bucket',
        )


_MARKERS = {"RolledBackError", "RuntimeInconsistency"}
_keepers: dict[Address, Keeper] = {}
_keepers_lock = threading.Lock()


def keeper(address: Address, clock: Clock) -> Keeper:
    """The session with these servers, shared within this process."""
    session = Address(address.hosts, "", address.user, address.options)
    with _keepers_lock:
        return _keepers.setdefault(session, Keeper(session, clock))


@atexit.register
def close_all() -> None:
    """End the sessions of this process; also at its exit, so that they need not time out."""
    with _keepers_lock:
        sessions = list(_keepers.values())
        _keepers.clear()
    for session in sessions:
        session.close()


def _kazoo() -> Any:
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
        import kazoo.security
    except ImportError as cause:
        raise error(
            "SUPPORT_IS_DISABLED",
            "A log in ZooKeeper needs kazoo, which is not installed",
            "pip install 'mergelake[zookeeper]'",
        ) from cause
    return kazoo
