"""`mergelake top`: what it shows of logs and nodes, and how."""

import json
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from mergelake.api.cli.main import app
from mergelake.api.cli.top import frame
from mergelake.api.python import Warehouse
from mergelake.api.python.overview import NodeWork, observe, overview
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.node.report import BackOff, Work
from mergelake.jobs.node.status_server import StatusServer
from mergelake.log.model.operations import RenewLease
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

SCHEMA = define({"k": "UInt64"}, order_by="k", partition_by="k % 3", settings={"merge_upload_policy": "volatile"})


def lake(store=None, *names):
    warehouse = Warehouse(store or MemoryStore(), clock=ManualClock(), ids=SeededIds(1), threads=1)
    for name in names or ("a",):
        table = warehouse.create_table(name, SCHEMA)
        for n in range(24):
            table.append({"k": [n]})
    return warehouse


def settled(node):
    while node.step() or not node.idle():
        pass


def states(warehouse):
    return {name: handle.refresh() for name, handle in warehouse.handles().items()}


def drawn(now, before=None, rows=10, width=150):
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(frame(now, before, rows))
    return out.getvalue()


def test_what_is_committed_comes_from_the_log_alone():
    warehouse = lake()
    node = warehouse.node("n1", local=MemoryStore())
    settled(node)
    handles = warehouse.handles()
    assert any(state.volatile for state in states(warehouse).values())
    now = observe(warehouse, handles, [])
    (seen,) = now.nodes
    assert (seen.node, seen.state, seen.disk, seen.report) == ("n1", "live", True, None)
    assert seen.lease_left_ms == 60_000
    assert seen.volatile == len(now.volatile) > 0
    assert {part.state for part in now.volatile} == {"live"}
    assert [(each.partition_id, each.rows) for each in now.partitions] == [("2", 8), ("1", 8), ("0", 8)]
    text = drawn(now)
    assert "live, lease 1 min 00 s" in text
    assert "1 node · 1 table · 24 parts" in text
    warehouse.clock.advance_s(75)
    now = observe(warehouse, handles, [])
    assert now.nodes[0].state == "expired"
    assert "expired, lease ended 15 s ago" in drawn(now)
    node.drain()
    assert observe(warehouse, handles, []).nodes == []
    assert "No node has a lease" in drawn(observe(warehouse, handles, []))


def test_a_node_that_answers_adds_progress_states_requests_and_rates():
    warehouse = lake()
    node = warehouse.node("n1", local=MemoryStore())
    settled(node)
    with StatusServer("127.0.0.1:0", node.report) as served:
        now = observe(warehouse, warehouse.handles(), [served.address, "127.0.0.1:1", "ftp://x"])
    assert list(now.silent) == ["127.0.0.1:1", "ftp://x"]
    assert {part.state for part in now.volatile} == {"ready"}
    assert now.requests.put == warehouse.store.counters.put
    report = now.nodes[0].report
    began = now.now_ms - 61_500
    work = Work(
        table="default.a", partition_id="0", part="0_1_9_1", kind="direct", parts=9,
        rows=4000, rows_done=1000, bytes=80_000, bytes_done=0, started_ms=began,
    )  # fmt: skip
    upload = msgspec.structs.replace(work, part="1_1_9_1", kind="upload", bytes_done=60_000)
    until = now.now_ms + 9000
    waits = BackOff(table="default.a", partition_id="2", blocks="1-7", reason="bad bytes\nmore", until_ms=until)
    later = msgspec.structs.replace(
        report, now_ms=report.now_ms + 2000, running=[work, upload], back_offs=[waits], last_error="bad bytes"
    )
    then = overview("mem", states(warehouse), [later], {}, now.now_ms)
    assert then.running == [NodeWork(node="n1", work=work), NodeWork(node="n1", work=upload)]
    text = drawn(then, now)
    lines = [line.split() for line in text.splitlines()]
    assert ["n1", "default.a", "0_1_9_1", "direct", "building", "━━━━╌╌╌╌╌╌╌╌╌╌╌╌", "25%", "4", "k", "80.00", "kB", "9",
            "1", "min", "01", "s"] in lines  # fmt: skip
    assert any(line[:5] == ["n1", "default.a", "1_1_9_1", "volatile", "uploading"] and "75%" in line for line in lines)
    assert any(line[:3] == ["n1", "live,", "lease"] and "500" in line for line in lines)  # 1000 rows in 2 s
    assert ["default.a", "2", "1-7", "9.0", "s", "bad", "bytes"] in lines
    assert "last error of n1: bad bytes" in text
    assert "ready" in text
    node.drain()


def test_long_lists_are_cut_and_say_so():
    warehouse = lake(None, *(f"t{n}" for n in range(4)))
    text = drawn(observe(warehouse, warehouse.handles(), []), rows=2)
    assert "and 2 more" in text  # tables
    assert "and 10 more" in text  # partitions


def test_a_busy_node_that_listens_is_found_by_its_lease():
    warehouse = lake()
    node = warehouse.node("n1", listen="127.0.0.1:0")
    settled(node)
    handle = warehouse.table("a").handle
    until, token = warehouse.clock.now_ms() + 60_000, node._listening.token
    lease = RenewLease("n1", handle.log.state.version, until, node.address, token, False)
    handle.log.commit(lambda state: [lease])
    now = observe(warehouse, warehouse.handles(), [])
    assert now.silent == {}
    assert now.nodes[0].report.node == "n1"
    assert now.nodes[0].address == node.address
    assert token not in str(msgspec.to_builtins(now))
    node.drain()
    now = observe(warehouse, warehouse.handles(), [])
    assert now.nodes == [] or list(now.silent) == [now.nodes[0].address]


def test_the_command_prints_one_frame_or_json(tmp_path, capsys):
    warehouse = Warehouse(str(tmp_path / "lake"), threads=1)
    for name in ("a", "b"):
        warehouse.create_table(name, SCHEMA).append({"k": [1, 2, 3]})
    app_exits_ok(["top", str(tmp_path / "lake"), "--once"])
    text = capsys.readouterr().out
    assert "2 tables · 6 parts" in text
    assert "amplification" in text
    app_exits_ok(["top", str(tmp_path / "lake"), "a", "--output", "json"])
    shown = json.loads(capsys.readouterr().out)
    assert [table["table"] for table in shown["tables"]] == ["default.a"]
    assert shown["tables"][0]["rows"] == 3
    for arguments in (["top", str(tmp_path / "lake")], ["top", str(tmp_path / "lake"), "nosuch", "--once"]):
        with pytest.raises(SystemExit) as leaving:
            app(arguments)
        assert leaving.value.code == 1
    capsys.readouterr()


def app_exits_ok(arguments):
    with pytest.raises(SystemExit) as leaving:
        app(arguments)
    assert leaving.value.code == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--slots", "0"], 2),
        (["--max-upload-mbps", "0"], 1),
        (["--max-upload-mbps", "nan"], 1),
        (["--max-disk-bytes", "10 apples", "--local", "x"], 1),
        (["--max-disk-bytes", "10Gi"], 1),
        (["--log-format", "xml"], 1),
        (["--metrics", "nowhere"], 1),
        (["--max-download-mbps", "5"], 2),
    ],
)
def test_a_node_refuses_what_it_does_not_know_or_cannot_be(tmp_path, capsys, monkeypatch, options, code):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as leaving:
        app(["node", str(tmp_path / "lake"), "--once", *options])
    assert leaving.value.code == code
    assert capsys.readouterr().err
