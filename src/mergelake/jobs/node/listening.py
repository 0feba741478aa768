"""A node that listens: it takes commits of other processes, serves its volatile parts, and announces its address.

Its address and a random token are in its lease (`RenewLease`), in the log of each table to which others commit, which
is the case if `OTHERS_MIN` of their entries or requests were seen within `OTHERS_S`, and of each table of which it has
Live volatile parts on its disk (and may serve them: `volatile_peer_reads`). So a thousand quiet tables cost nothing,
and a busy one two entries a minute: leases last `volatile_lease_seconds`, and are renewed when a third is left; where a
node owns volatile parts they are renewed anyway. In a table that has become quiet the lease expires.
"""

from __future__ import annotations

from collections import deque

from mergelake.core.base.clock import Clock
from mergelake.core.base.ids import IdSource
from mergelake.jobs.node.serving import VolatileService
from mergelake.log.commit.passing import SERVICE
from mergelake.log.relay.leader import CommitService, ServedLog
from mergelake.store.peer.address import address_of, parse_address
from mergelake.store.peer.listener import Handler, Listener
from mergelake.table.volatile.volatile_wire import SERVICE as VOLATILE_SERVICE

OTHERS_MIN = 4
OTHERS_S = 60.0


class Listening:
    """The socket of a node, and its services."""

    def __init__(self, listen: str, advertise: str, host: str, *, clock: Clock, ids: IdSource) -> None:
        """`listen` is `HOST:PORT`, port 0 any; `advertise` is the address for others, if it differs.

        `host`: the name of this machine, announced if it listens on all addresses. Raises BAD_ARGUMENTS for an invalid
        or unavailable address.
        """
        bind, port = parse_address(listen)
        named, named_port = parse_address(advertise) if advertise else (bind, 0)
        self.token = ids.new_id()
        self.service = CommitService()
        self.volatile = VolatileService()
        """Serves the bytes of volatile parts to readers."""
        self._listener = Listener(bind, port, self.token, clock=clock, ids=ids)
        self._listener.serve(SERVICE, self.service)
        self._listener.serve(VOLATILE_SERVICE, self.volatile)
        self.address = address_of(host if named in ("0.0.0.0", "::") else named, named_port or self._listener.port)
        self.clock = clock
        self._listener.start()

    def serve(self, name: str, handler: Handler) -> None:
        """Answer requests to a service by `handler` from now on."""
        self._listener.serve(name, handler)

    def close(self) -> None:
        """Accept no more requests; those under way are answered."""
        self._listener.close()


class Traffic:
    """Tracks whether other processes commit to a table."""

    def __init__(self, served: ServedLog, clock: Clock) -> None:
        self._served = served
        self._clock = clock
        self._seen = served.of_others
        self._times: deque[float] = deque(maxlen=OTHERS_MIN)

    @property
    def busy(self) -> bool:
        """Whether others commit, as known now."""
        now_s, count = self._clock.monotonic_s(), self._served.of_others
        self._times.extend([now_s] * min(count - self._seen, OTHERS_MIN))
        self._seen = count
        return len(self._times) == OTHERS_MIN and now_s - self._times[0] <= OTHERS_S
