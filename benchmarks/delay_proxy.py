"""An HTTP proxy in a process of its own that answers each request a while later: a bucket as far away as wanted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.helpers.services import free_ports

_CHUNK = 1 << 20
_SET = b"GET /_delay/"
_COUNT = b"GET /_count/"


@contextmanager
def delay_proxy(endpoint: str) -> Iterator[str]:
    """The endpoint of a proxy before the server at `endpoint` (`http://host:port`); no delay until `set_delay`."""
    port = free_ports(1)
    upstream = endpoint.rpartition("/")[2]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.delay_proxy", upstream, str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            with suppress(OSError):
                set_delay(url, 0)
                break
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def set_delay(proxy: str, milliseconds: int) -> None:
    """Answer each request of now on so much later."""
    with urllib.request.urlopen(f"{proxy}/_delay/{milliseconds}", timeout=5) as reply:
        reply.read()


def take_counts(proxy: str) -> dict[str, int]:
    """Requests since the last call, by method."""
    with urllib.request.urlopen(f"{proxy}/_count/", timeout=5) as reply:
        return dict(json.load(reply))


class _Proxy:
    def __init__(self, upstream: str) -> None:
        self._counts: Counter[str] = Counter()
        self._host, _, self._port = upstream.partition(":")
        self._delay_s = 0.0

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=_CHUNK)
        await server.serve_forever()

    async def _accept(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        server, ask = await asyncio.open_connection(self._host, int(self._port), limit=_CHUNK)
        answered = True  # the next bytes of the client begin a request

        async def up() -> None:
            nonlocal answered
            while data := await client.read(_CHUNK):
                if data.startswith(_SET):
                    self._delay_s = int(data[len(_SET) :].split()[0]) / 1000
                    answer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
                    break
                if data.startswith(_COUNT):
                    body = json.dumps(self._counts).encode()
                    self._counts.clear()
                    answer.write(
                        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                    )
                    break
                if answered:
                    self._counts[data[:8].split()[0].decode()] += 1
                if answered and self._delay_s:
                    await asyncio.sleep(self._delay_s)
                answered = False
                ask.write(data)
                await ask.drain()

        async def down() -> None:
            nonlocal answered
            while data := await server.read(_CHUNK):
                answered = True
                answer.write(data)
                await answer.drain()

        tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
        with suppress(OSError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for writer in (answer, ask):
            with suppress(OSError):
                writer.close()


if __name__ == "__main__":
    asyncio.run(_Proxy(sys.argv[1]).serve(int(sys.argv[2])))
