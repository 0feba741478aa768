"""A TCP proxy that cuts connections at chosen moments: between a client and ZooKeeper."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class TcpProxy:
    """Listens on `address`; `with TcpProxy("127.0.0.1:2181") as proxy: …`."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.partition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.refuse = False
        """New connections are closed at once."""
        self.mute = False
        """What the server says is thrown away."""
        self._after: tuple[str, bytes] | None = None
        self.fired = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse = True
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def cut_on(self, what: bytes, when: str) -> None:
        """Cut once when the client sends these bytes: `before` the server hears them, or `after` it has answered."""
        self._after = (when, what)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            state = {"armed": False}
            threading.Thread(target=self._pump, args=(client, server, True, state), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False, state), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool, state: dict[str, bool]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if up and self._after is not None and self._after[1] in data:
                    when, self._after = self._after[0], None
                    self.fired += 1
                    if when == "before":
                        break
                    state["armed"] = True
                if not up and (state["armed"] or self.mute):
                    if state["armed"]:
                        break
                    continue
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
