"""What a node is at, as one value: for `/status`, `/metrics`, `mergelake top`, and anybody who asks `Node.report`.

Times are milliseconds since 1970-01-01 UTC, by the clock of the node; sizes are bytes.
"""

from __future__ import annotations

import msgspec

from mergelake.core.model.settings import TableSettings
from mergelake.core.model.stored_form import stored
from mergelake.jobs.node.progress import Running
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves

STATUS_SERVICE = "status"
"""Service of a node's listener (`store.peer`): answers any request with its report."""
VOLATILE_MAX = 1000
"""Volatile parts of a table that a report lists."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A long action under way: see `progress.Running` for the fields."""

    table: str = stored("table")
    partition_id: str = stored("partition_id")
    part: str = stored("part")
    kind: str = stored("kind")
    parts: int = stored("parts")
    rows: int = stored("rows")
    rows_done: int = stored("rows_done")
    bytes: int = stored("bytes")
    bytes_done: int = stored("bytes_done")
    started_ms: int = stored("started_ms")

    @staticmethod
    def of(table: str, running: Running) -> Work:
        """The numbers as they are now."""
        names = (name for name in Work.__struct_fields__ if name != "table")
        return Work(table=table, **{name: getattr(running, name) for name in names})

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1."""
        done, total = (self.bytes_done, self.bytes) if self.kind == "upload" else (self.rows_done, self.rows)
        return min(1.0, done / total) if total else 0.0


class VolatileWork(msgspec.Struct, frozen=True, kw_only=True):
    """A Live volatile part, from the log: of any node."""

    table: str = stored("table")
    partition_id: str = stored("partition_id")
    part: str = stored("part")
    id: str = stored("id")
    owner: str = stored("owner")
    parts: int = stored("parts")
    """Active parts that it covers; so are `rows` and `bytes`."""
    rows: int = stored("rows")
    bytes: int = stored("bytes")
    since_ms: int = stored("since_ms")
    state: str = stored("state", default="live")
    """`live` (committed), `building`, `ready` (its bytes are on the disk), `uploading`; what only the owner knows, in
    its own report."""


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """Work that is left alone for a while because it failed."""

    table: str = stored("table")
    partition_id: str = stored("partition_id")
    """Empty: the whole table."""
    blocks: str = stored("blocks")
    """`min-max` of the block numbers; empty: all."""
    reason: str = stored("reason")
    until_ms: int = stored("until_ms")


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """A table at the version that is known."""

    table: str = stored("table")
    version: int = stored("version")
    parts: int = stored("parts")
    partitions: int = stored("partitions")
    most_parts: int = stored("most_parts")
    """Parts of the partition with most."""
    rows: int = stored("rows")
    bytes: int = stored("bytes")
    """Of the active parts."""
    volatile: int = stored("volatile")
    """Live volatile parts of all nodes."""
    bytes_inserted: int = stored("bytes_inserted")
    bytes_merged: int = stored("bytes_merged")
    """By merges in the background."""
    bytes_requested: int = stored("bytes_requested")
    """By OPTIMIZE."""
    write_amplification: float = stored("write_amplification")
    """Bytes that inserts and merges in the background wrote, by bytes inserted."""
    write_amplification_target: float = stored("write_amplification_target")
    """The setting of this name; 0: none."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and bytes of a process to the store since its start: `store.interface.protocol.Counters`."""

    put: int = stored("put", default=0)
    get: int = stored("get", default=0)
    list: int = stored("list", default=0)
    head: int = stored("head", default=0)
    delete: int = stored("delete", default=0)
    retries: int = stored("retries", default=0)
    bytes_put: int = stored("bytes_put", default=0)
    bytes_get: int = stored("bytes_get", default=0)


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment."""

    node: str = stored("node")
    now_ms: int = stored("now_ms")
    started_ms: int = stored("started_ms")
    roles: list[str] = stored("roles")
    slots: int = stored("slots")
    healthy: bool = stored("healthy")
    """Whether it has looked for work lately, and the store answers."""
    draining: bool = stored("draining")
    disk: bool = stored("disk")
    """Whether it has a disk for volatile parts."""
    disk_free_bytes: int | None = stored("disk_free_bytes")
    """None: not known, or no disk."""
    disk_parts_bytes: int = stored("disk_parts_bytes")
    """Of the parts on its disk: volatile ones, and published ones that stay as a cache."""
    memory_bytes: int = stored("memory_bytes")
    """Resident memory of its process; 0 where the system does not say."""
    counters: dict[str, int] = stored("counters")
    """Since its start: `status.NodeStatus`."""
    last_error: str = stored("last_error")
    requests: Requests = stored("requests")
    running: list[Work] = stored("running")
    volatile: list[VolatileWork] = stored("volatile")
    """Its own ones."""
    back_offs: list[BackOff] = stored("back_offs")
    tables: list[TableReport] = stored("tables")


def table_report(table: str, state: State) -> TableReport:
    """The facts of a table that is not dropped, without a request."""
    totals, written = state.partitions.totals, state.written
    return TableReport(
        table=table,
        version=state.version,
        parts=totals.parts,
        partitions=len(state.partitions),
        most_parts=state.partitions.most,
        rows=totals.rows,
        bytes=totals.bytes_on_disk,
        volatile=sum(map(len, state.volatile.values())),
        bytes_inserted=written.inserted,
        bytes_merged=written.merged,
        bytes_requested=written.requested,
        write_amplification=written.amplification,
        write_amplification_target=TableSettings(state.schema.settings).number("write_amplification_target"),
    )


def volatile_work(table: str, state: State, owner: str | None = None) -> list[VolatileWork]:
    """The Live volatile parts of a table (of one owner), the oldest first, at most `VOLATILE_MAX`."""
    live = [part for held in state.volatile.values() for part in held if owner in (None, part.owner)]
    out = []
    for part in sorted(live, key=lambda part: part.added)[:VOLATILE_MAX]:
        covered = leaves(state.partitions.get(part.info.partition_id, ()), part.info)
        out.append(
            VolatileWork(
                table=table,
                partition_id=part.info.partition_id,
                part=part.name,
                id=part.id,
                owner=part.owner,
                parts=len(covered),
                rows=sum(leaf.manifest.rows for leaf in covered),
                bytes=sum(leaf.manifest.bytes_on_disk for leaf in covered),
                since_ms=part.added_ms,
            )
        )
    return out


def encode_report(report: NodeReport) -> bytes:
    """JSON, with the fields as they are called here."""
    return msgspec.json.encode(report)


def decode_report(data: bytes) -> NodeReport:
    """Inverse of `encode_report`; fields that are not known are ignored. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(data, type=NodeReport)
