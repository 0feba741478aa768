"""The HTTP server from which the embedded ClickHouse reads: ranges of what is served, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead
from urllib.parse import quote, urlsplit

import pytest

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.query.attach.endpoint import Endpoint

DATA = bytes(range(200))


class Served:
    def size(self, path: str) -> int:
        if path not in ("part/a.bin", "part/ü%2E.bin", "part/empty", "part/damaged", "part/half"):
            raise NotFoundError(f"no {path}")
        return 0 if path == "part/empty" else len(DATA)

    def pieces(self, path: str, start: int, end: int) -> Iterator[bytes]:
        if path == "part/damaged":
            raise CorruptDataError("short", object_key="x")
        yield DATA[start : start + 20 if path == "part/half" else end][: end - start]
        if path == "part/half":
            raise CorruptDataError("the rest is gone", object_key="x")


@pytest.fixture(scope="module")
def endpoint() -> Endpoint:
    found = Endpoint()
    found.add("set", Served())
    return found


def ask(endpoint: Endpoint, path: str, asked: str | None = None, method: str = "GET") -> tuple[int, bytes, str]:
    place = urlsplit(endpoint.url)
    connection = HTTPConnection(place.hostname or "", place.port)
    connection.request(method, path, headers={} if asked is None else {"Range": asked})
    reply = connection.getresponse()
    found = reply.status, reply.read(), reply.getheader("Content-Range", "")
    connection.close()
    return found


@pytest.mark.parametrize(
    ("asked", "status", "bytes_"),
    [
        (None, 200, DATA),
        ("bytes=0-9", 206, DATA[:10]),
        ("bytes=190-", 206, DATA[190:]),
        ("bytes=190-999999", 206, DATA[190:]),
        ("bytes=5-5", 206, DATA[5:6]),
    ],
)
def test_ranges(endpoint: Endpoint, asked: str | None, status: int, bytes_: bytes) -> None:
    before = endpoint.requests
    for name in ("a.bin", "ü%2E.bin"):
        found = ask(endpoint, urlsplit(endpoint.url).path + "set/part/" + quote(name), asked)
        assert found[:2] == (status, bytes_)
    assert endpoint.requests == before + 2


def test_what_is_not_there_is_told_so_that_clickhouse_does_not_try_again(endpoint: Endpoint) -> None:
    path = urlsplit(endpoint.url).path
    for wrong in ("set/part/b.bin", "other/part/a.bin", "set/part/damaged", "set", ""):
        assert ask(endpoint, path + wrong)[0] == 404
    assert ask(endpoint, path + "set/part/a.bin", "bytes=200-300")[0] == 416
    assert ask(endpoint, path + "set/part/empty")[:2] == (200, b"")


def test_a_reply_that_ends_too_early_is_none(endpoint: Endpoint) -> None:
    with pytest.raises(IncompleteRead):
        ask(endpoint, urlsplit(endpoint.url).path + "set/part/half", "bytes=0-99")


def test_who_does_not_know_the_path_gets_nothing_and_nobody_writes(endpoint: Endpoint) -> None:
    path = urlsplit(endpoint.url).path
    for wrong in ("/set/part/a.bin", "//set/part/a.bin", "/x/set/part/a.bin", path[:-2] + "/set/part/a.bin"):
        assert ask(endpoint, wrong)[0] == 404
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        assert ask(endpoint, path + "set/part/a.bin", method=method)[0] == 501
    endpoint.remove("set")
    assert ask(endpoint, path + "set/part/a.bin")[0] == 404
    endpoint.add("set", Served())
