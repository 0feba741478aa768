"""The leader: takes commits of other processes, and appends them as one with those of its own threads.

For each request (`passing`), in the thread of its connection:

1. Its members join the queue of commits of this process (`group.CommitQueue`), each with its operations, its attempt
   and its author. The thread that leads the queue appends them with all others that wait.
2. Before an entry is proposed, each member is checked at its own place in it, like all operations; and `Recent` tells
   whether its attempt is in the log already (it landed), and whether all entries since it was built are known here
   (otherwise its outcome is unknown, and nothing is appended).
3. The sender gets the outcome of each member, and the entries that it lacks: it knows the state after them without a
   request to the store.

Why nothing is lost, duplicated or misreported:

* Entries are appended as usual, at the position after the state, if that is free. A leader that slept loses the race,
  reads the winner's entry, and checks anew: so it finds the attempts of senders that ran out of patience and appended
  themselves.
* An attempt that was answered other than *landed* or *unknown* is closed: its sender may have reported a failure. It is
  remembered as long as a message built before could be accepted; if the same message arrives again (late, or twice), it
  is not checked again. One that arrives while the first is under way shares its outcome.
* The token of a leader ends with it: messages for it are not accepted by the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from mergelake.core.base.errors import ConflictError, InvalidInputError
from mergelake.log.commit.commit import Log
from mergelake.log.commit.group import Request
from mergelake.log.commit.passing import Answer, Outcome, Passed, PassedMember, decode_request, encode_answer
from mergelake.log.model.operations import LogOp
from mergelake.log.reading.recent import Recent

ANSWER_MAX = 8 << 20
"""Bytes of entries in an answer; a sender that lacks more reads them from the log."""
CLOSED_MAX = 1 << 16
"""Closed attempts that are remembered; with that many, new ones get the outcome `unknown` until the log has gone on."""


class _Landed(Exception):
    """The attempt is in the log already."""


class _CannotTell(Exception):
    """Not all entries since the attempt was built are known here: nothing is appended."""


class _Work:
    """One member under way."""

    def __init__(self, request: Request[Any], base_version: int) -> None:
        self.request = request
        self.base_version = base_version
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
        """Commits of others since this process listens: taken here, or read in the log."""
        return self.taken + self.recent.of_others

    def answer(self, passed: Passed) -> Answer:
        """Append the members; returns their outcomes."""
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
                    work = self._under_way[member.attempt] = self._work(member, passed.base_version)
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
        return Answer(
            tuple(outcomes), passed.base_version + 1, tuple(self.recent.since(passed.base_version, ANSWER_MAX))
        )

    def _work(self, member: PassedMember, base_version: int) -> _Work:
        def build(state: Any) -> Sequence[LogOp]:
            version = self.recent.find(member.attempt)
            if version:
                raise _Landed(version)
            if not self.recent.reaches(base_version, state.version):
                raise _CannotTell(f"entries behind version {base_version} are not known here")
            return member.ops

        return _Work(Request(build, attempt=member.attempt, author=member.author, size=member.size), base_version)

    def _settle(self, works: Sequence[_Work]) -> None:
        with self._lock:
            for work in works:
                work.outcome = outcome = _outcome(work.request)
                attempt = work.request.attempt
                del self._under_way[attempt]
                if outcome.kind in ("refused", "not taken"):
                    self._closed[attempt] = max(self.recent.last, self.log.state.version, work.base_version)
            # Forget attempts built before the entries in `recent`: these are not appended in any case.
            while self._closed and next(iter(self._closed.values())) < self.recent.base:
                del self._closed[next(iter(self._closed))]
        for work in works:
            work.done.set()


def _outcome(request: Request[Any]) -> Outcome:
    if request.committed is not None:
        return Outcome("landed", request.committed.version)
    failure, text = request.failure, str(request.failure)[:500]
    if isinstance(failure, _Landed):
        return Outcome("landed", failure.args[0])
    if request.rejected:
        return Outcome("refused", text=text)
    # The store refused, or too many races were lost: nothing was appended, and the sender may succeed.
    return Outcome("not taken" if isinstance(failure, (ConflictError, InvalidInputError)) else "unknown", text=text)


class CommitService:
    """The handler of `passing.SERVICE` in a process that listens, for any number of logs."""

    def __init__(self) -> None:
        self._logs: dict[str, ServedLog] = {}

    def add(self, log: Log[Any]) -> ServedLog:
        """Accept commits to a log from now on."""
        if log.prefix not in self._logs or self._logs[log.prefix].log is not log:
            self._logs[log.prefix] = ServedLog(log)
        return self._logs[log.prefix]

    def remove(self, log: Log[Any]) -> None:
        """Accept no more commits to a log."""
        if log.prefix in self._logs and self._logs[log.prefix].log is log:
            del self._logs[log.prefix]
        log.serve(None)

    def __call__(self, data: bytes) -> bytes:
        """The answer to a request; raises CorruptDataError or UNKNOWN_FORMAT_VERSION for an unreadable one."""
        passed = decode_request(data)
        served = self._logs.get(passed.log)
        if served is None:
            not_taken = Outcome("not taken", text="commits to this log are not taken here")
            return encode_answer(Answer((not_taken,) * len(passed.members)))
        return encode_answer(served.answer(passed))
