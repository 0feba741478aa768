"""What a table costs, from its log: bytes stored, and the requests and bytes of what was written. Reads are in no log.

The number of PUTs follows from the objects and their sizes (`put_requests`), so it is that of attempts that succeeded:
retries, uploads that were given up, checkpoints and lost races for an entry are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mergelake.core.model.manifest import PartManifest
from mergelake.log.backends.batches import BATCH_MAX
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import AddParts, Entry, LogOp, Publish
from mergelake.log.model.sequencer import BUCKET
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves
from mergelake.parts.write.objects import OWN_OBJECT, SMALL_PUT, shared_size
from mergelake.parts.write.spool import STREAM_CHUNK
from mergelake.store.cache.cached import beneath
from mergelake.store.interface.protocol import Counters, Store
from mergelake.store.metering.prices import Prices

CHUNK_BYTES = 8 << 20
"""The default of the option `chunk_size`."""
_PACKED = (f"/{OWN_OBJECT}", ".packed")
LOG = "log entry"
"""The kind of work under which the PUTs of log entries are told."""
_WINDOW = 64
_MS_PER_DAY = 86_400_000
PACE_MS_MIN = 3_600_000
"""A shorter time than this tells nothing about a month."""
DAYS_PER_MONTH = 30


@dataclass(frozen=True, slots=True)
class Written:
    """What one kind of work wrote."""

    parts: int = 0
    puts: int = 0
    bytes: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.parts + other.parts, self.puts + other.puts, self.bytes + other.bytes)

    def cost(self, prices: Prices) -> float:
        """What its requests cost."""
        return prices.cost(Counters(put=self.puts))


@dataclass(frozen=True, slots=True)
class TableCost:
    """Bytes and requests of a table."""

    name: str
    version: int
    active_bytes: int
    """Of the parts that readers see."""
    retired_bytes: int
    """Of replaced and dropped parts that are kept for older versions."""
    detached_bytes: int
    borrowed_bytes: int
    """Of the files of active and detached parts that lie with retired parts, or in other tables: what a mutation left
    alone, and clones. They are in the sums above, but not stored twice."""
    volatile_parts: int
    volatile_source_bytes: int
    """Of the active parts that volatile parts cover: what is merged of them lies on the disks of nodes."""
    inserted_bytes: int
    """Since the table was made: by inserts."""
    merged_bytes: int
    """Likewise: by merges in the background."""
    requested_bytes: int
    """Likewise: by OPTIMIZE."""
    since_ms: int
    """Begin of the time that `written` is about."""
    until_ms: int
    written: dict[str, Written] = field(default_factory=dict)
    """By kind of work: `insert`, `direct`, `volatile`, `optimize`, `ttl`, `mutation`, `log entry`."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of all parts that are kept; files that several retired parts share are counted for each."""
        return self.active_bytes + self.retired_bytes + self.detached_bytes - self.borrowed_bytes

    @property
    def total(self) -> Written:
        """What all kinds of work wrote."""
        return sum(self.written.values(), Written())

    def month(self, prices: Prices) -> float | None:
        """What the writes of a month cost at the pace of `written`; None if that is too short a time to tell."""
        length_ms = self.until_ms - self.since_ms
        if length_ms < PACE_MS_MIN:
            return None
        return self.total.cost(prices) * DAYS_PER_MONTH * _MS_PER_DAY / length_ms


def chunk_bytes(store: Store) -> int:
    """Bytes of a part of a multipart upload by this process."""
    return int(dict(beneath(store).spec.options).get("chunk_size", CHUNK_BYTES))


