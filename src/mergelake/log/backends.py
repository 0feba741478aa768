"""From what a log says about its sequencer to the backend that holds its tail."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mergelake.core.clock import Clock
from mergelake.core.errors import error
from mergelake.log.backend import EVERY, LogBackend, ObjectBackend, SealedBackend
from mergelake.log.keeper import Address, keeper
from mergelake.log.sequencer import Sequencer
from mergelake.peer.client import Peers
from mergelake.store.protocol import Store

SEALED = "sealed"
BUCKET = "bucket"


def split_options(options: Mapping[str, str] | None) -> tuple[dict[str, str], str | None]:
    """Storage options without `log`, and that one: where a log is said beside how the store is opened."""
    try:
        given = dict(options or {})
    except (TypeError, ValueError):
        hint = "Give a dict: {'endpoint': …, 'region': …}"
        raise error("TYPE_MISMATCH", f"Storage options are given as a {type(options).__name__}", hint) from None
    return given, given.pop("log", None)


class Backends:
    """How this process reaches the logs of a warehouse. One value for all of them; it pickles, without `peers`."""

    def __init__(self, log: str | None = None, peers: Peers | None = None) -> None:
        """`log` is what the user says (None: the environment's `MERGELAKE_LOG`):

        * `zookeeper://…`: logs that lie in ZooKeeper are looked for on these servers (whatever servers the log names:
          they may have moved, or ask for a password), and new ones are made there;
        * `bucket`: new ones are made in the bucket;
        * `sealed`: nothing but the bucket is asked: what has reached it is read, and a log whose sequencer is elsewhere
          cannot be written;
        * empty: logs are where they say, and new ones where the catalog's is.

        `peers` asks processes that take commits of others; None: each commit is appended by this one.

        BAD_ARGUMENTS for anything else.
        """
        self.log = os.environ.get("MERGELAKE_LOG", "") if log is None else log
        self.address: Address | None = None
        """Of the servers that the user named."""
        if self.log not in ("", BUCKET, SEALED):
            self.address = Address.parse(self.log)
        self.peers = None if self.log == SEALED else peers

    def __reduce__(self) -> tuple[type[Backends], tuple[str]]:
        return Backends, (self.log,)  # connections stay here

    def of(self, sequencer: Sequencer, store: Store, prefix: str, *, clock: Clock, threads: int = 16) -> LogBackend:
        """The backend for the entries behind `sequencer.since` of the log below `prefix`."""
        bucket = bucket_of(sequencer, store, prefix, clock=clock, threads=threads)
        if not sequencer.url:
            return bucket
        if self.log == SEALED:
            return SealedBackend(bucket, sequencer.url)
        from mergelake.log.backend_zookeeper import ZooKeeperBackend

        recorded = Address.parse(sequencer.url)
        return ZooKeeperBackend(keeper(self.address or recorded, clock), recorded.root, sequencer.since, bucket, clock)


def bucket_of(sequencer: Sequencer, store: Store, prefix: str, *, clock: Clock, threads: int = 16) -> ObjectBackend:
    """What the bucket holds of the log below `prefix`. Entries that were sealed may lie in batches."""
    batched = EVERY if sequencer.url else sequencer.since
    return ObjectBackend(store, prefix, clock=clock, threads=threads, batched=batched)
