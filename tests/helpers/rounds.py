"""How long a test of random cases goes on: a short run for every day, a long one under `make conformance`."""

from __future__ import annotations

import os

LONG = os.environ.get("MERGELAKE_CONFORMANCE") == "long"


def rounds(short: int, long: int) -> int:
    """The one or the other."""
    return long if LONG else short
