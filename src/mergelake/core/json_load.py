"""JSON that somebody else wrote: `json.loads`, for which any nesting is just another ValueError."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def loads(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text. ValueError for what is no JSON, or too deep for Python's own reader."""
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
