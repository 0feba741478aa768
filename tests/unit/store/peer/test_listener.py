"""The listener and its client on real sockets: what is answered, what is refused, and what a failure means."""

import socket
import threading
import time

import pytest

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import InvalidInputError
from mergelake.core.base.ids import RandomIds
from mergelake.store.peer import Listener, NotSent, PeerClient, UnknownOutcome, client, listener
from mergelake.store.peer.auth import GREETING, introduce
from mergelake.store.peer.frames import Stream, request

CLOCK, IDS = SystemClock(), RandomIds()
TOKEN = "a token"


@pytest.fixture
def listening():
    made = Listener("127.0.0.1", 0, TOKEN, clock=CLOCK, ids=IDS, connections_max=8)
    made.serve("echo", lambda data: data)
    made.start()
    yield made
    made.close(0.0)


@pytest.fixture
def asking():
    made = PeerClient(clock=CLOCK, ids=IDS)
    yield made
    made.close()


def address(made):
    return f"127.0.0.1:{made.port}"


def raw(made):
    sock = socket.create_connection(("127.0.0.1", made.port), 2)
    sock.settimeout(2)
    return sock


def known(made):
    """A connection that has proven itself."""
    sock = raw(made)
    introduce(Stream(sock, CLOCK), TOKEN, IDS, CLOCK.monotonic_s() + 2)
    return sock


def is_closed(sock):
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def until(holds):
    end_s = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_requests_are_answered_over_one_connection(listening, asking):
    for payload in (b"", b"one", b"x" * 300_000):
        assert asking.call(address(listening), TOKEN, "echo", payload, 5) == payload
    assert listening.connections == 1


