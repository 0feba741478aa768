"""A folded state, `_log/checkpoints/<20 digits>.arrow`: complete, or a root that names segments with most of its parts.

Five Arrow IPC streams (zstd), read by one request:

1. active parts that are in no segment, then detached ones, with their file tables; the schema's metadata holds the
   header, a JSON object under `mergelake`;
2. retired parts that are in no segment, one row each;
3. the segments (`segment`), one row each: name, sizes, digest, and a bit for each of its parts: whether it is active;
4. the partitions with parts in segments, one row each: value, how many parts, and in which segments;
5. the segments with retired parts (`stored_runs`), one row each: name, digest, `RunFacts` of the parts, and how many
   retired parts in no segment come before them;

then 16 bytes, the digest of all bytes before. (Arrow trusts the offsets that it reads: damaged bytes must not reach
it.)

The header holds the format, the version, counters, schemas, floors, deduplication windows, volatile parts, mutations,
tags, holds, leases, and `state_hash`: the digest of the state's content, recomputed and compared on every load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import CorruptDataError, InternalError
from mergelake.core.model.manifest import FileTable
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.stored_form import StoredForm
from mergelake.log.model.part_map import Held, Partitions, Totals
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retired import MemoryRun, Retired, Run, RunFacts, memory_runs
from mergelake.log.model.sequencer import Sequencer
from mergelake.log.model.state import (
    DetachedPart,
    Joint,
    Lease,
    MutationFailure,
    PendingMutation,
    State,
    VolatilePart,
    WrittenBytes,
    listed,
    window_of,
)
from mergelake.log.storage.encoding import require_format, tuples
from mergelake.log.storage.layout import Placed, SegmentLayout
from mergelake.log.storage.op_forms import RECIPE
from mergelake.log.storage.part_rows import (
    DIGEST_BYTES,
    RETIRED,
    WITH_FILES,
    completed,
    digest_of,
    dumps,
    header_of,
    lists_of,
    open_stream,
    part_columns,
    parts_of,
    retired_columns,
    retired_of,
    table_of,
    write_stream,
)
from mergelake.log.storage.segment import SegmentMember, SegmentRef
from mergelake.log.storage.segments import Segments
from mergelake.log.storage.stored import stored_partitions
from mergelake.log.storage.stored_runs import PlacedRun, RunRef

CHECKPOINT_FORMAT = 5
_WITHOUT_SEGMENTS, _WITHOUT_RUNS = 2, 3
"""Older formats. The first computed its hash in another way, so it is not compared."""
_SEGMENTS = pa.schema(
    [
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("hot_bytes", pa.int64()),
        ("size", pa.int64()),
        ("digest", pa.binary(16)),
        ("live", pa.large_binary()),
    ]
)
_PLACED = pa.schema(
    [
        ("partition_id", pa.string()),
        ("value", pa.string()),
        ("parts", pa.int64()),
        ("segments", pa.list_(pa.uint32())),
    ]
)
_RUNS = pa.schema(
    [
        ("name", pa.string()),
        ("digest", pa.binary(16)),
        ("before", pa.int64()),
        ("parts", pa.int64()),
        ("added", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("noted_first", pa.int64()),
        ("noted_last", pa.int64()),
        ("bytes_on_disk", pa.int64()),
        ("hash", pa.binary(16)),
    ]
)
_FACTS = StoredForm(
    RunFacts,
    parts="parts",
    added="added",
    first="first",
    last="last",
    noted_first="noted_first",
    noted_last="noted_last",
    bytes_on_disk="bytes_on_disk",
    hash="hash",
)
_VOLATILE = StoredForm(
    VolatilePart,
    id="id",
    info="info",
    sources="sources",
    recipe="recipe",
    owner="owner",
    added="added",
    added_ms="added_ms",
)
_MUTATION = StoredForm(
    PendingMutation,
    id="id",
    version="version",
    commands="commands",
    partition_ids="partition_ids",
    schema_version="schema_version",
    added="added",
    added_ms="added_ms",
    killed="killed",
    drops_rows="drops_rows",
    finished_ms="finished_ms",
    failure="failure",
    since="since",
)
_FAILURE = StoredForm(MutationFailure, part="part", code="code", reason="reason", failed_ms="failed_ms")
_UNREADABLE = (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError)


def state_hash(state: State) -> str:
    """A hash of the content of a state, 32 hex digits: equal states have equal hashes, on every machine."""
    aside = [
        (part.manifest.id, str(part.info), part.detached, part.detached_ms, *_versions(part.lacks))
        for part in state.detached
    ]
    parts = (state.partitions.totals.hash, state.retired.hash, aside)
    return hashlib.blake2b(f"{dumps(_header(state))}{parts}".encode(), digest_size=16).hexdigest()


def encode_checkpoint(state: State, layout: SegmentLayout | None = None) -> bytes:
    """The checkpoint object of a state; with all parts in it, or without those that `layout` has in segments."""
    totals = state.partitions.totals
    totals_row = [totals.parts, totals.rows, totals.bytes_on_disk, f"{totals.hash:032x}", totals.masked]
    header = {
        **_header(state),
        "format": CHECKPOINT_FORMAT,
        "state_hash": state_hash(state),
        "totals": totals_row,
        # Not hashed: older checkpoints lack them.
        "rows_version": state.rows_version,
        "drops": dict(state.drops),
        "drop": state.drop,
        "firsts": dict(state.firsts),
        "written": [state.written.inserted, state.written.merged, state.written.requested],
    }
    sink = pa.BufferOutputStream()
    # Detached parts are written as if they had been added when they were detached.
    aside = (ActivePart(part.info, part.manifest, part.detached, part.detached_ms) for part in state.detached)
    if layout is None:
        layout = SegmentLayout(inline=state.partitions, runs=tuple(memory_runs(tuple(state.retired))))
    parts = [*(part for name in sorted(layout.inline) for part in layout.inline[name]), *aside]
    texts = [part.manifest.files.text for part in parts]
    write_stream(sink, table_of(WITH_FILES, {**part_columns(parts), "files": texts}), header)
    retired = [part for run in layout.runs if isinstance(run, MemoryRun) for part in run.held]
    write_stream(sink, table_of(RETIRED, retired_columns(retired)))
    names = sorted(layout.members)
    members = [layout.members[name] for name in names]
    refs = [member.ref for member in members]
    columns: dict[str, list[Any]] = {
        "name": [ref.name for ref in refs],
        "rows": [ref.rows for ref in refs],
        "hot_bytes": [ref.hot_bytes for ref in refs],
        "size": [ref.size for ref in refs],
        "digest": [ref.digest for ref in refs],
        "live": [np.packbits(member.live).tobytes() for member in members],
    }
    write_stream(sink, table_of(_SEGMENTS, columns))
    number = {name: at for at, name in enumerate(names)}
    ids = sorted(layout.placed)
    placed = [layout.placed[each] for each in ids]
    columns = {
        "partition_id": ids,
        "value": [each.value for each in placed],
        "parts": [each.parts for each in placed],
        "segments": [[number[name] for name in each.names] for each in placed],
    }
    write_stream(sink, table_of(_PLACED, columns))
    write_stream(sink, table_of(_RUNS, _run_columns(layout.runs)))
    data = bytes(sink.getvalue())
    return data + digest_of(data)


@dataclass(frozen=True, slots=True)
class Root:
    """The content of a checkpoint object, without its segments."""

    key: str
    header: dict[str, Any]
    layout: SegmentLayout
    aside: tuple[ActivePart, ...]
    """Detached parts."""
    retired: pa.Table
    """Retired parts in no segment, as `part_rows.RETIRED`."""
    before: tuple[int, ...]
    """How many of these stand before each of the layout's stored runs."""


