"""CityHash128 and the file hash: vectors from ClickHouse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mergelake.format.codecs.hashes import FileHash, city128, digest, file_hash


def pattern(size: int) -> bytes:
    return bytes((7 * i + 3) % 256 for i in range(size))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "2b9ac064fc9df03d291ee592c340b53c"),
        (1, "555db5cc909437391f57cd6430b1f22a"),
        (5, "49428ebbb3429b76f3d66d7716ae00cd"),
        (8, "2f4353599a7cadb68c88219910020e9f"),
        (15, "472f8fabd899825a77320da978a4a08e"),
        (16, "792b9c7fab9ce7217a3f3135c21556a3"),
        (17, "4c6eeafa13bbd50cfebbf6789171bf32"),
        (64, "ef2a43c18ed512d41432d8bb0c635457"),
        (127, "429982623c2a1c1feade014b6020585d"),
        (128, "314d69d6100bd011f4df3fb8e5b98f10"),
        (200, "547539f88865fc6b54448180b46d70e3"),
        (5000, "d924208ea4e72bb34a96fa4d3090bc6e"),
    ],
)
def test_city128_is_that_of_release_1_0_2(size: int, expected: str) -> None:
    assert city128(pattern(size)).hex() == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0" * 32),
        (5, "f87e749ccaa4f7417c8d9bc0d8da90e4"),
        (127, "0b1d002732fb6cc980e7cf48e4918227"),
        (128, "52ee1fe1df93d97ef78cd4e7a40da455"),
        (2047, "4b96015cd5b127edbfb1a144d2189c96"),
        (2048, "aae193afacf18e3102f5abde2deb1e82"),
        (2049, "5752a78d5701af649cb30f52d8420042"),
        (4096, "5c20c3c524912421bdccd969bd670ba3"),
        (5000, "3f3556023935be1e7870cff263a38e6b"),
    ],
)
def test_file_hash_chains_chunks_of_2048_bytes(size: int, expected: str) -> None:
    assert file_hash(pattern(size)) == expected


def test_file_hash_of_a_real_count_file() -> None:
    assert digest(b"13888").hash == "b202555322d043617f7a60fe65600216"
    assert digest(b"13888").size == 5


@given(st.lists(st.integers(0, 5000), max_size=6))
def test_file_hash_does_not_depend_on_how_the_stream_is_cut(sizes: list[int]) -> None:
    data = pattern(sum(sizes))
    chain = FileHash()
    at = 0
    for size in sizes:
        chain.update(data[at : at + size])
        chain.hexdigest()
        at += size
    assert chain.hexdigest() == file_hash(data)
    assert chain.size == len(data)


def test_every_kind_of_buffer_hashes_alike() -> None:
    data = pattern(100)
    array = np.frombuffer(data, np.uint8)
    assert city128(bytearray(data)) == city128(memoryview(data)) == city128(array) == city128(data)
    assert city128(array[::2]) == city128(data[::2])
