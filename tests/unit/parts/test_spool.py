"""The spool: one object while small, one a file when large, nothing left behind on abort."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mergelake.core.base.errors import UnavailableError
from mergelake.parts.write import spool as module
from mergelake.parts.write.spool import Spool
from mergelake.store.interface.protocol import Buffer
from mergelake.store.objects.memory import MemoryStore


def _write(spool: Spool, name: str, *chunks: bytes) -> None:
    assert spool.claim(name)
    for chunk in chunks:
        spool.write(name, chunk)
    spool.close(name)


def _read(store: MemoryStore, places: dict[str, tuple]) -> dict[str, bytes]:  # type: ignore[type-arg]
    return {
        name: b"".join(bytes(store.get_range(f"t/{e.key}", e.offset, e.length)) for e in extents)
        for name, extents in places.items()
    }


def test_a_small_part_is_one_object_with_its_front_first() -> None:
    store = MemoryStore()
    spool = Spool(store, "t", "p", limit=100)
    _write(spool, "a.bin", b"data", b"more")
    _write(spool, "empty", b"")
    _write(spool, "a.mrk2", b"marks")
    places = spool.finish(["a.mrk2", "absent"])
    assert store.get("t/p/files.packed") == b"marksdatamore"
    assert spool.storage == "packed"
    assert store.counters.put == 1
    assert _read(store, places) == {"a.mrk2": b"marks", "a.bin": b"datamore", "empty": b""}


def test_a_large_part_is_an_object_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAM_CHUNK", 1000)
    store = MemoryStore()
    spool = Spool(store, "t", "p", limit=100)
    _write(spool, "before", b"x" * 90)
    assert store.counters.put == 0
    chunks = [bytes([i]) * 700 for i in range(20)]
    _write(spool, "streamed", *chunks)
    _write(spool, "small", b"y")
    spool.put_last("checksums.txt", b"sums")
    places = spool.finish()
    assert spool.storage == "full"
    assert _read(store, places) == {
        "before": b"x" * 90,
        "streamed": b"".join(chunks),
        "small": b"y",
        "checksums.txt": b"sums",
    }
    assert {meta.key for meta in store.list("t")} == {
        "t/p/before", "t/p/checksums.txt", "t/p/small", "t/p/streamed"
    }  # fmt: skip


def test_abort_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAM_CHUNK", 1000)
    store = MemoryStore()
    spool = Spool(store, "t", "p", limit=10)
    _write(spool, "done", b"x" * 90)
    spool.claim("open")
    for _ in range(5):
        spool.write("open", b"y" * 900)
    spool.abort()
    assert list(store.list("")) == []


class _BrokenStore(MemoryStore):
    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        for _ in chunks:
            raise OSError("the line is dead")
        return 0


def test_a_dead_upload_stops_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAM_CHUNK", 10)
    spool = Spool(_BrokenStore(), "t", "p", limit=10)
    spool.claim("a")

    def write_much() -> None:
        for _ in range(100):
            spool.write("a", b"z" * 100)

    with pytest.raises(OSError, match="dead"):
        write_much()
    spool.abort()


def test_a_file_belongs_to_who_claims_it_first() -> None:
    spool = Spool(MemoryStore(), "t", "p", limit=10)
    assert spool.claim("nest.size0.bin")
    assert not spool.claim("nest.size0.bin")


def test_abort_does_not_hide_why_a_part_was_given_up(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(MemoryStore):
        def delete(self, keys: Iterable[str]) -> None:
            raise UnavailableError("the network is gone")

    spool = Spool(Silent(), "t", "p", limit=0)
    _write(spool, "a.bin", b"data")
    spool.abort()
    assert "the network is gone" in caplog.text
