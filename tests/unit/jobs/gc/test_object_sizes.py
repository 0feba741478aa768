"""Sizes of objects in little memory: the same answers as a plain mapping."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from mergelake.jobs.gc.object_sizes import ObjectSizes
from mergelake.log.model.retention import directory_of


@pytest.mark.parametrize("seed", range(10))
def test_sizes_are_those_of_a_plain_mapping(seed: int) -> None:
    draw = random.Random(seed)
    plain: dict[str, int] = {}
    sizes = ObjectSizes()
    for _ in range(4):
        more = {}
        for _ in range(draw.randint(0, 40)):
            directory = draw.choice(["a1", "a1-", "b", "/t/a1", "/t/b", "__meta", "drop-x", ""])
            more[f"{directory}/{draw.choice(['x.bin', 'y.bin', 'y.bin2', 'p/z'])}"] = draw.randrange(10**12)
        sizes.add(sorted(more.items()))
        plain |= more
    assert len(sizes) == len(plain)
    assert sizes.directories == {directory_of(key) for key in plain}
    for key in [*plain, "a1/none", "none/x.bin", "a1", "a1/y"]:
        assert sizes.get(key) == plain.get(key)
    own = {key: size for key, size in plain.items() if not key.startswith(("/", "_"))}
    assert dict(sizes.own()) == own


def test_a_wide_part_takes_some_hundred_bytes() -> None:
    files = sorted(f"column_{n:02d}.{kind}" for n in range(16) for kind in ("bin", "cmrk2"))

    def listing(parts: int):
        return ((f"{part:032x}/{file}", part + 1000) for part in range(parts) for file in files)

    sizes = ObjectSizes()
    sizes.add(listing(10))  # what is held once
    tracemalloc.start()
    sizes.add((f"x{key}", size) for key, size in listing(1000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / 1000 < 700
    assert held / 1000 < len(files) * sys.getsizeof(f"{0:032x}/column_00.bin") / 3
