"""The protocol of an object store, the outcomes of a conditional put, and `StoreSpec`: how another process opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are read or written: `len`, slicing, `np.frombuffer` and `pa.py_buffer` work on them."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The object did not exist and now holds our bytes."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The object existed already; nothing was written."""


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The reply was lost: the object may or may not hold our bytes; read it to find out."""

    reason: str = ""


PutOutcome: TypeAlias = Stored | Lost | OutcomeUnknown


class ObjectMeta(NamedTuple):
    """One listed object: a tuple, so that fields of many can be extracted fast."""

    key: str
    size: int
    modified_ms: int
    e_tag: str = ""


@dataclass(slots=True)
class Counters:
    """Requests and bytes by kind since the store was opened; subtract two values to measure the difference."""

    put: int = 0
    """Writes of any sort; a multipart upload counts its parts and the two requests around them."""
    get: int = 0
    """Whole reads and coalesced range reads."""
    list: int = 0
    """Pages of listings (1000 keys each)."""
    head: int = 0
    delete: int = 0
    """Delete requests; one takes up to 1000 keys."""
    retries: int = 0
    """Requests repeated after a failure, included in the counts above."""
    bytes_put: int = 0
    bytes_get: int = 0
    cached: int = 0
    """Ranges read from a cache directory; they are not counted as requests."""
    bytes_cached: int = 0
    details: dict[str, int] = field(default_factory=dict)
    """Requests by kind and class of key, such as `put _log` or `get data`; for people, not for decisions."""
    tables: dict[str, Counters] = field(default_factory=dict)
    """By directory, the first segment of keys: of a warehouse those of tables, and `_catalog`. Deletes are counted
    for that of their first key. Values have neither retries nor `details`."""

    def add(self, kind: str, requests: int, sent: int, received: int) -> None:
        """Add requests of one kind, and the bytes that they moved."""
        setattr(self, kind, getattr(self, kind) + requests)
        self.bytes_put += sent
        self.bytes_get += received

    def include(self, other: Counters) -> None:
        """Add all that another value counts."""
        for each in fields(self):
            if each.default is not MISSING:
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        for detail, number in other.details.items():
            self.details[detail] = self.details.get(detail, 0) + number
        for name, counters in other.tables.items():
            self.tables.setdefault(name, Counters()).include(counters)

    def copy(self) -> Counters:
        """A copy that shares nothing with this one."""
        tables = {name: replace(counters) for name, counters in self.tables.items()}
        return replace(self, details=dict(self.details), tables=tables)

    def __sub__(self, earlier: Counters) -> Counters:
        """The difference to `earlier`, an older value of the same store's counters."""
        numbers = {
            f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self) if f.default is not MISSING
        }
        details = {k: n - earlier.details.get(k, 0) for k, n in self.details.items() if n != earlier.details.get(k, 0)}
        pairs = {name: (now, earlier.tables.get(name)) for name, now in self.tables.items()}
        tables = {name: now - before if before else now for name, (now, before) in pairs.items() if now != before}
        return Counters(**numbers, details=details, tables=tables)

    @property
    def requests(self) -> int:
        """Requests of every kind."""
        return self.put + self.get + self.list + self.head + self.delete


class Store(Protocol):
    """A flat namespace of immutable objects under one URL. Keys are relative, `/`-separated.

    One instance is safe for many threads. Errors: a missing object raises `NotFoundError`; a store that
    does not answer `UnavailableError` (reads and plain puts were retried by then); bad credentials, a
    missing bucket or an impossible key `InvalidInputError`.
    """

    @property
    def url(self) -> str:
        """The URL it was opened with, without secrets; a plain absolute path for a directory."""
        ...

    @property
    def spec(self) -> StoreSpec:
        """How to open the same store in another process; picklable, holds the credentials."""
        ...

    @property
    def counters(self) -> Counters:
        """A copy of the counters of requests and bytes so far."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object."""
        ...

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`; `CorruptDataError` if the object is shorter."""
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One result for each (start, length); ranges closer than the coalescing gap share a request."""
        ...

    def put(self, key: str, data: Buffer) -> None:
        """Write (or overwrite) a small object by one request. Readers see the old bytes or the new."""
        ...

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write an object from a stream by multipart upload; a chunk that fails is sent again alone.

        Returns the size in bytes. Nothing is visible under `key` until all of it is; if `chunks` raises,
        nothing ever is.
        """
        ...

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write the object only if the key is free. Never retried internally."""
        ...

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object."""
        ...

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects below the directory `prefix` (whole path segments; "" for all), in order of key,
        only those greater than the key `after`, and less than `until` (if given).
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error."""
        ...


_SECRET_WORDS = ("secret", "key", "token", "password", "sas")
_openers: list[Callable[[StoreSpec], Store]] = []
"""What opens specs: one function, of the module on top of this wing, which imports every kind of store."""


def opens_specs(opener: Callable[[StoreSpec], Store]) -> Callable[[StoreSpec], Store]:
    """Make a function the one that `StoreSpec.open` calls."""
    _openers[:] = [opener]
    return opener


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Where a store is and how to reach it. A Spark task gets this, not a `Store`.

    `options` are complete: they include what `open_store` read from the environment of the first process,
    also credentials, as other processes may have another environment. `repr` hides secrets.
    """

    url: str
    options: tuple[tuple[str, str], ...] = ()
    """Sorted pairs."""

    @staticmethod
    def of(url: str, options: Mapping[str, str] | None = None) -> StoreSpec:
        """The spec with `options` in canonical order."""
        return StoreSpec(url, tuple(sorted((options or {}).items())))

    def open(self) -> Store:
        """The store, one instance per process and spec."""
        (opener,) = _openers
        return opener(self)

    def __repr__(self) -> str:
        shown = {k: "***" if any(word in k for word in _SECRET_WORDS) else v for k, v in self.options}
        return f"StoreSpec({self.url!r}, {shown!r})"