def decode_root(data: bytes, key: str = "") -> Root:
    """Decode a checkpoint object, without its segments. `key` is the object's, for errors.

    Raises CorruptDataError if the bytes are damaged, and UNKNOWN_FORMAT_VERSION for a newer format.
    """
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if digest_of(body) != digest:
        raise CorruptDataError(
            "A checkpoint does not hold what was written",
            object_key=key,
            expected=digest_of(body).hex(),
            found=digest.hex(),
        )
    with _reading(key):
        source = pa.BufferReader(body)
        parts_reader = open_stream(source)
        header = header_of(parts_reader.schema)
    require_format(int(header["format"]), (CHECKPOINT_FORMAT,), f"Checkpoint {key}")
    with _reading(key):
        columns = lists_of(completed(parts_reader.read_all()))
        parts = parts_of(columns, map(FileTable, columns["files"]))
        retired = open_stream(source).read_all()
        active = len(parts) - header["detached"]
        inline: dict[str, list[ActivePart]] = {}
        for part in parts[:active]:
            inline.setdefault(part.info.partition_id, []).append(part)
        layout = SegmentLayout(inline={name: tuple(held) for name, held in inline.items()})
        if header["format"] > _WITHOUT_SEGMENTS:
            members = [_member(row) for row in open_stream(source).read_all().to_pylist()]
            placed = open_stream(source).read_all().to_pydict()
            layout = replace(
                layout, members={member.ref.name: member for member in members}, placed=_placed(placed, members)
            )
        stored = open_stream(source).read_all().to_pylist() if header["format"] > _WITHOUT_RUNS else []
        layout = replace(layout, runs=tuple(map(_run_ref, stored)))
        return Root(key, header, layout, tuple(parts[active:]), retired, tuple(row["before"] for row in stored))


