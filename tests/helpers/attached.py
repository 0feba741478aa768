"""Snapshots that ClickHouse reads itself, from the first statement on, however small."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mergelake.query import attached


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a warehouse lies, and whether its parts are to lie in plain files."""

    url: str
    plain: bool


def attach_at_once(patch: pytest.MonkeyPatch) -> None:
    """Small tables too, and for the first statement."""
    patch.setattr(attached, "ROWS_MIN", 0)
    patch.setattr(attached, "SCANNED_FIRST", 0)
