"""Numbers of seconds that callers give: refused where they are none, before anything is done."""

from __future__ import annotations

import math

from mergelake.core.errors import error


def check_seconds(name: str, value: object, *, whole: bool = False) -> None:
    """BAD_ARGUMENTS for what is no number of seconds from 0 on; `whole`: nor a fraction of one."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if not number or (whole and not isinstance(value, int)):
        hint = f"Give a {'whole ' if whole else ''}number of seconds, 0 or more"
        raise error("BAD_ARGUMENTS", f"{name} is {value!r}", hint)
