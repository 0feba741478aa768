"""The simulated object store: one bucket, and the door to it that each process has.

A request stops twice, before it is carried out and before its reply is heard, and in between it may fail in the
ways of radosgw and of networks (`Fault`). Conditional puts are exact: of many creates of a key one wins. A write
whose sender was told nothing may also arrive later.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

from mergelake.core.base.errors import NotFoundError, UnavailableError
from mergelake.store.interface.keys import check_key, directory_prefix
from mergelake.store.interface.protocol import (
    Buffer,
    Counters,
    Lost,
    ObjectMeta,
    OutcomeUnknown,
    PutOutcome,
    Stored,
    StoreSpec,
)
from mergelake.store.interface.ranges import truncated
from tests.simulation.kernel import EPOCH_MS, Kernel, Process

T = TypeVar("T")
_LUXURIES = ("/_log/checkpoints/", "/_log/_last_checkpoint", "/_log/intake/", "/_gc/")
LATE_MAX_S = 60.0
"""How long a request may be under way after its sender gave it up."""


class Fault(enum.Enum):
    FAIL_BEFORE = "500, nothing done"
    LOSE_REPLY = "500, but done"
    LATE = "timeout, done later"
    SLOW_DOWN = "503 SlowDown"
    CONFLICT = "409, nothing stored"
    FALSE_412 = "412, though nothing is there"
    OWN_412 = "412 for the own object"
    TRUNCATE = "truncated"
    FLIP = "a bit is wrong"
    HALF_UPLOAD = "multipart left behind"
    CRASH_BEFORE = "dies before"
    CRASH_AFTER = "dies after"


_READ = (Fault.FAIL_BEFORE, Fault.SLOW_DOWN, Fault.TRUNCATE, Fault.FLIP)
_WRITE = (Fault.FAIL_BEFORE, Fault.LOSE_REPLY, Fault.SLOW_DOWN, Fault.LATE)
_CREATE = (*_WRITE, Fault.LOSE_REPLY, Fault.CONFLICT, Fault.FALSE_412, Fault.OWN_412)
KINDS: dict[str, tuple[Fault, ...]] = {
    "get": _READ,
    "head": _READ[:2],
    "list": _READ[:2],
    "put": _WRITE,
    "upload": (*_WRITE, Fault.HALF_UPLOAD),
    "delete": _WRITE,
    "create": _CREATE,
}


def flipped(data: bytes, chance: Random, digits: bool = False) -> bytes:
    """With one wrong bit: anywhere, or such that one digit becomes another (what then still can be read is wrong)."""
    places = [at for at, byte in enumerate(data) if byte in b"01234567"] if digits else []
    if places:
        at, bit = chance.choice(places), chance.randrange(3)
    elif data:
        at, bit = chance.randrange(len(data)), chance.randrange(8)
    else:
        return data
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


class Bucket:
    """Objects, and whoever watches them change."""

    def __init__(self, kernel: Kernel, fault_rate: float, crash_rate: float, page: int = 0) -> None:
        self.kernel = kernel
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.without: frozenset[Fault] = frozenset()
        """What does not befall it."""
        self.uploads: dict[str, bytes] = {}
        """Multipart uploads that nobody finished."""
        self.fault_rate = fault_rate
        self.crash_rate = crash_rate
        self.page = page or kernel.random.choice([2, 7, 1000])
        self.requests = 0
        self.faults: dict[Fault, int] = dict.fromkeys(Fault, 0)
        self.watchers: list[Callable[[str, bytes | None], None]] = []
        """Called after each change of an object, with its bytes, or None when it was deleted."""
        self.violation: Exception | None = None
        self.dark_until_s = 0.0
        """The whole store is out until then."""
        self.mute = False
        """Whether it does what it is told all the same, and only its replies get lost."""
        self.rot_rate = 0.0
        """How often what nobody has to rely on (checkpoints, hints, notes) is stored with a wrong bit."""
        self.damaged: set[str] = set()
        """What holds other bytes than were sent."""
        self.damaged_ever: set[str] = set()

    def draw(self, kind: str, chance: Random) -> Fault | None:
        """What befalls a request."""
        self.requests += 1
        drawn = chance.random()
        if self.kernel.now_s < self.dark_until_s:
            return Fault.LOSE_REPLY if self.mute and Fault.LOSE_REPLY in KINDS[kind] else Fault.FAIL_BEFORE
        if drawn < self.crash_rate:
            fault = Fault.CRASH_BEFORE if drawn < self.crash_rate / 2 else Fault.CRASH_AFTER
        elif drawn < self.crash_rate + self.fault_rate:
            fault = chance.choice(KINDS[kind])
        else:
            return None
        if fault in self.without:
            return None
        self.faults[fault] += 1
        return fault

    def set(self, key: str, data: bytes, chance: Random | None = None) -> None:
        """With `chance`, as far as the disk is to be trusted."""
        self.damaged.discard(key)
        luxury = any(each in key for each in _LUXURIES) and not key.endswith("/now")
        if chance and data and self.rot_rate and luxury and chance.random() < self.rot_rate:
            data = flipped(data, chance)
            self.damaged.add(key)
            self.damaged_ever.add(key)
        self.objects[key] = (data, EPOCH_MS + round(self.kernel.now_s * 1000))
        self._tell(key, data)

    def create(self, key: str, data: bytes, chance: Random | None = None) -> bool:
        if key in self.objects:
            return False
        self.set(key, data, chance)
        return True

    def remove(self, key: str) -> None:
        self.damaged.discard(key)
        if self.objects.pop(key, None) is not None:
            self._tell(key, None)

    def _tell(self, key: str, data: bytes | None) -> None:
        """A violation is kept for the scheduler: the process that caused it may take any exception as it comes."""
        for watch in self.watchers:
            try:
                watch(key, data)
            except Exception as violation:
                self.violation = self.violation or violation


class ProcessStore:
    """A `Store` as one process sees it."""

    url = "memory://simulation"

    def __init__(self, bucket: Bucket, process: Process) -> None:
        self.bucket = bucket
        self._owner = process
        self.spec = StoreSpec.of(self.url, {})
        self.writes = 0

    @property
    def process(self) -> Process:
        """Who asks."""
        return self._owner.thread

    @property
    def counters(self) -> Counters:
        return Counters()

    def _do(self, kind: str, key: str, work: Callable[[], T]) -> T | Fault:
        process, kernel = self.process, self.process.kernel
        self.writes += kind not in ("get", "head", "list")
        kernel.point(process, f"{kind} {key}")
        fault = self.bucket.draw(kind, process.chance) if process.running else None
        kernel.trace.add(f"{process.name}: {kind} {key}" + (f" ({fault.value})" if fault else ""))
        if fault is None:
            result = work()
            kernel.point(process, f"the reply to {kind} {key}")
            return result
        if fault is Fault.CRASH_BEFORE:
            process.die()
        if fault in (Fault.FALSE_412, Fault.CONFLICT):
            return fault
        if fault in (Fault.FAIL_BEFORE, Fault.SLOW_DOWN):
            raise _unavailable(kind, key, fault)
        if fault is Fault.LATE:
            kernel.later(process.chance.random() ** 3 * LATE_MAX_S, lambda: (work(), None)[1])
            raise _unavailable(kind, key, fault)
        if fault is Fault.HALF_UPLOAD:
            self.bucket.uploads[f"{key}#{self.bucket.requests}"] = b""
            raise _unavailable(kind, key, fault)
        result = work()
        if fault is Fault.CRASH_AFTER:
            process.die()
        kernel.point(process, f"the reply to {kind} {key}")
        if fault is Fault.TRUNCATE:
            process.doubt()
            if isinstance(result, bytes):
                return result[: len(result) // 2]  # type: ignore[return-value]
            raise truncated(key, 0, 1, 0)
        if fault is Fault.FLIP:
            process.doubt()
            if isinstance(result, bytes):
                return flipped(result, process.chance)  # type: ignore[return-value]
            return [flipped(each, process.chance) for each in result]  # type: ignore[attr-defined,return-value]
        if fault is Fault.OWN_412:
            return fault
        raise _unavailable(kind, key, fault)

    def _body(self, key: str) -> bytes:
        found = self.bucket.objects.get(check_key(key))
        if found is None:
            raise NotFoundError(f"there is no object '{key}'", name="FILE_DOESNT_EXIST")
        return found[0]

    def get(self, key: str) -> bytes:
        return self._do("get", key, lambda: self._body(key))  # type: ignore[return-value]

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        def work() -> list[Buffer]:
            body = self._body(key)
            if any(start + length > len(body) for start, length in ranges):
                raise truncated(key, 0, 1, len(body))
            return [body[start : start + length] for start, length in ranges]

        return self._do("get", key, work)  # type: ignore[return-value]

    def put(self, key: str, data: Buffer) -> None:
        self._do("put", check_key(key), lambda: self.bucket.set(key, bytes(data), self.process.chance))

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        data = b"".join(chunks)
        self._do("upload", check_key(key), lambda: self.bucket.set(key, data))
        return len(data)

    def create(self, key: str, data: Buffer) -> PutOutcome:
        try:
            result = self._do(
                "create", check_key(key), lambda: self.bucket.create(key, bytes(data), self.process.chance)
            )
        except UnavailableError as problem:
            return OutcomeUnknown(str(problem))
        if result is Fault.CONFLICT:
            return OutcomeUnknown("409 ConditionalRequestConflict")
        if isinstance(result, Fault):
            return Lost()
        return Stored() if result else Lost()

    def head(self, key: str) -> ObjectMeta:
        def work() -> ObjectMeta:
            size = len(self._body(key))
            return ObjectMeta(key, size, self.bucket.objects[key][1])

        return self._do("head", key, work)  # type: ignore[return-value]

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Page by page: what changes between two pages may or may not be seen."""
        start, size = directory_prefix(prefix), self.bucket.page
        while True:

            def work(after: str = after) -> list[ObjectMeta]:
                keys = sorted(
                    k for k in self.bucket.objects if k.startswith(start) and k > after and (not until or k < until)
                )
                return [ObjectMeta(k, len(b), ms) for k in keys[:size] for b, ms in [self.bucket.objects[k]]]

            found: list[ObjectMeta] = self._do("list", prefix, work)  # type: ignore[assignment]
            yield from found
            if len(found) < size:
                return
            after = found[-1].key

    def delete(self, keys: Iterable[str]) -> None:
        wanted = [check_key(key) for key in keys]

        def work() -> None:
            for key in wanted:
                self.bucket.remove(key)

        if wanted:
            self._do("delete", ",".join(wanted[:3]), work)


def _unavailable(kind: str, key: str, fault: Fault) -> UnavailableError:
    return UnavailableError(f"{kind} '{key}': {fault.value}", name="NETWORK_ERROR")
