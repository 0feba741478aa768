"""A node's report in the text format of Prometheus (version 0.0.4). Pure.

Names end with their unit, counters with `_total`; what a table is called is a label. Of very many tables only the
`TABLES_MAX` with most parts have series of their own, so that the number of series is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mergelake.jobs.node.report import NodeReport, TableReport, Work

TABLES_MAX = 200
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COUNTERS = {
    "ticks": ("ticks_total", "Looks for work"),
    "merges_started": ("merges_started_total", "Merges begun"),
    "merges_done": ("merges_done_total", "Merges whose result is in the store or on the disk of the node"),
    "merges_failed": ("merges_failed_total", "Failures of merges, mutations, uploads and looks at tables"),
    "merges_lost": ("merges_lost_total", "Merges whose sources another writer had replaced or dropped first"),
    "merges_abandoned": ("merges_abandoned_total", "Merges given up because the node left"),
    "merges_past_disk": ("merges_past_disk_total", "Merges written to the store because the disk was full"),
    "merges_past_target": ("merges_past_target_total", "Merges and uploads beyond write_amplification_target"),
    "parts_mutated": ("parts_mutated_total", "Parts rewritten or marked for mutations"),
    "rows_merged": ("merged_rows_total", "Rows of the sources of merges that are done"),
    "bytes_merged": ("merged_bytes_total", "Bytes of the sources of merges that are done"),
    "bytes_uploaded": ("uploaded_bytes_total", "Bytes of volatile parts written to the store"),
    "volatile_proposed": ("volatile_proposed_total", "Volatile parts committed"),
    "volatile_adopted": ("volatile_adopted_total", "Volatile parts taken over from silent nodes"),
    "volatile_cancelled": ("volatile_cancelled_total", "Volatile parts given up"),
    "volatile_published": ("volatile_published_total", "Volatile parts published"),
    "results_different": ("results_different_total", "Parts that another node published with other rows; must be 0"),
    "objects_collected": ("objects_collected_total", "Objects deleted because no kept version needs them"),
}
_TABLES = {
    "parts": ("table_parts", "Active parts"),
    "partitions": ("table_partitions", "Partitions"),
    "most_parts": ("table_partition_parts_max", "Active parts of the partition with most"),
    "rows": ("table_rows", "Rows of active parts"),
    "bytes": ("table_bytes", "Bytes of active parts"),
    "volatile": ("table_volatile_parts", "Live volatile parts of all nodes"),
    "write_amplification": (
        "table_write_amplification_ratio",
        "Bytes that inserts and merges wrote, by bytes inserted",
    ),
}


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Mapping[str, str], float]]

    def lines(self) -> Iterable[str]:
        samples = [f"{self.name}{_labels(labels)} {_number(value)}" for labels, value in self.samples]
        if samples:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} {self.kind}"
            yield from samples


def prometheus_text(report: NodeReport) -> str:
    """The report as a page of metrics."""
    return "".join(f"{line}\n" for family in _families(report) for line in family.lines())


def _families(report: NodeReport) -> Iterable[_Family]:
    tables = sorted(report.tables, key=lambda table: (-table.parts, table.table))[:TABLES_MAX]
    names = {table.table for table in tables}
    yield _gauge("node_info", "The node", [({"node": report.node, "roles": ",".join(report.roles)}, 1)])
    yield _gauge("node_start_time_seconds", "When it was started, since 1970", [({}, report.started_ms / 1000)])
    yield _gauge("node_healthy", "1: it looks for work, and the store answers", [({}, report.healthy)])
    yield _gauge("node_draining", "1: it leaves", [({}, report.draining)])
    yield _gauge("node_slots", "Merges that it runs at a time", [({}, report.slots)])
    yield _Family(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory",
        [({}, report.memory_bytes)] if report.memory_bytes else [],
    )
    if report.disk:
        yield _gauge("disk_parts_bytes", "Bytes of parts on the disk of the node", [({}, report.disk_parts_bytes)])
    if report.disk_free_bytes is not None:
        left = "Bytes that the node may still use of its disk"
        yield _gauge("disk_free_bytes", left, [({}, report.disk_free_bytes)])
    yield from _work("merges_running", [work for work in report.running if work.kind != "upload"], names)
    yield from _work("uploads_running", [work for work in report.running if work.kind == "upload"], names)
    states: dict[tuple[str, str], int] = {}
    for part in report.volatile:
        states[part.table, part.state] = states.get((part.table, part.state), 0) + 1
    yield _gauge(
        "volatile_parts",
        "The node's volatile parts by state",
        [({"table": table, "state": state}, n) for (table, state), n in sorted(states.items()) if table in names],
    )
    waiting: dict[str, int] = {}
    for each in report.back_offs:
        waiting[each.table] = waiting.get(each.table, 0) + 1
    yield _gauge(
        "back_offs",
        "Ranges of blocks, and tables, that are left alone after failures",
        [({"table": table}, n) for table, n in sorted(waiting.items()) if table in names],
    )
    for field, (name, text) in _COUNTERS.items():
        yield _Family(f"mergelake_{name}", "counter", text, [({}, report.counters.get(field, 0))])
    requests = report.requests
    yield _Family(
        "mergelake_store_requests_total",
        "counter",
        "Requests to the store",
        [({"method": method}, getattr(requests, method)) for method in ("put", "get", "list", "head", "delete")],
    )
    yield _Family("mergelake_store_retries_total", "counter", "Requests repeated", [({}, requests.retries)])
    yield _Family("mergelake_store_sent_bytes_total", "counter", "Bytes sent", [({}, requests.bytes_put)])
    yield _Family("mergelake_store_received_bytes_total", "counter", "Bytes received", [({}, requests.bytes_get)])
    for field, (name, text) in _TABLES.items():
        yield _gauge(name, text, [({"table": table.table}, getattr(table, field)) for table in tables])
    yield _Family("mergelake_table_written_bytes_total", "counter", "Bytes of parts written", _written(tables))
    yield _gauge("tables", "Tables that it looks after", [({}, len(report.tables))])
    yield _gauge("tables_left_out", "Tables without series of their own", [({}, len(report.tables) - len(tables))])


def _written(tables: Iterable[TableReport]) -> list[tuple[Mapping[str, str], float]]:
    return [
        ({"table": table.table, "by": by}, size)
        for table in tables
        for by, size in (
            ("insert", table.bytes_inserted),
            ("merge", table.bytes_merged),
            ("optimize", table.bytes_requested),
        )
    ]


def _work(name: str, works: list[Work], tables: set[str]) -> Iterable[_Family]:
    groups: dict[tuple[str, str], list[Work]] = {}
    for work in works:
        if work.table in tables:
            groups.setdefault((work.table, work.kind), []).append(work)
    found = [({"table": table, "kind": kind}, group) for (table, kind), group in sorted(groups.items())]
    yield _gauge(name, "Actions under way", [(labels, len(group)) for labels, group in found])
    for field in ("rows", "rows_done", "bytes", "bytes_done"):
        unit, done = field.partition("_")[::2]
        text = f"{unit.capitalize()} of the actions under way{', so far' if done else ''}"
        samples = [(labels, float(sum(getattr(each, field) for each in group))) for labels, group in found]
        yield _gauge(f"{name}_{f'{done}_' if done else ''}{unit}", text, samples)


def _gauge(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> _Family:
    return _Family(f"mergelake_{name}", "gauge", text, samples)


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
