"""The cache of results of texts: bounded by number and by size, and transparent."""

from __future__ import annotations

import pytest

from mergelake.core.base.sized_cache import sized_cache


def test_the_last_results_are_kept_up_to_their_size():
    calls = []

    @sized_cache(3, 10, len)
    def upper(text):
        calls.append(text)
        return text.upper()

    assert [upper(text) for text in ("aaaa", "bbbb", "aaaa")] == ["AAAA", "BBBB", "AAAA"]
    assert calls == ["aaaa", "bbbb"]
    upper("cccc")  # b goes: a was used later
    calls.clear()
    assert [upper("aaaa"), upper("cccc"), upper("bbbb")] == ["AAAA", "CCCC", "BBBB"]
    assert calls == ["bbbb"]
    calls.clear()
    for _ in range(2):
        assert upper("x" * 11) == "X" * 11  # too large to be kept, and drives nothing out
    upper("bbbb")
    assert calls == ["x" * 11] * 2
    for text in ("1", "2", "3", "4"):
        upper(text)
    calls.clear()
    upper("1")
    assert calls == ["1"]


def test_an_error_is_not_kept():
    @sized_cache(3, 10, len)
    def fail(text):
        raise ValueError(text)

    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            fail("a")
