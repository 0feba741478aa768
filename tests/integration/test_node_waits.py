"""A node outlives a store that is down: when it is started, and while it runs."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.errors import UnavailableError
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from tests.helpers.services import free_ports

EMPTY = b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
MISSING = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>'


class EmptyBucket(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        listing = "list-type" in self.path
        body = EMPTY if listing else MISSING
        self.send_response(200 if listing else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def bucket(port: int) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", port), EmptyBucket)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield
    server.shutdown()
    server.server_close()


def _node(port: int, *more: str) -> subprocess.Popen[str]:
    options = {"endpoint": f"http://127.0.0.1:{port}", "access_key_id": "a", "secret_access_key": "b"}
    options |= {"allow_http": "true", "max_retries": "0", "region": "us-east-1"}
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "mergelake.api.cli", "node", "s3://bucket/warehouse", *given, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_node_that_is_started_while_the_store_is_down_waits_and_says_so_once() -> None:
    port = free_ports(1)
    process = _node(port, "--once")
    assert process.stderr is not None
    assert "Waiting for the store" in process.stderr.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    with bucket(port):
        assert process.wait(60) == 0
    said = process.stderr.read()
    assert "Waiting" not in said
    assert "looks after 0 tables" in said


def test_a_node_that_waits_can_be_told_to_stop() -> None:
    process = _node(free_ports(1))
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_running_node_says_once_that_the_store_is_down_and_goes_on_when_it_is_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Flaky(MemoryStore):
        silent = False
        asked = 0

        def get(self, key: str) -> bytes:
            if self.silent:
                self.asked += 1
                raise UnavailableError("the store does not answer")
            return super().get(key)

    store = Flaky()
    warehouse = Warehouse(store, threads=1)
    schema = define({"k": "UInt64"}, order_by="k", settings={"min_age_to_force_merge_seconds": 1})
    table = warehouse.create_table("t", schema)
    node = warehouse.node(poll_s=0.01)
    store.silent = True
    stop = threading.Event()
    loop = threading.Thread(target=node.run, args=(stop,))
    with caplog.at_level(logging.WARNING, "mergelake.node"):
        loop.start()
        stop.wait(1.5)
        asked, store.silent = store.asked, False
        for n in range(12):
            table.append({"k": [n]})
        for _ in range(1000):
            if node.status.merges_done:
                break
            stop.wait(0.02)
        stop.set()
        loop.join()
    assert 1 < asked < 8
    assert node.status.merges_done
    said = [record.getMessage() for record in caplog.records]
    assert sum("the node waits" in text for text in said) == 1
    assert sum("goes on" in text for text in said) == 1
