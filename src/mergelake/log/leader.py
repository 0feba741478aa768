"""The leader: takes commits of other processes, and appends them as one with those of its own threads.

For each request (`passing`), in the thread that brought it:

1. Its members join the line of those who wait to commit in this process (`group.CommitQueue`), each with the operations
   that its sender made, its attempt and its author. Whoever leads the line appends them with all others that wait.
2. Before an entry is proposed each member is judged at its own place in it, like everybody's operations; and it is
   asked of `Recent` whether its attempt is in the log already (it landed), and whether everything since it was made is
   known here (else its outcome is not known, and nothing is appended).
3. The sender gets the outcome of each member, and the entries that it lacks: it knows the state after them without a
   request to the store.

Why nothing is lost, doubled or misreported:

* Entries are appended as ever, at the position after the state, if that is free. A leader that slept loses the race,
  reads what took its place, and judges anew: it meets the attempts of senders that lost patience and went ahead.
* An attempt for which anything but *landed* or *unknown* was answered is closed: its sender may have reported that it
  failed. It is remembered for as long as a message that was made before could be taken; should the same message come
  again (late, or twice), it is not judged again. One that comes while the first is under way shares its outcome.
* A leader that dies takes its token with it: what was meant for it is not heard by the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from mergelake.core.errors import ConflictError, InvalidInputError
from mergelake.log.commit import Log
from mergelake.log.group import Request
from mergelake.log.operations import LogOp
from mergelake.log.passing import Answer, Outcome, Passed, PassedMember, decode_request, encode_answer
from mergelake.log.recent import Recent

ANSWER_MAX = 8 << 20
"""Bytes of entries that an answer holds; who lacks more reads them from the log."""
CLOSED_MAX = 1 << 16
"""Refused attempts that are remembered; above that nothing is judged until the log has gone on."""


class _Landed(Exception):
    """The attempt is in the log already."""


class _CannotTell(Exception):
    """It is not known here whether the attempt is in the log: nothing is appended."""


class _Work:
    """One member under way."""

    def __init__(self, request: Request[Any], made: int) -> None:
        self.request = request
        self.made = made
        self.outcome = Outcome("unknown")
        self.done = threading.Event()


class ServedLog:
    """One log of a process that listens."""

    def __init__(self, log: Log[Any]) -> None:
        self.log = log
        self.recent = Recent()
        self.taken = 0
        """Members of others that were taken."""
        self._lock = threading.Lock()
        self._under_way: dict[str, _Work] = {}
        self._closed: dict[str, int] = {}
        log.serve(self.recent)

    @property
    def of_others(self) -> int:
        """How many commits of others were seen since this process listens: taken here, or read in the log."""
        return self.taken + self.recent.of_others

    def answer(self, passed: Passed) -> Answer:
        """Append the members, and tell each what became of it."""
        works: list[_Work | Outcome] = []
        new: list[_Work] = []
        with self._lock:
            self.taken += len(passed.members)
            for member in passed.members:
                work: _Work | Outcome | None = self._under_way.get(member.attempt)
                if member.attempt in self._closed:
                    work = Outcome("not taken", text="it was answered before")
                elif len(self._closed) >= CLOSED_MAX:
                    work = Outcome("unknown", text="too much was refused lately")
                if work is None:
                    work = self._under_way[member.attempt] = self._work(member, passed.made)
                    new.append(work)
                works.append(work)
        try:
            if new:
                self.log.commit_all([work.request for work in new])
        finally:
            self._settle(new)
        outcomes = []
        for work in works:
            if isinstance(work, _Work):
                work.done.wait()
                work = work.outcome
            outcomes.append(work)
        return Answer(tuple(outcomes), passed.made + 1, tuple(self.recent.since(passed.made, ANSWER_MAX)))

    def _work(self, member: PassedMember, made: int) -> _Work:
        def build(state: Any) -> Sequence[LogOp]:
            version = self.recent.find(member.attempt)
            if version:
                raise _Landed(version)
            if not self.recent.reaches(made, state.version):
                raise _CannotTell(f"entries behind version {made} are not known here")
            return member.ops

        return _Work(Request(build, attempt=member.attempt, author=member.author, size=member.size), made)

    def _settle(self, works: Sequence[_Work]) -> None:
        with self._lock:
            for work in works:
                work.outcome = outcome = _outcome(work.request)
                attempt = work.request.attempt
                del self._under_way[attempt]
                if outcome.kind in ("refused", "not taken"):
                    self._closed[attempt] = max(self.recent.last, self.log.state.version, work.made)
            # Forgotten are those that no message that is still judged can bring again.
            while self._closed and next(iter(self._closed.values())) < self.recent.base:
                del self._closed[next(iter(self._closed))]
        for work in works:
            work.done.set()


def _outcome(request: Request[Any]) -> Outcome:
    if request.committed is not None:
        return Outcome("landed", request.committed.version)
    failure, told = request.failure, str(request.failure)[:500]
    if isinstance(failure, _Landed):
        return Outcome("landed", failure.args[0])
    if request.rejected:
        return Outcome("refused", text=told)
    # What the store refuses this process, or too many lost races: nothing was appended, and it may go well elsewhere.
    return Outcome("not taken" if isinstance(failure, (ConflictError, InvalidInputError)) else "unknown", text=told)


class CommitService:
    """What a process that listens answers at `passing.SERVICE`, for any number of logs."""

    def __init__(self) -> None:
        self._logs: dict[str, ServedLog] = {}

    def add(self, log: Log[Any]) -> ServedLog:
        """Take commits to a log from now on."""
        if log.prefix not in self._logs or self._logs[log.prefix].log is not log:
            self._logs[log.prefix] = ServedLog(log)
        return self._logs[log.prefix]

    def remove(self, log: Log[Any]) -> None:
        """Take none any more."""
        if log.prefix in self._logs and self._logs[log.prefix].log is log:
            del self._logs[log.prefix]
        log.serve(None)

    def __call__(self, data: bytes) -> bytes:
        """The answer to a request; CorruptDataError, or UNKNOWN_FORMAT_VERSION, for one that cannot be read."""
        passed = decode_request(data)
        served = self._logs.get(passed.log)
        if served is None:
            nobody = Outcome("not taken", text="commits to this log are not taken here")
            return encode_answer(Answer((nobody,) * len(passed.members)))
        return encode_answer(served.answer(passed))
