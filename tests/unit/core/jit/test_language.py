"""What a kernel computes is what Python would, with the differences that the language names."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest

from mergelake.core.jit.city_hash128 import city128_at
from mergelake.core.jit.intrinsics import inlined, kernel, peek32, store16
from mergelake.core.jit.language import KernelError

_SEED, _BASE = np.uint64(0x9E3779B97F4A7C15), 7


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@kernel
def _arithmetic(a: int, b: int, out: Any) -> None:
    out[0] = a + b * 3 - _BASE
    out[1] = a // (b & 255)
    out[2] = a % (b & 255)
    out[3] = (a ^ b) & ~(a | b)
    out[4] = a << (b & 63)
    out[5] = a >> (b & 63)
    out[6] = -a
    out[7] = min(a, b, 5) + max(a, b, 5) * 2
    out[8] = abs(a >> 1)
    out[9] = 1 if a < b <= a + 10 or not b else 0
    out[10] = (a // 8) * 100 + (a % 8)


def test_arithmetic_is_that_of_python_cut_to_64_bits() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        a, b = (_wrapped(rng.getrandbits(rng.randint(1, 65)) * rng.choice((1, -1))) for _ in range(2))
        out = np.zeros(11, np.int64)
        _arithmetic(a, b, out)
        divisor = max(b & 255, 1)
        top = _wrapped(a + 10)
        wanted = [
            a + b * 3 - 7, a // divisor, a % divisor, (a ^ b) & ~(a | b), a << (b & 63), a >> (b & 63), -a,
            min(a, b, 5) + max(a, b, 5) * 2, abs(a >> 1), int(a < b <= top or not b), (a // 8) * 100 + a % 8,
        ]  # fmt: skip
        assert out.tolist() == [_wrapped(number) for number in wanted]


@kernel
def _words(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64, bool, int]:
    return a * _SEED + b, a % b, a > b, np.int64(a >> np.uint64(1))


def test_words_are_unsigned_and_several_results_are_a_tuple() -> None:
    rng = random.Random(2)
    for _ in range(500):
        a, b = rng.getrandbits(64), rng.getrandbits(60) + 1
        found = _words(np.uint64(a), np.uint64(b))
        assert found == ((a * int(_SEED) + b) % (1 << 64), a % b, a > b, a >> 1)
    assert _words(np.uint64(5), np.uint64(0))[1] == 0  # a divisor below 1 counts as 1


@kernel
def _primes(flags: Any) -> int:
    count = 0
    for n in range(2, len(flags)):
        divisor = 2
        while True:
            if divisor * divisor > n:
                flags[n] = True
                count += 1
                break
            if n % divisor == 0:
                break
            divisor += 1
    for n in range(len(flags) - 1, -1, -2):
        if n < 2 or not flags[n]:
            continue
        count += 1000
    return count


def test_loops_break_continue_and_count_down() -> None:
    flags = np.zeros(100, np.bool_)
    assert _primes(flags) == 25 + 1000 * 24  # all primes below 100 but 2 are odd
    assert np.flatnonzero(flags)[-3:].tolist() == [83, 89, 97]


@inlined
def _both(value: Any) -> Any:
    return value + 1, value - 1


@kernel
def _widths(small: Any, signed: Any, wide: Any, grid: Any) -> None:
    for i in range(len(small)):
        up, down = _both(np.int64(small[i]))
        signed[i] = down - up + signed[i]
        wide[i] += np.uint64(small[i]) << np.uint64(60)
        grid[i, 1] += small[i] / 2.0
        grid[i, 0] = _both(up)[1]


def test_items_of_arrays_are_widened_when_read_and_cut_when_written() -> None:
    small = np.array([0, 255, 7], np.uint8)
    signed = np.array([-128, 5, 127], np.int8)
    wide = np.array([1, 2, 3], np.uint64)
    grid = np.ones((3, 2))
    _widths(small, signed, wide, grid)
    assert signed.tolist() == [126, 3, 125]
    assert wide.tolist() == [1, 2 + (15 << 60), 3 + (7 << 60)]
    assert grid.tolist() == [[0, 1], [255, 128.5], [7, 4.5]]


@kernel
def _steps(source: int, count: int, out: int) -> int:
    total = 0
    for i in range(count):
        value = peek32(source + 4 * i)
        total += value
        store16(out + 2 * i, value)
    return total


def test_memory_is_read_and_written_at_any_address() -> None:
    source = np.arange(1, 1001, dtype=np.uint32) * 70_001
    out = np.zeros(2001, np.uint8)
    assert _steps(source.ctypes.data, 1000, out.ctypes.data + 1) == int(source.astype(np.int64).sum())
    assert np.array_equal(np.frombuffer(out[1:].tobytes(), np.uint16), source.astype(np.uint16))


def _mixed(a: int) -> int:
    return a + _SEED  # type: ignore[return-value]


def _listed(a: int) -> int:
    return min([a])


def _unset(a: int) -> int:
    return a + missing  # type: ignore[name-defined]  # noqa: F821


def _tried(a: int) -> int:
    try:
        return a
    finally:
        pass


@pytest.mark.parametrize(
    ("function", "why"),
    [(_mixed, "np.int64 or np.uint64"), (_listed, "List"), (_unset, "no value yet"), (_tried, "Try")],
)
def test_what_is_not_in_the_language_is_refused_with_its_place(function: Any, why: str) -> None:
    with pytest.raises(KernelError, match=why) as caught:
        kernel(function)(1)
    assert f"test_language.py:{function.__code__.co_firstlineno + 1}" in str(caught.value)


def test_kernels_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(city128_at)) is city128_at


def test_arrays_with_gaps_and_wrong_counts_of_arguments_are_refused() -> None:
    with pytest.raises(KernelError, match="without gaps"):
        _primes(np.zeros(10, np.bool_)[::2])
    with pytest.raises(KernelError, match="1 arguments"):
        _primes(1, 2)  # type: ignore[call-arg]
    with pytest.raises(KernelError, match="arrays"):
        _primes(5)
