"""From the sequencer that a log names to the backend that holds its tail."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import error
from mergelake.log.backends.backend import EVERY, LogBackend, ObjectBackend, SealedBackend
from mergelake.log.backends.keeper import Address, keeper
from mergelake.log.model.sequencer import Sequencer
from mergelake.store.interface.protocol import Store
from mergelake.store.peer.client import Peers

SEALED = "sealed"
BUCKET = "bucket"


def split_options(options: Mapping[str, str] | None) -> tuple[dict[str, str], str | None]:
    """Storage options without `log`, and the value of `log`."""
    try:
        store_options = dict(options or {})
    except (TypeError, ValueError):
        hint = "Give a dict: {'endpoint': …, 'region': …}"
        raise error("TYPE_MISMATCH", f"Storage options are given as a {type(options).__name__}", hint) from None
    return store_options, store_options.pop("log", None)


class Backends:
    """How this process reaches the logs of a warehouse. Pickles, without `peers`."""

    def __init__(self, log: str | None = None, peers: Peers | None = None) -> None:
        """`log` is the user's option (None: `MERGELAKE_LOG` of the environment):

        * `zookeeper://…`: logs in ZooKeeper are reached at these servers, not at those that the log names (which may
          have moved, or need a password), and new logs are created there;
        * `bucket`: new logs are created in the bucket;
        * `sealed`: only the bucket is used: sealed entries are read, and a log with another sequencer is read-only;
        * empty: logs are reached where they say, and new ones are created where the catalog's is.

        `peers` reaches processes that take commits of others; None: this process appends each of its commits.

        Raises BAD_ARGUMENTS for anything else.
        """
        self.log = os.environ.get("MERGELAKE_LOG", "") if log is None else log
        self.address: Address | None = None
        """The servers that the user named, if any."""
        if self.log not in ("", BUCKET, SEALED):
            self.address = Address.parse(self.log)
        self.peers = None if self.log == SEALED else peers

    def __reduce__(self) -> tuple[type[Backends], tuple[str]]:
        return Backends, (self.log,)  # connections cannot be pickled

    def of(self, sequencer: Sequencer, store: Store, prefix: str, *, clock: Clock, threads: int = 16) -> LogBackend:
        """The backend for the entries after `sequencer.since` of the log below `prefix`."""
        bucket = bucket_of(sequencer, store, prefix, clock=clock, threads=threads)
        if not sequencer.url:
            return bucket
        if self.log == SEALED:
            return SealedBackend(bucket, sequencer.url)
        from mergelake.log.backends.backend_zookeeper import ZooKeeperBackend

        recorded = Address.parse(sequencer.url)
        return ZooKeeperBackend(keeper(self.address or recorded, clock), recorded.root, sequencer.since, bucket, clock)


def bucket_of(sequencer: Sequencer, store: Store, prefix: str, *, clock: Clock, threads: int = 16) -> ObjectBackend:
    """The entries in the bucket of the log below `prefix`. Sealed ones may lie in batches."""
    batched = EVERY if sequencer.url else sequencer.since
    return ObjectBackend(store, prefix, clock=clock, threads=threads, batched=batched)
