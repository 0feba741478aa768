"""A damaged checkpoint is told as such, and never brings the process down."""

from __future__ import annotations

import random

import pytest

from mergelake.core.base.errors import CorruptDataError
from mergelake.log.model.operations import AddParts
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log


def test_any_flipped_bit_and_any_cut_is_found_before_arrow_follows_an_offset():
    """Arrow reads where damaged offsets point: without the digest this test ended in a segmentation fault."""
    log = new_log(MemoryStore())
    for n in range(5):
        log.commit(lambda _, n=n: [AddParts((manifest(n),), f"t{n}")])
    data = encode_checkpoint(log.state)
    assert decode_checkpoint(data) == log.state
    draw = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        with pytest.raises(CorruptDataError, match=r"k\.arrow"):
            decode_checkpoint(bytes(damaged), "k.arrow")
    for length in (0, 1, 15, 16, 17, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptDataError):
            decode_checkpoint(data[:length])