@contextmanager
def _reading(key: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as cause:
        if getattr(cause, "name", "") == "UNKNOWN_FORMAT_VERSION":  # of a segment
            raise
        raise CorruptDataError("A checkpoint is not readable", object_key=key, found=str(cause)) from cause


def decode_checkpoint(data: bytes, key: str = "", segments: Segments | None = None) -> State:
    """Inverse of `encode_checkpoint`; for a large table, `segments` are read when a partition is requested.

    Raises what `decode_root` does, also CorruptDataError if the state does not have the recorded hash, and
    NotFoundError if a segment that is read at once is gone.
    """
    root = decode_root(data, key)
    with _reading(key):
        state = _state(root, segments)
    if root.header["format"] > _WITHOUT_SEGMENTS:
        _require(state_hash(state), root.header["state_hash"], key)
    return state


def verify_parts(state: State, key: str) -> None:
    """Read all parts of a decoded state; CorruptDataError if their counts or hashes are not the recorded ones."""
    totals = Totals().after(state.parts(), ())
    recorded = state.partitions.totals
    _require(f"{totals.parts} {totals.hash:032x}", f"{recorded.parts} {recorded.hash:032x}", key)
    retired = Retired().plus(tuple(state.retired))
    _require(f"{len(retired)} {retired.hash:032x}", f"{len(state.retired)} {state.retired.hash:032x}", key)


def _require(actual: str, expected: str, key: str) -> None:
    if actual != expected:
        message = "A checkpoint does not hold the state that was written"
        raise CorruptDataError(message, object_key=key, expected=expected, found=actual)


def _member(row: dict[str, Any]) -> SegmentMember:
    live = np.unpackbits(np.frombuffer(row["live"], np.uint8), count=row["rows"]).astype(np.bool_)
    ref = SegmentRef(row["name"], row["rows"], row["hot_bytes"], row["size"], row["digest"])
    return SegmentMember(ref, live)


def _placed(columns: dict[str, list[Any]], members: list[SegmentMember]) -> dict[str, Placed]:
    names = [member.ref.name for member in members]
    rows = zip(*(columns[name] for name in _PLACED.names), strict=True)
    return {
        partition_id: Placed(value, parts, tuple(names[at] for at in segments))
        for partition_id, value, parts, segments in rows
    }


def _run_columns(runs: Sequence[PlacedRun]) -> dict[str, list[Any]]:
    """Columns of `_RUNS`."""
    columns: dict[str, list[Any]] = {name: [] for name in _RUNS.names}
    before = 0
    for run in runs:
        if isinstance(run, MemoryRun):
            before += run.facts.parts
            continue
        facts = dict(_FACTS.items(run.facts))
        facts["hash"] = run.facts.hash.to_bytes(16, "little")
        for name, value in {"name": run.name, "digest": run.digest, "before": before, **facts}.items():
            columns[name].append(value)
    return columns


def _run_ref(row: Mapping[str, Any]) -> RunRef:
    """Inverse of `_run_columns`, for one row."""
    facts = {name: row[name] for name in _FACTS.names.values()}
    facts["hash"] = int.from_bytes(row["hash"], "little")
    return RunRef(row["name"], row["digest"], _FACTS.value(facts))


def _header(state: State) -> dict[str, Any]:
    return {
        "version": state.version,
        "timestamp_ms": state.timestamp_ms,
        "schemas": [schema.to_json() for schema in state.schemas.values()],
        "schema_version": state.schema_version,
        "dropped": state.dropped,
        # Omitted where it is 0, so that hashes of checkpoints written before this field existed still hold.
        **({"dropped_version": state.dropped_version} if state.dropped_version else {}),
        "block_counter": state.block_counter,
        "floors": dict(state.floors),
        "floor": state.floor,
        **({"holes": {name: list(map(str, held)) for name, held in state.holes.items()}} if state.holes else {}),
        # Lists, not objects: a window is first in, first out, and its order is part of the state.
        "tokens": listed(state.tokens),
        "hashes": listed(state.hashes),
        "detached": len(state.detached),
        **({"detached_lack": _lacked(state)} if any(part.lacks for part in state.detached) else {}),
        "volatile": [
            {
                **dict(_VOLATILE.items(part)),
                "info": part.name,
                "sources": [[id, str(info)] for id, info in part.sources],
                "recipe": dict(RECIPE.items(part.recipe)),
            }
            for name in sorted(state.volatile)
            for part in state.volatile[name]
        ],
        "mutations": [_mutation(mutation) for mutation in state.mutations],
        "tags": dict(state.tags),
        **({"tagged_partitions": dict(state.tagged_partitions)} if state.tagged_partitions else {}),
        "holds": {holder: list(held) for holder, held in state.holds.items()},
        "leases": {node: _lease(lease) for node, lease in state.leases.items()},
        "fence": state.fence,
        "history": state.history,
        "sequencer": [state.sequencer.url, state.sequencer.since],
        **({"joint": _joint(state)} if state.joint else {}),
    }


def _joint(state: State) -> dict[str, list[int]]:
    return {name: [joint.version, joint.other, joint.timestamp_ms] for name, joint in sorted(state.joint.items())}


def _mutation(mutation: PendingMutation) -> dict[str, Any]:
    fields = dict(_MUTATION.items(mutation))
    if not mutation.since:  # as before it existed: so old hashes still hold
        del fields["since"]
    return {**fields, "failure": dict(_FAILURE.items(mutation.failure))} if mutation.failure is not None else fields


def _read_mutation(raw: dict[str, Any]) -> PendingMutation:
    failure = raw.get("failure")
    return _MUTATION.value({**tuples(raw), "failure": _FAILURE.value(failure) if failure else None})


def _versions(mutations: Sequence[PendingMutation]) -> list[int]:
    return [mutation.version for mutation in mutations]


def _lacked(state: State) -> list[Any]:
    """The mutations that detached parts lack, and for each of these parts their versions."""
    lacked = {mutation.version: mutation for part in state.detached for mutation in part.lacks}
    return [
        [_mutation(lacked[version]) for version in sorted(lacked)],
        [_versions(part.lacks) for part in state.detached],
    ]


def _detached(root: Root) -> tuple[DetachedPart, ...]:
    raw, lacked = root.header.get("detached_lack", ((), [()] * len(root.aside)))
    known = {mutation.version: mutation for mutation in map(_read_mutation, raw)}
    return tuple(
        DetachedPart(part.info, part.manifest, part.added, part.added_ms, tuple(known[version] for version in versions))
        for part, versions in zip(root.aside, lacked, strict=True)
    )


def _lease(lease: Lease) -> list[Any]:
    """Trailing fields with their defaults are omitted, as before they existed: so old hashes still hold."""
    fields = [lease.version, lease.until_ms, lease.address, lease.token, lease.disk]
    while len(fields) > 2 and not fields[-1]:
        fields.pop()
    return fields


def _partitions(root: Root, segments: Segments | None) -> Partitions:
    header, layout = root.header, root.layout
    if layout.names and segments is not None:
        segments.remember(header["version"], layout)
    if "totals" not in header:
        return Partitions.of(layout.inline)
    parts, rows, size, digest, *masked = header["totals"]
    held: dict[str, Held] = dict(layout.inline)
    if layout.members:
        if segments is None:
            raise InternalError(f"The checkpoint {root.key} has segments, and nobody said where they are")
        segments.open_eagerly(layout.refs)
        held.update(stored_partitions(header["version"], layout, layout.placed, segments))
    return Partitions.stored(
        held, Totals(parts, rows, size, int(digest, 16), sum(masked)), header["version"], frozenset(layout.members)
    )


def _retired(root: Root, segments: Segments | None) -> Retired:
    inline = retired_of(lists_of(root.retired))
    stored = segments.runs.stored(root.header["version"], root.layout.runs) if segments is not None else []
    if len(stored) < len(root.layout.runs):
        raise InternalError(f"The checkpoint {root.key} has segments, and nobody said where they are")
    runs: list[Run] = []
    at = 0
    for run, before in zip(stored, root.before, strict=True):
        runs += (*memory_runs(inline[at:before]), run)
        at = before
    return Retired.of((*runs, *memory_runs(inline[at:])))


def _state(root: Root, segments: Segments | None) -> State:
    header = root.header
    return State(
        version=header["version"],
        timestamp_ms=header["timestamp_ms"],
        schemas={raw["version"]: TableSchema.from_json(raw) for raw in header["schemas"]},
        schema_version=header["schema_version"],
        dropped=header["dropped"],
        dropped_version=header.get("dropped_version", 0),
        block_counter=header["block_counter"],
        rows_version=header.get("rows_version", header["version"]),
        partitions=_partitions(root, segments),
        floors=dict(header["floors"]),
        floor=header["floor"],
        holes={name: tuple(map(PartInfo.parse, held)) for name, held in header.get("holes", {}).items()},
        drops=dict(header.get("drops", {})),
        drop=header.get("drop", 0),
        firsts=dict(header.get("firsts", {})),
        tokens=window_of(header["tokens"]),
        hashes=window_of(header["hashes"]),
        retired=_retired(root, segments),
        volatile=_volatile(header["volatile"]),
        mutations=tuple(map(_read_mutation, header["mutations"])),
        detached=_detached(root),
        tags=header["tags"],
        tagged_partitions=tuples(header.get("tagged_partitions", {})),
        holds=tuples(header["holds"]),
        leases={node: Lease(*lease) for node, lease in header["leases"].items()},
        fence=header["fence"],
        history=header["history"],
        sequencer=Sequencer(*header["sequencer"]),
        written=_written(header),
        joint={name: Joint(*fields) for name, fields in header.get("joint", {}).items()},
    )


def _written(header: dict[str, Any]) -> WrittenBytes:
    """Of a checkpoint from before it was counted: as if all bytes of the parts had been inserted."""
    if "written" in header:
        return WrittenBytes(*header["written"])
    return WrittenBytes(inserted=header["totals"][2] if "totals" in header else 0)


def _volatile(raw: list[dict[str, Any]]) -> dict[str, tuple[VolatilePart, ...]]:
    out: dict[str, tuple[VolatilePart, ...]] = {}
    for fields in raw:
        info = PartInfo.parse(fields["info"])
        sources = tuple((id, PartInfo.parse(name)) for id, name in fields["sources"])
        recipe = RECIPE.value(fields["recipe"])
        part = _VOLATILE.value({**fields, "info": info, "sources": sources, "recipe": recipe})
        out[info.partition_id] = (*out.get(info.partition_id, ()), part)
    return out
