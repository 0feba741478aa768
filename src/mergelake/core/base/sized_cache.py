"""A cache of results that are derived from texts, bounded by the number of entries and by the sizes of the texts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def sized_cache(
    entries_max: int, size_max: int, size: Callable[..., int]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Like `functools.lru_cache`, for functions of positional arguments: the last `entries_max` results, of arguments
    whose `size` is at most `size_max` in sum. A single larger one is not kept.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        held: OrderedDict[Hashable, tuple[R, int]] = OrderedDict()
        lock = threading.Lock()
        total = 0

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal total
            key = cast(Hashable, args)
            with lock:
                found = held.get(key)
                if found is not None:
                    held.move_to_end(key)
                    return found[0]
            result = function(*args, **kwargs)
            weight = size(*args)
            with lock:
                if weight <= size_max and key not in held:
                    held[key] = result, weight
                    total += weight
                    while len(held) > entries_max or total > size_max:
                        total -= held.popitem(last=False)[1][1]
            return result

        return cached

    return decorate
