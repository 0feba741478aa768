"""Whatever befalls a cache directory, what is read through it are the bytes of the store."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from tests.helpers.cached import KEYS, files, filled, over

SIZES = (300_000, 70_000, 5)
SOME = st.lists(st.tuples(st.floats(0, 1), st.one_of(st.floats(0, 0.01), st.floats(0, 1))), min_size=1, max_size=6)
READ = st.tuples(st.just("read"), st.integers(0, 2), st.integers(0, 2), SOME)
HARM = st.tuples(
    st.sampled_from(["cut", "flip", "more", "garbage", "swap", "lose", "wipe"]), st.integers(0, 9), st.floats(0, 1)
)
REOPEN = st.tuples(st.just("reopen"), st.integers(0, 2))


def ranges_of(some: list[tuple[float, float]], size: int) -> list[tuple[int, int]]:
    """(start, length)s within an object."""
    return [(start := int(at * size), int(part * (size - start))) for at, part in some]


def harm(folder: Path, how: str, which: int, where: float) -> None:
    """What may become of a file."""
    found = files(folder)
    if how == "wipe":
        shutil.rmtree(folder, ignore_errors=True)
    if not found or how == "wipe":
        return
    path = found[which % len(found)]
    size = path.stat().st_size
    at = int(where * size)
    if how == "cut":
        os.truncate(path, at)
    elif how == "lose":
        path.unlink()
    elif how == "swap":
        other = found[(which + 1) % len(found)]
        path.write_bytes(other.read_bytes())  # a whole and sound file, under the name of another object
    elif how == "garbage":
        path.write_bytes(os.urandom(at))
    elif size:
        body = bytearray(path.read_bytes())
        if how == "flip":
            body[min(at, size - 1)] ^= 0x55
        else:
            body += os.urandom(at)
        path.write_bytes(body)  # in place: a process that knows the file meets it changed
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


@settings(deadline=None)
@given(st.lists(st.one_of(READ, READ, READ, HARM, REOPEN), max_size=40), st.sampled_from([1 << 30, 200_000]))
def test_always_the_bytes_of_the_store(steps, max_bytes) -> None:
    inner, bodies = filled(SIZES)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "cache"
        stores = [over(inner, folder, max_bytes) for _ in range(3)]
        for step in steps:
            if step[0] == "read":
                _, which, number, some = step
                key = KEYS[number]
                ranges = ranges_of(some, SIZES[number])
                found = stores[which].get_ranges(key, ranges)
                assert [bytes(body) for body in found] == [bodies[key][at : at + size] for at, size in ranges]
                local = stores[1].held(key, ranges)
                assert local is None or [bytes(body) for body in local] == [bytes(body) for body in found]
            elif step[0] == "reopen":
                stores[step[1]] = over(inner, folder, max_bytes)
            else:
                harm(folder, *step)
                if step[1] % 2:  # who knows nothing of the file takes it as it is
                    stores = [over(inner, folder, max_bytes) for _ in range(3)]


@settings(deadline=None)
@given(st.lists(st.one_of(READ, READ, READ, REOPEN), max_size=40))
def test_nothing_is_fetched_twice(steps) -> None:
    inner, bodies = filled(SIZES)
    with tempfile.TemporaryDirectory() as made:
        stores = [over(inner, Path(made) / "cache") for _ in range(3)]
        for step in steps:
            if step[0] == "reopen":
                stores[step[1]] = over(inner, Path(made) / "cache")
                continue
            _, which, number, some = step
            before, asked = stores[which].counters, len(inner.asked)
            ranges = ranges_of(some, SIZES[number])
            found = stores[which].get_ranges(KEYS[number], ranges)
            assert [bytes(body) for body in found] == [bodies[KEYS[number]][at : at + n] for at, n in ranges]
            used = stores[which].counters - before
            missing = sum(size for _, _, size in inner.asked[asked:])
            covered = len({at for start, size in ranges for at in range(start, start + size)})
            assert used.bytes_get == missing
            assert used.bytes_cached == covered - missing
        assert not inner.repeated()
