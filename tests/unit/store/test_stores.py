"""The store contract on memory and a directory, plain and below a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from mergelake.store import Store, open_store
from mergelake.store.objects.memory import MemoryStore
from mergelake.testing.faulty_store import FaultyStore
from mergelake.testing.store_contract import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestMemoryBelowAPrefix(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        outside = MemoryStore()
        outside.put("elsewhere", b"not ours")
        return open_store(outside.url + "/some/prefix")


class TestDirectory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "made by the first write" / "warehouse"))


class TestDirectoryWithoutSync(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"file://{tmp_path}/ware%20house", {"sync": "false"})


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return FaultyStore(MemoryStore())
