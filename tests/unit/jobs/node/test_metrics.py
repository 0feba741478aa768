"""What a node says of itself: reports, metrics in the format of Prometheus, HTTP, logs as JSON."""

import http.client
import json
import logging
import re
import socket
import threading
from io import StringIO

import msgspec
import pytest

from mergelake.api.cli.log_format import JsonFormatter
from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import InternalError, MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.node.metrics import TABLES_MAX, prometheus_text
from mergelake.jobs.node.report import NodeReport, decode_report, encode_report
from mergelake.jobs.node.status_server import REQUESTS_MAX, StatusServer
from mergelake.jobs.node.throttle import Throttle
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

SCHEMA = define({"k": "UInt64"}, order_by="k", settings={"min_age_to_force_merge_seconds": 1})
_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def parsed(text):
    """Strictly: families as (kind, {labels: value}); each has HELP and TYPE, all its samples, no sample twice."""
    families, name = {}, None
    assert text.endswith("\n")
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in families
            kind_line = next(lines)
            assert kind_line.startswith(f"# TYPE {name} ")
            kind = kind_line.split(" ")[3]
            assert kind in ("gauge", "counter")
            assert name.endswith("_total") == (kind == "counter"), name
            families[name] = (kind, {})
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] == name, line
        labels = frozenset(
            (key, value.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
            for key, value in _LABEL.findall(match[2] or "")
        )
        assert labels not in families[name][1]
        families[name][1][labels] = float(match[3])
    return families


def value(families, name, **labels):
    return families[f"mergelake_{name}"][1][frozenset(labels.items())]


def crowded(store, *names, **options):
    warehouse = Warehouse(store, clock=ManualClock(), ids=SeededIds(1), threads=1)
    for name in names:
        table = warehouse.create_table(name, SCHEMA, **options)
        for n in range(12):
            table.append({"k": [n]})
    return warehouse


def settled(node):
    while node.step() or not node.idle():
        pass


def get(address, path, method="GET"):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.headers["Content-Type"], response.read()


def test_a_report_says_what_was_merged_and_what_the_tables_are_like():
    node = crowded(MemoryStore(), "a", "b").node("n1", local=MemoryStore())
    settled(node)
    report = node.report()
    assert (report.node, report.healthy, report.disk, report.running) == ("n1", True, True, [])
    assert report.counters["merges_done"] == node.status.merges_done > 0
    assert report.counters["rows_merged"] >= 24
    assert [(each.table, each.rows) for each in report.tables] == [("default.a", 12), ("default.b", 12)]
    assert {each.state for each in report.volatile} <= {"ready"}
    assert len(report.volatile) == sum(each.volatile for each in report.tables)
    assert report.requests.put > 0
    assert report.memory_bytes > 1 << 20
    assert decode_report(encode_report(report)) == report
    node.drain()
    assert node.report().draining


def test_a_merge_that_runs_is_in_the_report_with_its_progress():
    warehouse = crowded(MemoryStore(), "a")
    node = warehouse.node("n1", local=MemoryStore())
    seen = []
    real = node._build

    def build(handle, task, disk, unwanted):
        seen.append(node.report())
        node.watch(handle, task)(5)
        seen.append(node.report())
        return real(handle, task, disk, unwanted)

    node._build = build
    settled(node)
    before, after = seen[0].running[0], seen[1].running[0]
    assert (before.table, before.kind, before.rows_done, after.rows_done) == ("default.a", "volatile", 0, 5)
    assert before.rows >= 5
    assert before.parts >= 2
    assert before.part.startswith("all_1_")
    assert 0 < after.share <= 1
    assert [each.state for each in seen[0].volatile] == ["building"]
    families = parsed(prometheus_text(seen[1]))
    assert value(families, "merges_running", table="default.a", kind="volatile") == 1
    assert value(families, "merges_running_done_rows", table="default.a", kind="volatile") == 5
    assert value(families, "volatile_parts", table="default.a", state="building") == 1
    assert node.report().running == []


def test_metrics_of_a_real_node_follow_the_conventions():
    node = crowded(MemoryStore(), "a").node('n"1\\\n', roles=["merge"])
    settled(node)
    families = parsed(prometheus_text(node.report()))
    assert value(families, "node_info", node='n"1\\\n', roles="merge") == 1
    assert value(families, "table_rows", table="default.a") == 12
    assert value(families, "merges_done_total") == node.status.merges_done
    assert value(families, "store_requests_total", method="put") > 0
    assert value(families, "table_written_bytes_total", table="default.a", by="insert") > 0
    assert value(families, "table_write_amplification_ratio", table="default.a") > 1
    assert set(node.status.counters()) == {
        name for name in node.status.counters() if f"mergelake_{_counter_of(name)}" in families
    }


def _counter_of(field):
    unit, _, doing = field.partition("_")
    return f"{doing}_{unit}_total" if unit in ("rows", "bytes") else f"{field}_total"


def test_the_number_of_series_is_bounded():
    report = crowded(MemoryStore(), "a").node()
    report.step()
    report = report.report()
    tables = [msgspec.structs.replace(report.tables[0], table=f"t{n}", parts=n) for n in range(1000)]
    families = parsed(prometheus_text(msgspec.structs.replace(report, tables=tables)))
    assert len(families["mergelake_table_parts"][1]) == TABLES_MAX
    assert value(families, "table_parts", table="t999") == 999
    assert value(families, "tables_left_out") == 1000 - TABLES_MAX


def test_http_answers_read_only_and_says_when_the_store_is_down():
    class Flaky(MemoryStore):
        silent = False

        def get(self, key):
            if self.silent:
                raise UnavailableError("the store does not answer")
            return super().get(key)

    store = Flaky()
    node = crowded(store, "a").node("n1")
    node.step()
    with StatusServer("127.0.0.1:0", node.report) as served:
        status, kind, body = get(served.address, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert value(parsed(body.decode()), "tables") == 1
        status, kind, body = get(served.address, "/status?pretty")
        assert (status, kind, decode_report(body).node) == (200, "application/json", "n1")
        assert get(served.address, "/healthz")[::2] == (200, b"ok\n")
        assert get(served.address, "/healthz", "HEAD")[::2] == (200, b"")
        assert get(served.address, "/../etc/passwd")[0] == 404
        assert get(served.address, "/status", "POST")[0] == 501
        store.silent = True
        node.step()
        assert get(served.address, "/healthz")[0] == 503
    with pytest.raises(OSError, match="refused"):
        get(served.address, "/healthz")
    node.abandon.set()


def test_idle_and_rude_clients_do_not_keep_others_out_for_long(monkeypatch):
    monkeypatch.setattr("mergelake.jobs.node.status_server._Handler.timeout", 0.2)
    node = crowded(MemoryStore()).node()
    with StatusServer("127.0.0.1:0", node.report) as served:
        host, port = served.address.split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(REQUESTS_MAX + 5)]
        idle[0].sendall(b"\0\xff garbage\r\n\r\n")
        for _ in range(100):
            try:
                assert get(served.address, "/healthz")[0] == 200
                break
            except OSError:
                threading.Event().wait(0.05)
        else:
            raise AssertionError("nobody answers")
        for each in idle:
            each.close()


def test_addresses_that_cannot_be_had_are_refused():
    taken = socket.create_server(("127.0.0.1", 0))
    for address in ("nowhere", "127.0.0.1:99999", f"127.0.0.1:{taken.getsockname()[1]}"):
        with pytest.raises(MergelakeError) as refusal:
            StatusServer(address, lambda: None)
        assert refusal.value.name == "BAD_ARGUMENTS"
    taken.close()


def test_a_failing_range_is_left_alone_while_the_others_are_merged():
    warehouse = Warehouse(MemoryStore(), clock=ManualClock(), ids=SeededIds(1), threads=1)
    schema = define({"k": "UInt64"}, order_by="k", partition_by="k % 3", settings={"min_age_to_force_merge_seconds": 1})
    table = warehouse.create_table("t", schema)
    for n in range(36):
        table.append({"k": [n]})
    node = warehouse.node("n1")
    real = node._run_merge

    def run_merge(handle, task):
        if task.result.partition_id == "1":
            raise InternalError("out of luck")
        return real(handle, task)

    node._run_merge, node._run_joined = run_merge, None
    warehouse.clock.advance_s(10)
    settled(node)
    report = node.report()
    assert {(each.table, each.partition_id) for each in report.back_offs} == {("default.t", "1")}
    assert all("out of luck" in each.reason and each.until_ms > report.now_ms for each in report.back_offs)
    table.refresh()
    assert {part.info.partition_id for part in table.snapshot().parts if part.info.level} == {"0", "2"}
    assert node.status.merges_failed == 1
    families = parsed(prometheus_text(report))
    assert value(families, "back_offs", table="default.t") >= 1
    node.drain()


def test_logs_are_one_json_object_a_line():
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter("n1"))
    logger = logging.getLogger("mergelake")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        node = crowded(MemoryStore(), "a").node("n1", local=MemoryStore())
        settled(node)
        node.drain()
        logging.getLogger("mergelake.node").error('odd "text"\nin two lines')
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    merges = [line for line in lines if line["event"] == "merge"]
    assert merges
    assert {
        "ts",
        "level",
        "event",
        "message",
        "node",
        "table",
        "partition",
        "kind",
        "parts",
        "rows",
        "bytes",
        "seconds",
    } <= (merges[0].keys())
    assert (merges[0]["table"], merges[0]["partition"], merges[0]["node"]) == ("default.a", "all", "n1")
    assert merges[0]["get"] > 0
    assert merges[0]["bytes_get"] > 0
    assert {line["kind"]: line["put"] for line in merges} == {"volatile": 0}, "they write to the node's disk"
    assert all(line["put"] > 0 for line in lines if line["event"] == "upload")
    assert lines[-1]["message"] == 'odd "text"\nin two lines'


