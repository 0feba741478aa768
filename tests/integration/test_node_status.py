"""Node processes as an operator runs them: metrics, top, one that comes, one that goes, one that is killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mergelake.api.python import Warehouse
from mergelake.api.python.table import Table
from mergelake.jobs.node.report import NodeReport, decode_report
from mergelake.table.definition.define import define
from tests.unit.jobs.node.test_metrics import parsed, value

SCHEMA = define(
    {"k": "UInt64", "v": "UInt32"},
    order_by="k",
    partition_by="v % 8",
    settings={"merge_upload_policy": "volatile", "volatile_lease_seconds": 2},
)
_WAIT_S = 60


class NodeProcess:
    """`mergelake node`, with its metrics on a port of its choice."""

    def __init__(self, lake: Path, name: str, disk: Path) -> None:
        command = [sys.executable, "-m", "mergelake.api.cli", "node", str(lake), "--name", name, "--local", str(disk)]
        command += ["--poll", "0.05", "--metrics", "127.0.0.1:0", "--log-format", "json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.address = ""
        assert self.process.stderr is not None
        while not self.address:
            line = self.process.stderr.readline()
            assert line, "the node ended"
            self.lines.append(line)
            found = re.search(r"http://(\S+)/metrics", line)
            self.address = found[1] if found else ""

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as answer:
            return bytes(answer.read())

    @property
    def report(self) -> NodeReport:
        return decode_report(self.get("/status"))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[[str], NodeProcess]]:
    started: list[NodeProcess] = []

    def start(name: str) -> NodeProcess:
        started.append(NodeProcess(tmp_path / "lake", name, tmp_path / "disk"))
        return started[-1]

    yield start
    for node in started:
        node.process.kill()
        node.process.communicate()


def insert(table: Table, number: int) -> None:
    rng = np.random.default_rng(number)
    table.append({"k": rng.integers(0, 1 << 40, 4000).astype(np.uint64), "v": np.arange(4000, dtype=np.uint32)})


def until(true: Callable[[], bool], table: Table, numbers: Iterator[int]) -> None:
    """Insert until something is true."""
    end = time.monotonic() + _WAIT_S
    while not true():
        assert time.monotonic() < end
        insert(table, next(numbers))


def test_nodes_come_go_and_die_under_ingest_and_say_what_they_do(
    tmp_path: Path, nodes: Callable[[str], NodeProcess]
) -> None:
    warehouse, numbers = Warehouse(str(tmp_path / "lake"), threads=1), iter(range(10_000))
    table = warehouse.create_table("t", SCHEMA)
    first = nodes("n1")
    until(lambda: first.report.counters["merges_done"] > 0, table, numbers)
    second = nodes("n2")
    until(lambda: second.report.counters["merges_done"] > 2, table, numbers)  # it takes its share

    families = parsed(first.get("/metrics").decode())
    assert value(families, "merges_done_total") > 0
    assert value(families, "node_healthy") == 1
    assert first.get("/healthz") == b"ok\n"
    command = [sys.executable, "-m", "mergelake.api.cli", "top", str(tmp_path / "lake"), "--output", "json"]
    named = [word for node in (first, second) for word in ("--node", f"http://{node.address}/status")]
    shown = json.loads(subprocess.run([*command, *named], capture_output=True, text=True, check=True).stdout)
    assert {node["node"]: node["report"]["healthy"] for node in shown["nodes"]} == {"n1": True, "n2": True}
    assert shown["silent"] == {}

    first.process.send_signal(signal.SIGTERM)
    out, logged = first.process.communicate(timeout=_WAIT_S)
    assert first.process.returncode == 0
    assert "merges done" in out
    events = [json.loads(line) for line in logged.splitlines() if line.startswith("{")]
    assert {"merge", "publish"} & {event["event"] for event in events}
    assert {event["node"] for event in events} == {"n1"}
    table.refresh()
    assert "n1" not in {part.owner for held in table.handle.log.state.volatile.values() for part in held}

    until(lambda: bool(second.report.volatile), table, numbers)
    second.process.kill()
    second.process.wait()
    third = nodes("n3")

    def healed() -> bool:
        table.refresh()
        owners = {part.owner for held in table.handle.log.state.volatile.values() for part in held}
        return owners <= {"n3"} and third.report.counters["merges_done"] > 0

    until(healed, table, numbers)
    rows = next(numbers) * 4000
    third.process.send_signal(signal.SIGTERM)
    third.process.communicate(timeout=_WAIT_S)
    table.refresh()
    assert sum(batch.num_rows for batch in table.scan(columns=["k"]).batches()) == rows
