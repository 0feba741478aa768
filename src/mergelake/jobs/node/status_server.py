"""A node's HTTP endpoints for people and monitoring, read only:

=========  =====================================================================
/metrics   the report for Prometheus (`jobs.node.metrics`)
/status    the report as JSON (`jobs.node.report`)
/healthz   200 while it looks for work and the store answers, else 503
=========  =====================================================================

Each request has a thread, at most `REQUESTS_MAX` at a time (one more is closed at once) and `REQUEST_S` seconds for
each read and write, so clients cannot occupy the node.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType

from mergelake.core.base.errors import error
from mergelake.jobs.node.metrics import CONTENT_TYPE, prometheus_text
from mergelake.jobs.node.report import NodeReport, encode_report
from mergelake.store.peer.address import address_of, parse_address

REQUESTS_MAX = 16
REQUEST_S = 5.0
_logger = logging.getLogger("mergelake.node")


class StatusServer:
    """One listening socket, from construction until `close`; a context manager."""

    def __init__(self, listen: str, report: Callable[[], NodeReport]) -> None:
        """`listen` is `HOST:PORT`, port 0 any. Raises BAD_ARGUMENTS for an invalid or unavailable address."""
        host, port = parse_address(listen)
        try:
            self._server = _Server(host, port, report)
        except (OSError, OverflowError, UnicodeError) as cause:
            hint = "Choose an address of this machine and a free port, or port 0 for any"
            raise error("BAD_ARGUMENTS", f"Cannot serve metrics on {address_of(host, port)}: {cause}", hint) from None
        self.address = address_of(host, self._server.server_address[1])
        """`HOST:PORT` that it listens on."""
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.1,), name="mergelake-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more requests."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> StatusServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(HTTPServer):
    request_queue_size = 64

    def __init__(self, host: str, port: int, report: Callable[[], NodeReport]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.report = report
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking the name service for the name of the host, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer in a thread of its own, if there are not too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        thread = threading.Thread(target=self._answer, args=(request, client_address), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had
            self._free.release()
            self.shutdown_request(request)

    def _answer(self, request: socket.socket, client_address: object) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client left, or was too slow
        except Exception:  # a bad request must not affect the process
            _logger.exception("a request for the status failed")
        finally:
            self.shutdown_request(request)
            self._free.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S
    server_version = "mergelake"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        match self.path.partition("?")[0]:
            case "/metrics":
                self._send(HTTPStatus.OK, CONTENT_TYPE, prometheus_text(self.server.report()).encode())
            case "/status":
                self._send(HTTPStatus.OK, "application/json", encode_report(self.server.report()))
            case "/healthz":
                healthy = self.server.report().healthy
                text = b"ok\n" if healthy else b"it does not look for work, or the store does not answer\n"
                self._send(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", text)
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There are /metrics, /status and /healthz\n")

    def do_HEAD(self) -> None:
        """Answer like GET, without the body."""
        self.do_GET()

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a request every few seconds says nothing."""