def test_uploads_wait_for_their_share_and_may_be_given_up():
    clock = ManualClock()
    throttle = Throttle(1000, clock)
    began = clock.monotonic_s()
    assert throttle.take(1000)
    assert clock.monotonic_s() == began
    for _ in range(5):
        assert throttle.take(2000)
    assert clock.monotonic_s() - began == pytest.approx(10, abs=0.2)
    clock.sleep_s(100)
    began = clock.monotonic_s()
    assert throttle.take(1000)
    assert clock.monotonic_s() == began
    assert not throttle.take(1 << 30, lambda: True)
    with pytest.raises(ValueError, match="rate"):
        Throttle(0, clock)


def test_caps_are_validated():
    warehouse = crowded(MemoryStore())
    for options in (
        {"max_upload_bytes_per_s": 0},
        {"max_disk_bytes": -1, "local": "x"},
        {"max_disk_bytes": 5},
        {"slots": 0},
    ):
        with pytest.raises(MergelakeError) as refusal:
            warehouse.node(**options)
        assert refusal.value.name == "BAD_ARGUMENTS"


def test_a_node_keeps_no_more_on_its_disk_than_it_may():
    sizes = {}
    for limit in (None, 500):
        disk = MemoryStore()
        node = crowded(MemoryStore(), "a", "b").node("n1", local=disk, max_disk_bytes=limit)
        settled(node)
        sizes[limit] = sum(item.size for item in disk.list("") if "/volatile/" not in item.key)
        assert node.report().disk_parts_bytes == sizes[limit]
        assert node.status.merges_done > 0
        assert (node.status.merges_past_disk > 0) == (limit is not None)
    assert sizes[500] <= 500 < sizes[None]
    assert isinstance(node.report(), NodeReport)
