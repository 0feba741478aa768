"""Random values: rand, rand64, generateUUIDv4. They are allowed only in a column's DEFAULT, computed by the insert.

Each call draws from its own stream, begun with a seed of the environment. Calls that are written the same within one
expression give a row the same value, as in ClickHouse; an argument only distinguishes calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundNode
from mergelake.expr.registry import BindingEnvironment, Resolved, special
from mergelake.expr.values import UUID_DATA

Draw = Callable[[np.random.Generator, int], npt.NDArray[Any]]

_VERSION, _VERSION_BITS = np.uint64(0x4000), np.uint64(0xF000)
_VARIANT, _VARIANT_BITS = np.uint64(1 << 63), np.uint64(3 << 62)


def _words(count: int, rng: np.random.Generator) -> npt.NDArray[np.uint64]:
    return rng.integers(0, 1 << 64, count, dtype=np.uint64)


def _uuids(rng: np.random.Generator, rows: int) -> npt.NDArray[Any]:
    """Version 4 UUIDs by RFC 9562: 122 random bits."""
    data = np.empty(rows, UUID_DATA)
    data["lo"] = _words(rows, rng) & ~_VERSION_BITS | _VERSION
    data["hi"] = _words(rows, rng) & ~_VARIANT_BITS | _VARIANT
    return data


def _random(
    name: str, result: t.DataType, draw: Draw, aliases: tuple[str, ...] = (), *, any_case: bool = False
) -> None:
    @special(name, 0, 1, aliases=aliases, any_case=any_case)
    def rule(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
        if environment.seed is None:
            raise error(
                "BAD_ARGUMENTS",
                f"{name}() has no place in an expression that must always give the same value",
                "It can be the DEFAULT of a column, which an INSERT computes and stores",
            )
        rng = np.random.Generator(np.random.PCG64(environment.seed()))
        called = f"{name}({', '.join(map(str, args))})"
        return Resolved(result, run=lambda ctx: ctx.drawn(called, lambda rows: draw(rng, rows)), varies=True, cost=5)


_random(
    "rand",
    t.Int(32, False),
    lambda rng, rows: rng.integers(0, 1 << 32, rows, dtype=np.uint32),
    ("rand32",),
    any_case=True,
)
_random("rand64", t.Int(64, False), lambda rng, rows: _words(rows, rng))
_random("generateUUIDv4", t.UUID(), _uuids)
