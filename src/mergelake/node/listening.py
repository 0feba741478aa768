"""A node that listens: what it takes from other processes, and where it says so.

Its address and a token that it draws stand in its lease (`RenewLease`), in the log of each table where that is worth an
entry now and then: where others commit. *Others commit* if `OTHERS_MIN` of their entries, or requests, were seen within
`OTHERS_S`. So a thousand quiet tables cost nothing, and a busy one two entries a minute: leases last
`volatile_lease_seconds`, and are renewed when a third is left. Where it has become quiet the lease is left to run out.
"""

from __future__ import annotations

from collections import deque

from mergelake.core.clock import Clock
from mergelake.core.ids import IdSource
from mergelake.log.leader import CommitService, ServedLog
from mergelake.log.passing import SERVICE
from mergelake.peer.address import address_of, parse_address
from mergelake.peer.listener import Listener

OTHERS_MIN = 4
OTHERS_S = 60.0


class Listening:
    """The socket of a node, and what is served there."""

    def __init__(self, listen: str, advertise: str, host: str, *, clock: Clock, ids: IdSource) -> None:
        """`listen` is `HOST:PORT`, port 0 any; `advertise` what others dial, if that is something else.

        `host`: the name of this machine, which is announced where it listens on all its addresses. BAD_ARGUMENTS for
        what is no address, or cannot be had.
        """
        bind, port = parse_address(listen)
        named, named_port = parse_address(advertise) if advertise else (bind, 0)
        self.token = ids.new_id()
        self.service = CommitService()
        self._listener = Listener(bind, port, self.token, clock=clock, ids=ids)
        self._listener.serve(SERVICE, self.service)
        self.address = address_of(host if named in ("0.0.0.0", "::") else named, named_port or self._listener.port)
        self.clock = clock
        self._listener.start()

    def close(self) -> None:
        """Take nothing any more; what is under way is answered."""
        self._listener.close()


class Traffic:
    """Whether others commit to a table."""

    def __init__(self, served: ServedLog, clock: Clock) -> None:
        self._served = served
        self._clock = clock
        self._seen = served.of_others
        self._times: deque[float] = deque(maxlen=OTHERS_MIN)

    @property
    def busy(self) -> bool:
        """As far as is known now."""
        now_s, count = self._clock.monotonic_s(), self._served.of_others
        self._times.extend([now_s] * min(count - self._seen, OTHERS_MIN))
        self._seen = count
        return len(self._times) == OTHERS_MIN and now_s - self._times[0] <= OTHERS_S
