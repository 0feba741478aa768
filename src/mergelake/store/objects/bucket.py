"""`BucketStore`: objects in S3, Google Cloud Storage or Azure, through obstore.

1. Reads, plain puts, listings and deletes are retried here, with exponential back-off and jitter, so that
   the counters include every request, and a download that is cut in the middle is retried too. A listing
   is resumed after the last key that it returned.
2. `create` sends one request. Its outcome is `Stored` on success, `Lost` if the server reports that the key exists,
   an error if the server refused for good (no permission, no bucket), and `OutcomeUnknown` otherwise.
3. A large put is a multipart upload by obstore's retrying client, which repeats only failed parts; a
   stream that fits into one chunk is one plain put.

obstore's runtime does not survive a fork: a forked child would hang for ever, so an error is raised instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import obstore

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import InternalError
from mergelake.core.base.ids import IdSource, RandomIds
from mergelake.store.interface.keys import LIST_PAGE, check_key, directory_prefix
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
from mergelake.store.interface.ranges import Fetch, coalesce, scatter, truncated
from mergelake.store.metering.meter import Kind, Meter
from mergelake.store.objects.buckets import Clients
from mergelake.store.objects.failures import OBSTORE_ERRORS, Failure, translate

T = TypeVar("T")

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
RETRY_SECONDS = 120.0
"""No new attempt is made later than this after the first one."""

_obstore_used = False
_forked_after_use = False


def _after_fork() -> None:
    global _forked_after_use
    _forked_after_use = _obstore_used


os.register_at_fork(after_in_child=_after_fork)


class BucketStore:
    """A `Store` in a bucket."""

    def __init__(
        self,
        spec: StoreSpec,
        clients: Clients,
        *,
        retries: int = 6,
        gap: int = 1 << 20,
        chunk_size: int = 8 << 20,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.spec = spec
        self.url = spec.url
        self._once = clients.once
        self._patient = clients.patient
        self._retries = retries
        self._gap = gap
        self._chunk_size = chunk_size
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._meter = Meter(self.url)

    @property
    def counters(self) -> Counters:
        """Requests and bytes so far, without obstore's own retries inside multipart uploads."""
        return self._meter.counters

    # -- reading -------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        """The whole object."""
        check_key(key)
        data = self._retrying("get", key, lambda: self._once.get(key).bytes().to_bytes())
        self._meter.count("get", key, requests=0, received=len(data))
        return data

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One view for each (start, length), of coalesced requests, which run concurrently."""
        check_key(key)
        fetches = coalesce(ranges, self._gap)
        if not fetches:
            return scatter(ranges, [], [])
        starts, lengths = [f.start for f in fetches], [f.length for f in fetches]

        def request() -> list[obstore.Bytes]:
            if len(fetches) == 1:
                return [self._once.get_range(key, start=starts[0], length=lengths[0])]
            # obstore must not coalesce further, so that the counters are right.
            return list(obstore.get_ranges(self._once, key, starts=starts, lengths=lengths, coalesce=0))

        try:
            bodies = self._retrying("get", key, request, requests=len(fetches))
        except _BehindTheEndError as problem:
            raise self._behind_the_end(key, fetches) from problem.__cause__
        for fetch, body in zip(fetches, bodies, strict=True):
            if len(body) != fetch.length:
                raise truncated(key, fetch.start, fetch.length, len(body))
        self._meter.count("get", key, requests=0, received=sum(lengths))
        return scatter(ranges, fetches, [memoryview(body) for body in bodies])

    def _behind_the_end(self, key: str, fetches: Sequence[Fetch]) -> Exception:
        size = self.head(key).size
        bad = next((fetch for fetch in fetches if fetch.end > size), fetches[-1])
        return truncated(key, bad.start, bad.length, size - bad.start)

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object."""
        check_key(key)
        return _meta(self._retrying("head", key, lambda: self._once.head(key)))

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects below `prefix`, those greater than `after` and less than `until`."""
        directory = directory_prefix(prefix).rstrip("/") or None
        last = after
        attempt = 0
        started = self._clock.monotonic_s()
        while True:
            try:
                self._check_process()
                self._meter.count("list", prefix)
                full = False
                for page in self._once.list(directory, offset=last or None, chunk_size=LIST_PAGE):
                    if full:
                        self._meter.count("list", prefix)
                    full = len(page) == LIST_PAGE
                    for item in page:
                        meta = _meta(item)
                        if until and meta.key >= until:
                            return
                        if meta.key > last:  # obstore drops a slash at the end of the offset
                            yield meta
                            last = meta.key
                        attempt = 0
            except OBSTORE_ERRORS as problem:
                attempt += 1
                if not self._again(problem, attempt, started):
                    raise translate(problem, self.url, prefix) from problem
            else:
                return

    # -- writing -------------------------------------------------------------------------------

    def put(self, key: str, data: Buffer) -> None:
        """Write (or overwrite) an object by one request."""
        check_key(key)
        body = data if isinstance(data, bytes) else memoryview(data).cast("B")
        self._retrying("put", key, lambda: self._once.put(key, body, use_multipart=False), sent=len(body))

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write an object from a stream: a multipart upload, or one put if it fits into a chunk."""
        check_key(key)
        source = iter(chunks)
        head: list[Buffer] = []
        size = 0
        for chunk in source:
            head.append(chunk)
            size += len(chunk)
            if size > self._chunk_size:
                break
        else:
            self.put(key, b"".join(head))
            return size

        source_failed = False

        def stream() -> Iterator[memoryview]:
            nonlocal size, source_failed
            yield from (memoryview(chunk).cast("B") for chunk in head)
            try:
                for chunk in source:
                    size += len(chunk)
                    yield memoryview(chunk).cast("B")
            except Exception:
                source_failed = True  # an OSError of the source must not be taken for one of the store
                raise

        self._check_process()
        try:
            obstore.put(self._patient, key, stream(), chunk_size=self._chunk_size, max_concurrency=4)
        except OBSTORE_ERRORS as problem:
            if source_failed:
                raise
            raise translate(problem, self.url, key) from problem
        parts = -(-size // self._chunk_size)
        self._meter.count("put", key, requests=parts + 2, sent=size)
        return size

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write the object only if the key is free; one request, never retried."""
        check_key(key)
        self._check_process()
        body = data if isinstance(data, bytes) else memoryview(data).cast("B")
        self._meter.count("put", key, sent=len(body))
        try:
            self._once.put(key, body, mode="create")
        except OBSTORE_ERRORS as problem:
            failure = Failure.of(problem)
            if failure.exists and not (failure.status == 409 and self.url.startswith("s3:")):
                return Lost()
            if failure.transient:
                return OutcomeUnknown(failure.text)
            raise translate(problem, self.url, key) from problem
        return Stored()

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, up to 1000 a request; a missing one is no error."""
        checked = [check_key(key) for key in keys]
        for first in range(0, len(checked), LIST_PAGE):
            batch = checked[first : first + LIST_PAGE]
            try:
                self._retrying("delete", batch[0], lambda batch=batch: self._once.delete(batch))  # type: ignore[misc]
            except KeyError:  # Google fails the whole batch for a missing object: then one request per key
                for key in batch:
                    try:
                        self._retrying("delete", key, lambda key=key: self._once.delete([key]))  # type: ignore[misc]
                    except KeyError:
                        continue

    # -- requests ------------------------------------------------------------------------------

    def _retrying(self, kind: Kind, key: str, request: Callable[[], T], *, requests: int = 1, sent: int = 0) -> T:
        """The result of `request`, retried after transient failures; every attempt is counted."""
        self._check_process()
        attempt = 0
        started = self._clock.monotonic_s()
        while True:
            self._meter.count(kind, key, requests=requests, sent=sent)
            try:
                return request()
            except OBSTORE_ERRORS as problem:
                if kind == "get" and Failure.of(problem).behind_the_end:
                    raise _BehindTheEndError from problem
                attempt += 1
                if not self._again(problem, attempt, started):
                    raise translate(problem, self.url, key) from problem

    def _again(self, problem: BaseException, attempt: int, started: float) -> bool:
        """Wait before retry number `attempt` (from 1); False if there is to be none."""
        wait = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (attempt - 1)) * (0.5 + self._ids.jitter())
        late = self._clock.monotonic_s() + wait - started > RETRY_SECONDS
        if attempt > self._retries or late or not Failure.of(problem).transient:
            return False
        self._meter.retried()
        self._clock.sleep_s(wait)
        return True

    def _check_process(self) -> None:
        global _obstore_used
        if _forked_after_use:
            raise InternalError(
                f"{self.url} cannot be used here: this process was forked from one that had used a bucket",
                hint="Start worker processes with the method 'spawn' or 'forkserver'",
            )
        _obstore_used = True


class _BehindTheEndError(Exception):
    """A range starts behind the end of the object; carries obstore's exception as its cause."""


def _meta(item: obstore.ObjectMeta) -> ObjectMeta:
    modified_ms = round(item["last_modified"].timestamp() * 1000)
    return ObjectMeta(item["path"], item["size"], modified_ms, (item["e_tag"] or "").strip('"'))