def test_as_many_connections_are_open_as_requests_are_under_way(listening, asking):
    meet = threading.Barrier(3)
    listening.serve("meet", lambda data: str(meet.wait(5)).encode())
    threads = [threading.Thread(target=asking.call, args=(address(listening), TOKEN, "meet", b"", 5)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert listening.connections == 3


@pytest.mark.parametrize("token", ["", "another"])
def test_who_does_not_know_the_token_is_not_heard(listening, asking, token):
    heard = []
    listening.serve("hear", lambda data: heard.append(data) or b"")
    with pytest.raises(NotSent):
        asking.call(address(listening), token, "hear", b"", 5)
    assert not heard


def test_a_client_believes_nobody_who_does_not_know_the_token(asking):
    with socket.create_server(("127.0.0.1", 0)) as false:

        def pretend():
            sock, _ = false.accept()
            with sock:
                sock.sendall(GREETING + bytes(16))
                sock.recv(48)
                sock.sendall(bytes(32))
                sock.recv(1)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(NotSent, match="does not know the token"):
            asking.call(f"127.0.0.1:{false.getsockname()[1]}", TOKEN, "echo", b"", 5)
        thread.join()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(48),
        bytes(1 << 20),
    ],
    ids=["nothing", "http", "zeros", "much"],
)
def test_strangers_lose_their_connection_and_nothing_else(listening, asking, sent, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKE_S", 0.2)
    with raw(listening) as sock:
        try:
            sock.sendall(sent)
            while sock.recv(1 << 16):
                pass
        except ConnectionError:
            pass
    until(lambda: not listening.connections)
    assert asking.call(address(listening), TOKEN, "echo", b"still there", 5) == b"still there"


@pytest.mark.parametrize(
    "sent",
    [bytes(4), b"\xff\xff\xff\xff", b"\0\0\0\1\0", b"\0\0\0\3\2\xff\xff", request("echo", b"x")[:-1]],
    ids=["empty", "huge", "no name", "no ascii", "cut off"],
)
def test_garbage_of_somebody_known_ends_his_connection(listening, asking, sent, monkeypatch):
    monkeypatch.setattr(listener, "FRAME_S", 0.2)
    with known(listening) as sock:
        sock.sendall(sent)
        assert is_closed(sock)
    assert asking.call(address(listening), TOKEN, "echo", b"still there", 5) == b"still there"


def test_a_message_that_trickles_in_costs_a_bounded_time(listening, monkeypatch):
    monkeypatch.setattr(listener, "FRAME_S", 0.3)
    with known(listening) as sock:
        began = time.monotonic()
        try:
            for byte in request("echo", b"x" * 1000):
                sock.sendall(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            pass
        assert time.monotonic() - began < 5


def test_there_are_so_many_connections_and_no_more(listening, asking):
    open_now = [known(listening) for _ in range(8)]
    with raw(listening) as late:
        assert is_closed(late)
    with pytest.raises(NotSent):
        asking.call(address(listening), TOKEN, "echo", b"", 2)
    for sock in open_now:
        sock.close()
    until(lambda: not listening.connections)
    assert asking.call(address(listening), TOKEN, "echo", b"again", 5) == b"again"


def test_strangers_do_not_take_the_place_of_others(listening, asking, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKES_MAX", 2)
    with raw(listening), raw(listening):
        until(lambda: listening.connections == 2)
        with raw(listening) as third:
            assert is_closed(third)
    until(lambda: not listening.connections)
    assert asking.call(address(listening), TOKEN, "echo", b"again", 5) == b"again"


def test_a_service_that_fails_leaves_the_outcome_unknown(listening, asking):
    def fail(data):
        raise ValueError("no such luck")

    listening.serve("fail", fail)
    with pytest.raises(UnknownOutcome, match="no such luck"):
        asking.call(address(listening), TOKEN, "fail", b"", 5)
    assert asking.call(address(listening), TOKEN, "echo", b"x", 5) == b"x"
    assert listening.connections == 1


def test_a_service_that_is_not_there_was_not_asked(listening, asking):
    with pytest.raises(NotSent, match="not served"):
        asking.call(address(listening), TOKEN, "elsewhere", b"", 5)


def test_nobody_listens(asking):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    for where in (f"127.0.0.1:{port}", "no address", "no.such.host.invalid:1"):
        with pytest.raises(NotSent):
            asking.call(where, TOKEN, "echo", b"", 2)


def test_no_answer_in_time_is_an_unknown_outcome(listening, asking):
    go_on = threading.Event()
    listening.serve("slow", lambda data: str(go_on.wait(5)).encode())
    with pytest.raises(UnknownOutcome):
        asking.call(address(listening), TOKEN, "slow", b"", 0.1)
    go_on.set()
    assert asking.call(address(listening), TOKEN, "echo", b"x", 5) == b"x"


def test_who_accepts_and_says_nothing_was_sent_nothing(asking, monkeypatch):
    monkeypatch.setattr(client, "CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotSent):
        asking.call(f"127.0.0.1:{silent.getsockname()[1]}", TOKEN, "echo", b"", 5)


def test_a_connection_that_was_closed_meanwhile_is_not_used(asking):
    first = Listener("127.0.0.1", 0, TOKEN, clock=CLOCK, ids=IDS)
    first.serve("echo", lambda data: data)
    first.start()
    assert asking.call(address(first), TOKEN, "echo", b"1", 5) == b"1"
    first.close(0.0)
    until(lambda: not first.connections)
    with pytest.raises(NotSent):
        asking.call(address(first), TOKEN, "echo", b"2", 5)


def test_closing_lets_a_request_under_way_be_answered(listening, asking):
    began, answers = threading.Event(), []

    def slow(data):
        began.set()
        time.sleep(0.2)
        return b"done"

    listening.serve("slow", slow)
    thread = threading.Thread(target=lambda: answers.append(asking.call(address(listening), TOKEN, "slow", b"", 5)))
    thread.start()
    began.wait(5)
    listening.close()
    thread.join()
    assert answers == [b"done"]
    with pytest.raises(ConnectionError):
        raw(listening)


def test_an_address_that_cannot_be_had_is_refused_with_the_way_out(listening):
    for host, port in (("127.0.0.1", listening.port), ("192.0.2.1", 0), ("no.such.host.invalid", 0)):
        with pytest.raises(InvalidInputError, match="port 0"):
            Listener(host, port, TOKEN, clock=CLOCK, ids=IDS)
