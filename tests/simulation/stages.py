"""Stages: what one seed in four is about.

Chance alone rarely brings together what some mistakes need: a process that stops for hours between two requests while
all others go on, two who take the same part, local bytes beside mutations. So the cast of a stage is small, and what
matters there happens all the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.simulation.actors import Actor, Reader
from tests.simulation.admins import Borrower, Mutator, Surgeon
from tests.simulation.inserters import Inserter, Streamer
from tests.simulation.keepers import Collector, Inspector, Publisher
from tests.simulation.nodes import Merger
from tests.simulation.planned import NodeThread, PlannedNode

Role: TypeAlias = tuple[str, type[Actor], str, str]
"""Machine, what it does, the name that it shares with others, the process of which it is a thread."""

EVERY = 4
SLEEPER_PREEMPT = 0.3
NAPS = 0.15
NAP_MAX = 12
"""Grace periods that a nap lasts at most."""


@dataclass(frozen=True)
class Stage:
    """Who comes, who stops for long wherever it is, and what differs from other worlds."""

    cast: tuple[Role, ...]
    sleepers: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    leaps: float | None = None
    preempt: float | None = None
    crash_rate: float | None = None
    wrong_digits: bool = False


def _role(name: str, role: type[Actor], alias: str = "", group: str = "") -> Role:
    return name, role, alias, group


_INSERT = _role("insert", Inserter)
_SWEEPERS = (_role("gc 1", Collector), _role("gc 2", Collector))
_SWEPT = {"history_retention_seconds": "0", "checkpoint_interval": "3"}
_VOLATILE = {"merge_upload_policy": "volatile"}


def _while_others_collect(*cast: Role, settings: Mapping[str, str] = _SWEPT) -> Stage:
    """The first of these sleeps; what it knows is merged, dropped and collected meanwhile."""
    return Stage((*cast, _INSERT, *_SWEEPERS), (cast[0][0],), settings, leaps=0.3, preempt=0.05)


STAGES: tuple[Stage, ...] = (
    _while_others_collect(_role("stream", Streamer), _role("insert b", Inserter, "insert"), _role("node 1", Merger)),
    _while_others_collect(_role("admin", Borrower), _role("node 1", Merger), _role("admin 2", Surgeon)),
    _while_others_collect(_role("publisher", Publisher), _role("node 1", Merger), _role("admin", Surgeon)),
    _while_others_collect(_role("fsck", Inspector), _role("node 1", Merger), _role("publisher", Publisher)),
    _while_others_collect(
        _role("worker", NodeThread, "node", "node"),
        _role("node", NodeThread, "", "node"),
        settings={**_SWEPT, "merge_upload_policy": "direct"},
    ),
    _while_others_collect(
        _role("worker", NodeThread, "node", "node"),
        _role("node", NodeThread, "", "node"),
        _role("node 1", Merger),
        settings={**_SWEPT, **_VOLATILE},
    ),
    Stage(
        (_INSERT, _role("publisher", Publisher), _role("publisher 2", Publisher), _role("admin", Surgeon)),
        ("publisher",),
    ),
    Stage(
        (_INSERT, _role("publisher", Publisher), _role("admin", Surgeon), _role("node 1", Merger), *_SWEEPERS),
        leaps=0.3,
    ),
    Stage((_INSERT, _role("admin", Surgeon), _role("admin 2", Surgeon), _role("reader", Reader)), preempt=0.4),
    Stage((_INSERT, _role("node 1", Merger), _role("node 2", Merger), _role("admin", Mutator))),
    Stage(
        (_INSERT, _role("real node 1", PlannedNode), _role("node 1", Merger), _role("admin", Mutator)),
        settings=_VOLATILE,
    ),
    Stage(
        (_INSERT, _role("real node 1", PlannedNode), _role("real node 2", PlannedNode)),
        settings=_VOLATILE,
        crash_rate=0.03,
        wrong_digits=True,
    ),
)
