"""ClickHouse as the oracle: one chdb session for the whole process (chdb allows no second one)."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from typing import Any

_session: Any = None


def oracle() -> Any:
    """The process-wide `chdb.session.Session`; `oracle().query(sql, "CSV")`. Made at the first call."""
    global _session
    if _session is None:
        import chdb.session

        path = tempfile.mkdtemp(prefix="mergelake-oracle-")
        _session = chdb.session.Session(path)
        atexit.register(_close, path)
    return _session


def _close(path: str) -> None:
    _session.close()
    shutil.rmtree(path, ignore_errors=True)