def put_requests(op: LogOp, objects: Mapping[str, int], chunk: int = CHUNK_BYTES) -> int:
    """Requests that write the objects of a part: one each, or those of a multipart upload.

    Packed parts, and what is copied from the disk of a node, are put whole up to `SMALL_PUT`, files while they are
    written up to `STREAM_CHUNK`.
    """
    copied = isinstance(op, Publish) and bool(op.volatile)

    def requests(key: str, size: int) -> int:
        whole = SMALL_PUT if copied or key.endswith(_PACKED) else STREAM_CHUNK
        return 1 if size <= max(whole, chunk) else -(-size // chunk) + 2

    return sum(requests(key, size) for key, size in objects.items())


def written_objects(op: LogOp) -> Iterator[tuple[PartManifest, dict[str, int]]]:
    """For each part of an operation the objects that were written for it: key -> bytes.

    An object that parts share is told with the first of them; one that was there before (of a clone, of a part that is
    attached again, of the columns that a mutation leaves alone) is not told.
    """
    if isinstance(op, AddParts):
        parts, begun = op.parts, {*op.begun, *(part.id for part in op.parts)}
    elif isinstance(op, Publish):
        parts, begun = (op.part,), {op.part.id}
    else:
        return
    seen: set[str] = set()
    for part in parts:
        new = [key for key in part.object_keys() if key.split("/", 1)[0] in begun and key not in seen]
        seen.update(new)
        yield part, _sizes(part, new)


def _sizes(part: PartManifest, keys: list[str]) -> dict[str, int]:
    sizes = dict.fromkeys(keys, 0)
    for file in part.file_table().values() if sizes else ():
        for extent in file.extents:
            if extent.key in sizes:
                sizes[extent.key] = max(sizes[extent.key], extent.offset + extent.length)
    return {key: shared_size(key) or size for key, size in sizes.items()}


def written_by(entries: Sequence[Entry], chunk: int = CHUNK_BYTES, batch: int = 1) -> dict[str, Written]:
    """What the work behind some entries wrote, by kind; `batch` of them share a PUT."""
    out = {LOG: Written(puts=-(-len(entries) // batch))} if entries else {}

    def add(kind: str, more: Written) -> None:
        out[kind] = out.get(kind, Written()) + more

    for entry in entries:
        for op in entry.effective:
            kind = op.kind if isinstance(op, Publish) else "insert"
            for _, objects in written_objects(op):
                add(kind, Written(1, put_requests(op, objects, chunk), sum(objects.values())))
    return out


def recent_entries(log: Log[State], since_ms: int, since_version: int = 0) -> Iterator[Entry]:
    """The entries since a time and a version, newest last, as far as they are kept.

    A GET each, and for those of a window beyond the time. Without a time nothing is held in memory.
    """
    state = log.state
    first, last = max(state.history + 1, since_version), state.version
    if not since_ms:
        yield from log.entries(first, last) if first <= last else ()
        return
    out: list[list[Entry]] = []
    while last >= first:
        window = list(log.entries(max(first, last - _WINDOW + 1), last))
        out.append([entry for entry in window if entry.timestamp_ms >= since_ms])
        if len(out[-1]) < len(window):
            break
        last -= len(window)
    yield from (entry for window in reversed(out) for entry in window)


def table_cost(name: str, log: Log[State], now_ms: int, days: float, chunk: int = CHUNK_BYTES) -> TableCost:
    """What a table costs: what it holds now, and what was written in the last `days`, or as long as the log is kept."""
    state, since_ms = log.state, now_ms - round(days * _MS_PER_DAY)
    entries = list(recent_entries(log, since_ms))
    if entries and entries[0].version == state.history + 1:  # nothing older is kept, or there
        since_ms = entries[0].timestamp_ms
    cost = state_cost(name, state)
    batch = 1 if state.sequencer == BUCKET else BATCH_MAX  # ZooKeeper's are copied to the bucket together
    return replace(cost, since_ms=since_ms, until_ms=now_ms, written=written_by(entries, chunk, batch))


def state_cost(name: str, state: State) -> TableCost:
    """What a table holds, without a request."""
    volatile = [part for live in state.volatile.values() for part in live]
    covered = {
        leaf.manifest.id: leaf.manifest.bytes_on_disk
        for part in volatile
        for leaf in leaves(state.partitions[part.info.partition_id], part.info)
    }
    return TableCost(
        name,
        state.version,
        state.partitions.totals.bytes_on_disk,
        state.retired.bytes_on_disk,
        sum(part.manifest.bytes_on_disk for part in state.detached),
        _borrowed(state),
        len(volatile),
        sum(covered.values()),
        state.written.inserted,
        state.written.merged,
        state.written.requested,
        0,
        0,
    )


def _borrowed(state: State) -> int:
    """Bytes of active and detached parts in the directories of retired parts, or of other tables."""
    manifests = [*(part.manifest for part in state.parts()), *(part.manifest for part in state.detached)]
    outside = {manifest.id: manifest.keys_outside() for manifest in manifests}
    directories = {key.split("/", 1)[0] for keys in outside.values() for key in keys} - {""}
    retired = state.retired.find(directories, 0).keys() if directories else frozenset[str]()
    size = 0
    for manifest in manifests:
        elsewhere = {key for key in outside[manifest.id] if key.startswith("/") or key.split("/", 1)[0] in retired}
        for file in manifest.file_table().values() if elsewhere else ():
            size += sum(extent.length for extent in file.extents if extent.key in elsewhere)
    return size
