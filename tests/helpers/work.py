"""How much work a call is, as a number that does not depend on the machine: the bytecodes that it runs.

Loops in Python are counted wherever they are, comprehensions too; what numpy, Arrow or compiled kernels do is one step.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

_WAITS = re.compile(r"/(?:threading|queue|concurrent/futures/_base)\.py:")
"""What a thread runs to wait: how often it does is not the work's doing."""


def bytecodes_by_place(call: Callable[[], object]) -> Counter[str]:
    """Bytecodes that `call` runs, also in threads that it starts, by function."""
    counts: Counter[str] = Counter()

    def begin(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code
        place = f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "opcode":
                counts[place] += 1
            return step

        return step

    before, threads_before, collects = sys.gettrace(), threading.gettrace(), gc.isenabled()
    gc.disable()  # libraries hear of collections, which befall anybody: their functions would be counted
    threading.settrace(begin)
    sys.settrace(begin)
    try:
        call()
    finally:
        sys.settrace(before)
        threading.settrace(threads_before)
        if collects:
            gc.enable()
    return counts


def bytecodes(call: Callable[[], object]) -> int:
    """Bytecodes that `call` runs."""
    return bytecodes_by_place(call).total()


def steep(small: Counter[str], large: Counter[str], factor: float, share: float = 0.001) -> dict[str, tuple[int, int]]:
    """Functions whose bytecodes grew by more than `factor`, and are at least that `share` of all."""
    least = share * large.total()
    large = Counter({place: n for place, n in large.items() if not _WAITS.search(place)})
    return {place: (small[place], n) for place, n in large.items() if n > least and n > factor * max(small[place], 1)}
