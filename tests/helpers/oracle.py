"""ClickHouse as the oracle: one chdb session for the whole process.

A process has one ClickHouse, and its path is fixed at the first use. This session and the room `query` both
ask for the in-memory default, so they share it in whatever order they come.
"""

from __future__ import annotations

import atexit
from typing import Any

_session: Any = None


def oracle() -> Any:
    """The process-wide `chdb.session.Session`; `oracle().query(sql, "CSV")`. Made at the first call."""
    global _session
    if _session is None:
        import chdb.session

        _session = chdb.session.Session()
        atexit.register(_session.close)
    return _session
