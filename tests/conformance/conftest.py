"""What conformance tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mergelake.api.python import warehouse
from mergelake.query.attach import attached, attaching
from mergelake.store import Store
from mergelake.store.cache.cache_dir import CacheDir
from mergelake.store.cache.cached import CachedStore
from tests.helpers.attached import Mixed, Reading, attach_at_once


class _Kept(CachedStore):
    """Over a store in memory, which itself takes no such option."""

    def __init__(self, inner: Store, cache: CacheDir) -> None:
        super().__init__(inner, cache)
        self.spec = inner.spec


@pytest.fixture(scope="module", params=["scanned", "attached", "served", "kept", "layered"])
def read(request: Any, tmp_path_factory: Any) -> Iterator[Reading]:
    """Warehouses whose parts are scanned, and such whose parts ClickHouse reads itself.

    These are files in a directory, come from our endpoint (or a cache directory below it, and files of ClickHouse's
    before it), or are read by a table beside a scan.
    """
    in_memory = Reading(f"memory://{request.module.__name__.rpartition('.')[2]}-{request.param}", plain=False)
    if request.param == "scanned":
        yield in_memory
        return
    with pytest.MonkeyPatch.context() as patch:
        attach_at_once(patch)
        if request.param == "kept":
            cache = CacheDir(str(tmp_path_factory.mktemp("cache")), 1 << 30)
            opened = warehouse.open_store
            patch.setattr(warehouse, "open_store", lambda *given: _Kept(opened(*given), cache))
        if request.param in ("served", "kept"):
            patch.setattr(attaching, "COPIED_MAX", -1)
            yield in_memory
            return
        if request.param == "layered":
            patch.setattr(attached, "SETS", Mixed())
        yield Reading(str(tmp_path_factory.mktemp("warehouse")), plain=True)
