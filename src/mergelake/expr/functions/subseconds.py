"""Starts of seconds and of their fractions, which only DateTime64 has; milliseconds; slots of half an hour.

Source: ClickHouse, `src/Functions/DateTimeTransforms.h`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.types import types as t
from mergelake.expr.functions import casts
from mergelake.expr.functions.date_parts import TIMES, to_stamp, zone_name
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

Numbers = npt.NDArray[Any]


def _start(name: str, digits: int) -> None:
    @function(name, 1, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        if not isinstance(kind, t.DateTime64):
            raise illegal(name, *(arg.type for arg in args))
        result = t.DateTime64(max(kind.precision, digits), zone_name(name, args, 1) or kind.timezone)
        finer, step = casts.kernel(kind, result), 10 ** (result.precision - digits)
        return Resolved(result, lambda data, *_: finer(data) // step * step, can_raise=kind.precision < digits, cost=4)


for _name, _digits in (("Second", 0), ("Millisecond", 3), ("Microsecond", 6), ("Nanosecond", 9)):
    _start(f"toStartOf{_name}", _digits)


@function("toMillisecond", 1, 2, aliases=("MILLISECOND",))
def _millisecond(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if not isinstance(kind, TIMES):
        raise illegal("toMillisecond", *(arg.type for arg in args))
    zone_name("toMillisecond", args, 1)
    precision = kind.precision if isinstance(kind, t.DateTime64) else 0
    up, down = 10 ** max(3 - precision, 0), 10 ** max(precision - 3, 0)

    def kernel(data: Numbers, *_: Numbers) -> Numbers:
        fraction = data.astype(np.int64) % 10**precision
        return np.asarray(fraction // down * up, np.uint16)

    return Resolved(t.Int(16, False), kernel, cost=4)


@function("timeSlot", 1, 2)
def _time_slot(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if not isinstance(kind, TIMES):
        raise illegal("timeSlot", *(arg.type for arg in args))
    result = t.DateTime(zone_name("timeSlot", args, 1) or kind.timezone)
    scale = 1800 * 10**kind.precision if isinstance(kind, t.DateTime64) else 1800
    return Resolved(result, lambda data, *_: to_stamp(data.astype(np.int64) // scale * 1800), cost=4)
