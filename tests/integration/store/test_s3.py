"""The store contract on a real S3 server, straight and through a proxy that makes requests fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mergelake.store import Store, open_store
from mergelake.store.cache import cached
from mergelake.testing.store_contract import StoreContract


class TestS3(StoreContract):
    @pytest.fixture
    def store(self, s3_url: str, s3_options: dict[str, str]) -> Store:
        return open_store(s3_url, s3_options)


class TestS3OverACacheDirectory(StoreContract):
    """With whatever key, as if nothing but parts were stored."""

    @pytest.fixture
    def store(self, s3_url: str, s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setattr(cached, "is_part_object", lambda _: True)
        return open_store(s3_url, {**s3_options, "cache_dir": str(tmp_path / "cache")})


class TestS3ThroughFaults(StoreContract):
    """One request in ten fails, and one download in twenty is cut. Not PUT: a create may then be `Unknown`."""

    exact_counters = False
    races = 3

    @pytest.fixture
    def store(self, s3_url: str, s3_options: dict[str, str], fault_proxy: Any) -> Store:
        fault_proxy.rules = [
            {"do": "status", "status": 503, "method": ["GET", "HEAD", "DELETE", "POST"], "prob": 0.1},
            {"do": "refuse", "method": ["GET", "HEAD", "DELETE"], "prob": 0.05},
            {"do": "drop_download", "bytes": 100, "method": "GET", "prob": 0.05},
        ]
        return open_store(s3_url, {**s3_options, "endpoint": fault_proxy.url})
