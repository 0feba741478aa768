"""What conformance tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mergelake.query import attached, attaching
from tests.helpers.attached import Mixed, Reading, attach_at_once


@pytest.fixture(scope="module", params=["scanned", "attached", "served", "layered"])
def read(request: Any, tmp_path_factory: Any) -> Iterator[Reading]:
    """Warehouses whose parts are scanned, and such whose parts ClickHouse reads itself.

    These are files in a directory, come from our endpoint, or are read by a table beside a scan.
    """
    in_memory = Reading(f"memory://{request.module.__name__.rpartition('.')[2]}-{request.param}", plain=False)
    if request.param == "scanned":
        yield in_memory
        return
    with pytest.MonkeyPatch.context() as patch:
        attach_at_once(patch)
        if request.param == "served":
            patch.setattr(attaching, "COPIED_MAX", -1)
            yield in_memory
            return
        if request.param == "layered":
            patch.setattr(attached, "SETS", Mixed())
        yield Reading(str(tmp_path_factory.mktemp("warehouse")), plain=True)
