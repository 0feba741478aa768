"""Validation of durations in seconds."""

from __future__ import annotations

import math

from mergelake.core.base.errors import error


def check_seconds(name: str, value: object, *, whole: bool = False) -> None:
    """Raise BAD_ARGUMENTS unless `value` is a number of seconds from 0 on; an integer if `whole`."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if not number or (whole and not isinstance(value, int)):
        hint = f"Give a {'whole ' if whole else ''}number of seconds, 0 or more"
        raise error("BAD_ARGUMENTS", f"{name} is {value!r}", hint)
