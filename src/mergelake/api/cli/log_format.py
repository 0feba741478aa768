"""What `mergelake node` logs: lines for people, or one JSON object a line with stable names.

::

    {"ts": "2026-01-01T10:00:00.123Z", "level": "INFO", "event": "merge", "message": "merged 5 parts into 202601_1_5_1",
     "node": "n1", "table": "default.events", "partition": "202601", "kind": "volatile", "parts": 5, "rows": 40960,
     "bytes": 1234567, "seconds": 0.42, "put": 0, "get": 5, "bytes_put": 0, "bytes_get": 1234890}

`event` is one of merge, upload, publish, failure (with `error`, ClickHouse's name of it), store_down, store_up,
disk_full, past_target, and log for anything else.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from mergelake.core.base.errors import error

FORMATS = ("text", "json")


class JsonFormatter(logging.Formatter):
    """One JSON object for each record."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "event": getattr(record, "event", "log"),
            "message": record.getMessage(),
            "logger": record.name,
            "node": self._node,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_as(form: str, node: str) -> None:
    """Log to stderr from now on: `json` from INFO on, `text` from WARNING on. BAD_ARGUMENTS for another format."""
    if form not in FORMATS:
        raise error("BAD_ARGUMENTS", f"There is no log format '{form}'", f"It is {' or '.join(FORMATS)}")
    if form == "json":
        logger, handler = logging.getLogger("mergelake"), logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter(node))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
