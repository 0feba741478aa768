"""What conformance tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.attached import Reading, attach_at_once


@pytest.fixture(scope="module", params=["scanned", "attached"])
def read(request: Any, tmp_path_factory: Any) -> Iterator[Reading]:
    """A warehouse in memory, and one in a directory whose parts ClickHouse reads itself."""
    if request.param == "scanned":
        yield Reading(f"memory://{request.module.__name__.rpartition('.')[2]}", plain=False)
        return
    with pytest.MonkeyPatch.context() as patch:
        attach_at_once(patch)
        yield Reading(str(tmp_path_factory.mktemp("warehouse")), plain=True)
