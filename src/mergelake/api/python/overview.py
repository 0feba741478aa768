"""A warehouse and its nodes at one moment, for `mergelake top`: from the logs, and from the nodes that answer."""

from __future__ import annotations

import heapq
import http.client
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from mergelake.api.python.warehouse import Warehouse
from mergelake.jobs.node.report import (
    STATUS_SERVICE,
    BackOff,
    NodeReport,
    Requests,
    TableReport,
    VolatileWork,
    Work,
    decode_report,
    table_report,
    volatile_work,
)
from mergelake.log.model.state import Lease, State
from mergelake.store.peer.client import NotSent, UnknownOutcome
from mergelake.table.handle.handle import TableHandle

ANSWER_S = 2.0
"""Seconds that a node has to answer."""
_SILENT = (OSError, ValueError, http.client.HTTPException, NotSent, UnknownOutcome, msgspec.MsgspecError)
"""What a node that does not answer, or not as one, raises."""
PARTITIONS_SHOWN = 100
"""Partitions that an overview lists, those with most parts first."""


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as its leases and its report show it."""

    node: str
    state: str
    """`live`: its lease lasts, or it answers; `expired`: its lease ended; `leaving`."""
    lease_left_ms: int | None
    """By this machine's clock, negative once it has expired; None: it has no lease, as it owns nothing."""
    address: str
    """Where it takes commits of others; empty: nowhere."""
    disk: bool
    volatile: int
    """Live volatile parts that it owns."""
    report: NodeReport | None
    """None: it was not asked, or does not answer."""


class NodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """A long action of a node."""

    node: str
    work: Work


class PartitionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, by its active parts."""

    table: str
    partition_id: str
    parts: int
    rows: int
    bytes: int
    level: int
    """The highest."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown."""

    url: str
    now_ms: int
    nodes: list[NodeSeen]
    running: list[NodeWork]
    volatile: list[VolatileWork]
    """Live volatile parts that nobody builds or uploads now, as far as it is known."""
    tables: list[TableReport]
    partitions: list[PartitionSeen]
    """Those with most parts."""
    back_offs: list[BackOff]
    silent: dict[str, str]
    """Nodes that were asked and did not answer, by address, and why."""

    @property
    def requests(self) -> Requests:
        """Requests and bytes of the nodes that answered."""
        reports = [seen.report.requests for seen in self.nodes if seen.report is not None]
        names = Requests.__struct_fields__
        return Requests(**{name: sum(getattr(each, name) for each in reports) for name in names})


def overview(
    url: str, states: Mapping[str, State], reports: Sequence[NodeReport], silent: Mapping[str, str], now_ms: int
) -> Overview:
    """What the states of tables, by name, and the reports of some nodes show together. Pure, but for parts of large
    tables that were not read yet.
    """
    open_states = {name: state for name, state in states.items() if not state.dropped}
    told = {report.node: report for report in reports}
    live = [part for name, state in open_states.items() for part in volatile_work(name, state)]
    known = {(part.table, part.id): part.state for report in reports for part in report.volatile}
    live = [msgspec.structs.replace(part, state=known.get((part.table, part.id), "live")) for part in live]
    running = [NodeWork(node=report.node, work=work) for report in reports for work in report.running]
    shown = {(each.work.table, each.work.part) for each in running}
    return Overview(
        url=url,
        now_ms=now_ms,
        nodes=_nodes(open_states.values(), told, live, now_ms),
        running=sorted((each for each in running if each.work.table in states), key=lambda each: each.work.started_ms),
        volatile=[part for part in live if (part.table, part.part) not in shown],
        tables=[table_report(name, state) for name, state in open_states.items()],
        partitions=_partitions(open_states),
        back_offs=[each for report in reports for each in report.back_offs if each.table in states],
        silent=dict(silent),
    )


def observe(warehouse: Warehouse, tables: Mapping[str, TableHandle], addresses: Sequence[str]) -> Overview:
    """An overview of these tables, after a refresh of each; `addresses` are URLs of nodes' `/status`.

    Nodes that listen for commits are found by their leases, and asked too.
    """
    states = {name: handle.refresh() for name, handle in tables.items()}
    leases = [lease for state in states.values() for lease in state.leases.values()]
    reports, silent = reports_of(warehouse, leases, addresses)
    return overview(warehouse.url, states, list(reports.values()), silent, warehouse.clock.now_ms())


def reports_of(
    warehouse: Warehouse, leases: Iterable[Lease], addresses: Sequence[str] = ()
) -> tuple[dict[str, NodeReport], dict[str, str]]:
    """The reports of the nodes that answer, by name, and why others do not, by address.

    Asked are `addresses`, URLs of `/status`, and the nodes whose leases have an address, `ANSWER_S` seconds at most.
    """
    reports: dict[str, NodeReport] = {}
    silent: dict[str, str] = {}

    def ask(address: str, call: Callable[[], bytes]) -> None:
        try:
            report = decode_report(call())
            reports.setdefault(report.node, report)
        except _SILENT as problem:
            silent[address] = str(problem) or type(problem).__name__

    for address in addresses:
        ask(address, partial(_fetched, address))
    peers = warehouse.backends.peers
    if peers is not None:
        for address, token in sorted({(lease.address, lease.token) for lease in leases if lease.address}):
            ask(address, partial(peers.call, address, token, STATUS_SERVICE, b"", ANSWER_S))
    return reports, silent


def _fetched(address: str) -> bytes:
    """The body of a node's `/status`."""
    url = address if "://" in address else f"http://{address}"
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https"):
        raise ValueError(f"'{address}' is no address of a node's /status")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url if rest.strip("/").count("/") else f"{url.rstrip('/')}/status", timeout=ANSWER_S) as answer:
        return bytes(answer.read())


def _nodes(
    states: Iterable[State], told: Mapping[str, NodeReport], live: Sequence[VolatileWork], now_ms: int
) -> list[NodeSeen]:
    leases: dict[str, int] = {}
    addresses: dict[str, str] = {}
    disks: set[str] = set()
    for state in states:
        for node, lease in state.leases.items():
            leases[node] = max(lease.until_ms, leases.get(node, 0))
            addresses[node] = lease.address or addresses.get(node, "")
            disks |= {node} if lease.disk else set()
    out = []
    for node in sorted({*leases, *told, *(part.owner for part in live)}):
        report = told.get(node)
        left_ms = leases[node] - now_ms if node in leases else None
        alive = report is not None or (left_ms is not None and left_ms > 0)
        out.append(
            NodeSeen(
                node=node,
                state="leaving" if report is not None and report.draining else "live" if alive else "expired",
                lease_left_ms=left_ms,
                address=addresses.get(node, ""),
                disk=node in disks or (report is not None and report.disk),
                volatile=sum(part.owner == node for part in live),
                report=report,
            )
        )
    return out


def _partitions(states: Mapping[str, State]) -> list[PartitionSeen]:
    """The partitions with most parts; only their parts are read."""
    sizes = (
        (len(state.partitions.held(partition_id)), name, partition_id)
        for name, state in states.items()
        for partition_id in state.partitions
    )
    out = []
    for count, name, partition_id in heapq.nlargest(PARTITIONS_SHOWN, sizes):
        parts = states[name].partitions[partition_id]
        out.append(
            PartitionSeen(
                table=name,
                partition_id=partition_id,
                parts=count,
                rows=sum(part.manifest.rows for part in parts),
                bytes=sum(part.manifest.bytes_on_disk for part in parts),
                level=max(part.info.level for part in parts),
            )
        )
    return out
