"""An HTTP server on the loopback interface that serves files of parts to the embedded ClickHouse.

To ClickHouse it is an S3 object store that only has `GET` with a range. It serves `PartFiles`: parts packed into one
object, stores that ClickHouse does not support, small files that are fetched once. So requests to a bucket are made
here: they are counted and retried, and ClickHouse gets no credentials.

The URL has a random path, which only the ClickHouse of this process knows.
"""

from __future__ import annotations

import logging
import re
import secrets  # noqa: TID251  a key of this process
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol, cast
from urllib.parse import unquote

from mergelake.core.base.errors import MergelakeError
from mergelake.store.interface.protocol import Buffer

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_logger = logging.getLogger("mergelake.query")


class Files(Protocol):
    """Files that are served under one name."""

    def size(self, path: str) -> int:
        """Bytes of a file. NotFoundError if there is none."""
        ...

    def pieces(self, path: str, start: int, end: int) -> Iterator[Buffer]:
        """Bytes `start` to `end` of a file, in at least one piece."""
        ...


class Endpoint:
    """Serves added files from its own threads until the process ends."""

    def __init__(self) -> None:
        self._server = _Server()
        self._lock = threading.Lock()
        threading.Thread(target=self._server.serve_forever, name="mergelake-endpoint", daemon=True).start()

    @property
    def url(self) -> str:
        """URL of the store; ends with `/`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self._server.secret}/"

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        return self._server.requests

    def add(self, name: str, files: Files) -> None:
        """Serve files under `<url><name>/`. A name may be added several times, for equal files."""
        with self._lock:
            self._server.served[name] = (*self._server.served.get(name, ()), files)

    def remove(self, name: str) -> None:
        """Undo one `add` of the name."""
        with self._lock:
            _, *others = self._server.served.pop(name, (None,))
            if others:
                self._server.served[name] = tuple(others)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret = secrets.token_urlsafe(24)
        self.served: dict[str, tuple[Files, ...]] = {}
        self.requests = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: ClickHouse closes connections when it has read enough."""
        _logger.debug("a connection to the endpoint ended")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered: headers are sent together with the body

    def do_GET(self) -> None:
        """Send a file or a range of it."""
        server = cast(_Server, self.server)
        server.requests += 1
        _, secret, name, path = (*self.path.split("/", 3), "", "", "")[:4]
        served = server.served.get(name)
        if served is None or not secrets.compare_digest(secret, server.secret):
            self._refuse(404, "NoSuchKey")
            return
        path, files = unquote(path), served[-1]
        try:
            size = files.size(path)
            requested = _RANGE.fullmatch(self.headers.get("Range", "bytes=0-"))
            start = int(requested[1]) if requested is not None else 0
            end = min(int(requested[2]) + 1, size) if requested is not None and requested[2] else size
            if start >= end and size:
                self._refuse(416, "InvalidRange")
                return
            pieces = files.pieces(path, start, end)
            first = next(pieces)
        except MergelakeError as failure:  # damaged or missing object: a scan raises an error that names it
            _logger.debug("the endpoint cannot give %s: %s", path, failure)
            self._refuse(404, "NoSuchKey")
            return
        self.send_response_only(206 if "Range" in self.headers else 200)
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(first)
        try:
            for piece in pieces:
                self.wfile.write(piece)
        except MergelakeError as failure:
            _logger.debug("the endpoint cannot give the rest of %s: %s", path, failure)
            self.close_connection = True  # ClickHouse detects the short reply

    def _refuse(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
