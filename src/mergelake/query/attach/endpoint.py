"""An HTTP server on the loopback interface, from which the embedded ClickHouse reads what it cannot name itself.

To ClickHouse it is an object store of S3's kind: `GET` with a range, nothing else: there is no method
that would write.
Behind it lies `PartFiles`: parts packed into one object, stores that ClickHouse does not know, small files that are
fetched once. So requests to a bucket are ours: counted, retried, with credentials that never come near ClickHouse.

Its address has a random path, by which this process's ClickHouse alone knows it.
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

from mergelake.core.errors import MergelakeError
from mergelake.store.protocol import Buffer

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_logger = logging.getLogger("mergelake.query")


class Files(Protocol):
    """What is served below one name."""

    def size(self, path: str) -> int:
        """Bytes of a file. NotFoundError if there is none."""
        ...

    def pieces(self, path: str, start: int, end: int) -> Iterator[Buffer]:
        """Bytes `start` to `end` of it; one piece at least."""
        ...


class Endpoint:
    """Serves the files that are `added`, from threads of its own, until the process ends."""

    def __init__(self) -> None:
        self._server = _Server()
        self._lock = threading.Lock()
        threading.Thread(target=self._server.serve_forever, name="mergelake-endpoint", daemon=True).start()

    @property
    def url(self) -> str:
        """Of the store that ClickHouse sees; ends with `/`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self._server.secret}/"

    @property
    def requests(self) -> int:
        """Answered so far."""
        return self._server.requests

    def add(self, name: str, files: Files) -> None:
        """Serve them below `<url><name>/`. What is served there already is the same to who reads it."""
        with self._lock:
            self._server.served[name] = (*self._server.served.get(name, ()), files)

    def remove(self, name: str) -> None:
        """Serve them no more, once this was said as often as they were added."""
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
        """ClickHouse hangs up whenever it has read enough."""
        _logger.debug("a connection to the endpoint ended")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head of a reply goes out with its body

    def do_GET(self) -> None:
        """A file, or a range of it."""
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
            asked = _RANGE.fullmatch(self.headers.get("Range", "bytes=0-"))
            start = int(asked[1]) if asked is not None else 0
            end = min(int(asked[2]) + 1, size) if asked is not None and asked[2] else size
            if start >= end and size:
                self._refuse(416, "InvalidRange")
                return
            pieces = files.pieces(path, start, end)
            first = next(pieces)
        except MergelakeError as failure:  # of a damaged or missing object: a scan tells which
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
            self.close_connection = True  # a reply that is too short is no reply

    def _refuse(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""
