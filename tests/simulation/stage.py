"""What a stage is: a cast, and how its world differs from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.simulation.actors import Actor

Role: TypeAlias = tuple[str, type[Actor], str, str]
"""Machine, what it does, the name that it shares with others, the process of which it is a thread."""


@dataclass(frozen=True)
class Stage:
    """Who comes, who stops for long wherever it is, and what differs from other worlds."""

    cast: tuple[Role, ...]
    sleepers: tuple[str, ...] = ()
    stops: Mapping[str, float] = field(default_factory=dict)
    """Where sleepers stop more often than others: `Machine.stops`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    naps: float = 0.25
    """How often a sleeper that has stopped stays there for long."""
    leaps: float | None = None
    preempt: float | None = None
    crash_rate: float | None = None
    fault_rate: float | None = None
    outages: float | None = None
    wrong_digits: bool = False
    by_hash: bool = False
    """Whether states of processes are compared by their hashes: what they have not read stays unread."""
    pace_s: float | None = None
    """How long they rest between two acts, at most."""


def one(name: str, role: type[Actor], alias: str = "", group: str = "") -> Role:
    return name, role, alias, group


def several(name: str, role: type[Actor], count: int, alias: str = "", group: str = "") -> tuple[Role, ...]:
    """Machines `name 1`, `name 2`, … that do the same."""
    return tuple(one(f"{name} {number}", role, alias, group) for number in range(1, count + 1))


def names(cast: tuple[Role, ...]) -> tuple[str, ...]:
    return tuple(name for name, *_ in cast)
