"""Moving a log to ZooKeeper, and back to the bucket. A move is one `MoveLog`, committed in the bucket."""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, UnavailableError
from mergelake.core.base.ids import IdSource
from mergelake.log.backends.backend import LogBackend, read_only
from mergelake.log.backends.backends import BUCKET, SEALED, Backends, bucket_of
from mergelake.log.backends.keeper import Address, keeper
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import MoveLog
from mergelake.log.model.sequencer import Sequencer
from mergelake.log.storage.machine import S, StateMachine
from mergelake.store.interface.protocol import Store


def place_of_new(backends: Backends, catalog: Sequencer) -> Address | None:
    """Where the logs of new tables are created: in the ZooKeeper that the user named or else the catalog's, if any.

    Raises READONLY if the catalog is in ZooKeeper and only the bucket may be used.
    """
    if backends.log == SEALED and catalog.url:
        raise read_only(catalog.url)
    if backends.address is not None or backends.log == BUCKET or not catalog.url:
        return backends.address
    recorded = Address.parse(catalog.url)
    return Address(recorded.hosts, recorded.root.rpartition("/")[0])


def new_tree(address: Address, store: Store, prefix: str, clock: Clock, ids: IdSource) -> MoveLog:
    """Create a tree in ZooKeeper; returns the operation that moves a log there, which may be tried at any position."""
    from mergelake.log.backends.backend_zookeeper import make_tree

    path = f"{address.root}/{ids.new_id()}"
    make_tree(keeper(address, clock), path, f"{store.url}/{prefix}")
    return MoveLog(Address(address.hosts, path).public)


class _BucketOnly(Backends):
    """Backends that read and append every log in the bucket, for a log that was ended elsewhere."""

    def of(self, sequencer: Sequencer, store: Store, prefix: str, *, clock: Clock, threads: int = 16) -> LogBackend:
        return bucket_of(sequencer, store, prefix, clock=clock, threads=threads)


@dataclass(frozen=True, slots=True)
class Takeover:
    """The result of moving a log back to the bucket."""

    version: int
    """Version of the `MoveLog`; entries after it are in the bucket. 0 for a log that was always there."""
    sequencer: str
    """Where it was; empty if it was in the bucket already."""
    ended: int | None
    """The last version there, if all of them were copied. None if ZooKeeper did not answer: entries that had not
    reached the bucket, from `version` on, are lost.
    """


def take_over(
    store: Store,
    prefix: str,
    machine: StateMachine[S],
    backends: Backends,
    *,
    clock: Clock,
    ids: IdSource,
    author: str = "",
    force: bool = False,
) -> Takeover:
    """Make the bucket the sequencer of a log: end it in ZooKeeper, copy what is missing, commit the move.

    Safe against concurrent writers, copiers and other takeovers, and may be repeated after a crash. With `force`, a
    ZooKeeper that does not answer (or has lost its data) is given up; should it come back, its writers stop as soon as
    one of them copies an entry to the bucket, and what they committed since is lost. Without `force`, raises
    UnavailableError or CorruptDataError in that case.
    """
    log = Log.open(store, prefix, machine, clock=clock, ids=ids, author=author, backends=_BucketOnly())
    sequencer = log.state.sequencer
    if not sequencer.url:
        return Takeover(sequencer.since, "", None)
    backend = backends.of(sequencer, store, prefix, clock=clock)
    ended = None
    try:
        ended = backend.end()
        backend.seal(ended)
    except (UnavailableError, CorruptDataError):
        if not force and log.refresh().sequencer == sequencer:
            raise
    log.refresh()
    log.commit(lambda state: [MoveLog()] if state.sequencer == sequencer else [])
    if ended is not None:
        backend.forget()
    return Takeover(log.state.sequencer.since, sequencer.url, ended)
