"""The cache of marks and indexes."""

from __future__ import annotations

from mergelake.parts.read.cache import PartCache


def test_the_least_recently_used_entry_goes_first() -> None:
    cache = PartCache(max_bytes=30)
    for name in "abc":
        cache.put(name, name.upper(), 10)
    assert cache.get("a") == "A"
    cache.put("d", "D", 10)
    assert cache.get("b") is None
    assert [cache.get(name) for name in "acd"] == ["A", "C", "D"]
    assert (cache.hits, cache.misses, cache.bytes, len(cache)) == (4, 1, 30, 3)


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = PartCache(max_bytes=30)
    cache.put("a", "A", 10)
    cache.put("b", "B", 31)
    assert (cache.get("a"), cache.get("b"), cache.bytes) == ("A", None, 10)
    cache.put("a", "A2", 25)
    assert (cache.get("a"), cache.bytes) == ("A2", 25)


def test_an_entry_is_made_once() -> None:
    cache = PartCache()
    made: list[int] = []

    def make() -> tuple[str, int]:
        made.append(1)
        return "value", 5

    assert [cache.get_or("k", make), cache.get_or("k", make)] == ["value", "value"]
    assert (len(made), cache.hits, cache.misses) == (1, 1, 1)
