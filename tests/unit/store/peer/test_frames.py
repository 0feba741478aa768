"""Messages on a stream, and the two ways in which an address is written."""

import socket

import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import InvalidInputError
from mergelake.store.peer.address import address_of, parse_address
from mergelake.store.peer.frames import FRAME_MAX, Closed, Garbled, Stream, frame, parse_request, request


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Stream(ours, SystemClock()), theirs


@given(st.text("abc/-", min_size=1, max_size=64), st.binary(max_size=200))
def test_a_request_is_the_same_after_the_wire(name, payload):
    data = request(name, payload)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert parse_request(data[4:]) == (name, payload)


@given(st.binary(min_size=1, max_size=80))
def test_other_bytes_are_a_request_or_are_refused_as_garbled(body):
    try:
        name, payload = parse_request(body)
    except Garbled:
        return
    assert request(name, payload)[4:] == body


def test_a_message_arrives_whole_or_not_at_all(ends):
    stream, theirs = ends
    theirs.sendall(frame(0, b"x" * 1000) + frame(1)[:3])
    theirs.close()
    assert stream.receive_frame(1, 1) == b"\0" + b"x" * 1000
    with pytest.raises(Garbled):
        stream.receive_frame(1, 1)


def test_an_end_between_two_messages_is_no_garbage(ends):
    stream, theirs = ends
    theirs.close()
    with pytest.raises(Closed):
        stream.receive_frame(1, 1)


@pytest.mark.parametrize("length", [0, FRAME_MAX + 1, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_anything_is_read(ends, length):
    stream, theirs = ends
    theirs.sendall(length.to_bytes(4, "big"))
    with pytest.raises(Garbled):
        stream.receive_frame(1, 1)


def test_a_message_that_trickles_in_has_one_deadline(ends):
    stream, theirs = ends
    theirs.sendall(frame(0, b"x" * 10)[:-1])
    with pytest.raises(TimeoutError):
        stream.receive_frame(1, 0.05)


def test_a_message_that_is_too_long_is_not_made():
    with pytest.raises(ValueError, match="too long"):
        frame(0, bytes(FRAME_MAX))


@pytest.mark.parametrize("text", ["10.0.0.5:9440", "[::1]:0", "lake:65535"])
def test_an_address_is_the_same_after_text(text):
    assert address_of(*parse_address(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:65536", "::1:5", "[]:1", "h:-1", "h:٣"])
def test_what_is_no_address_is_refused_with_the_way_out(text):
    with pytest.raises(InvalidInputError, match="HOST:PORT"):
        parse_address(text)
