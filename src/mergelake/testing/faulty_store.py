"""`FaultyStore`: a store with reproducible faults, for simulations and crash tests.

Operations are numbered from 0. The fault of an operation is chosen at random by `rates` and the seed, or by `script`,
which takes precedence:

- `FAIL_BEFORE`: nothing is done; the caller gets `UnavailableError` (from `create`: `OutcomeUnknown`).
- `LOSE_REPLY`: the work is done; the caller gets the same, so it cannot tell the two apart.
- `TRUNCATE`: `get` returns half of the object, a range read raises `CorruptDataError`.
- `CRASH_BEFORE`, `CRASH_AFTER`: the process dies. `SimulatedCrash` is raised by this and every later operation, so that
  no `finally` does what a dead process could not do.

To test all crash schedules of a job: run it once without faults, note `operations`, then run it again with
`script={n: Fault.CRASH_BEFORE}` and `CRASH_AFTER` for each n, and inspect `inner` through another store.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.store.interface.protocol import (
    Buffer,
    Counters,
    ObjectMeta,
    OutcomeUnknown,
    PutOutcome,
    Store,
    StoreSpec,
)
from mergelake.store.interface.ranges import truncated

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process died. Not an `Exception`, so that nothing in the engine catches it."""


class Fault(enum.Enum):
    """A fault of one operation."""

    FAIL_BEFORE = "fail before"
    LOSE_REPLY = "lose reply"
    TRUNCATE = "truncate"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"


class FaultyStore:
    """A `Store` around `inner` with faults; `only(kind, key)` limits them to some operations."""

    def __init__(
        self,
        inner: Store,
        *,
        seed: int = 0,
        rates: Mapping[Fault, float] | None = None,
        script: Mapping[int, Fault] | None = None,
        only: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.inner = inner
        self.operations = 0
        """Number of operations, failed ones included."""
        self.trace: list[str] = []
        """Operations and their faults: `create t/_log/1.json: lose reply`."""
        self._draw = SeededIds(seed)
        self._rates = dict(rates or {})
        self._script = dict(script or {})
        self._only = only
        self._crashed = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The inner store's."""
        return self.inner.url

    @property
    def spec(self) -> StoreSpec:
        """The inner store's: another process sees no faults."""
        return self.inner.spec

    @property
    def counters(self) -> Counters:
        """The inner store's."""
        return self.inner.counters

    def _next(self, kind: str, key: str) -> Fault | None:
        with self._lock:
            if self._crashed:
                raise SimulatedCrash(f"{kind} {key}: the process is dead")
            number = self.operations
            self.operations += 1
            fault = self._script.get(number)
            if fault is None and (self._only is None or self._only(kind, key)):
                drawn = self._draw.jitter()
                for candidate, rate in self._rates.items():
                    if drawn < rate:
                        fault = candidate
                        break
                    drawn -= rate
            self.trace.append(f"{kind} {key}" + (f": {fault.value}" if fault else ""))
            if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
                self._crashed = True
        if fault is Fault.CRASH_BEFORE:
            raise SimulatedCrash(f"before {kind} {key}")
        return fault

    def _do(self, kind: str, key: str, work: Callable[[], T]) -> T:
        fault = self._next(kind, key)
        if fault is Fault.FAIL_BEFORE:
            raise _unavailable(kind, key)
        result = work()
        if fault is Fault.CRASH_AFTER:
            raise SimulatedCrash(f"after {kind} {key}")
        if fault is Fault.LOSE_REPLY:
            raise _unavailable(kind, key)
        if fault is Fault.TRUNCATE and isinstance(result, bytes):
            return result[: len(result) // 2]  # type: ignore[return-value]
        if fault is Fault.TRUNCATE and kind == "get":
            raise truncated(key, 0, 1, 0)
        return result

    def get(self, key: str) -> bytes:
        """The whole object, or half of it."""
        return self._do("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One result for each (start, length)."""
        return self._do("get", key, lambda: self.inner.get_ranges(key, ranges))

    def put(self, key: str, data: Buffer) -> None:
        """Write (or overwrite) an object."""
        self._do("put", key, lambda: self.inner.put(key, data))

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write an object from a stream."""
        return self._do("put", key, lambda: self.inner.put_large(key, chunks))

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write the object only if the key is free; faults make the outcome `OutcomeUnknown`."""
        try:
            return self._do("create", key, lambda: self.inner.create(key, data))
        except UnavailableError as problem:
            return OutcomeUnknown(str(problem))

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object."""
        return self._do("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects below `prefix`, those greater than `after` and less than `until`."""
        return self._do("list", prefix, lambda: self.inner.list(prefix, after, until))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        wanted = [*keys]
        self._do("delete", ",".join(wanted[:3]), lambda: self.inner.delete(wanted))


def _unavailable(kind: str, key: str) -> UnavailableError:
    return UnavailableError(f"injected fault in {kind} '{key}'", name="NETWORK_ERROR")
