"""Deliberate mistakes, each of which the simulation must find by itself: patches of the real code, by name.

Each is one line that somebody might write: a comparison that is wrong, a precondition that is missing, two steps in the
wrong order, a number that is off by one.

`first_seeds.json` says which seed finds each; `make simulate BUGS=1` tries that one, then others of its stage, or 0, 1,
2, …, and writes down which one did, which takes an hour where many have to be found anew. The tests go straight to that
seed, and search where it no longer finds anything: those that take few seeds in every run (`COMMON`), the others only
there. Those that are not in it are so rare that the last look did not see them.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.simulation.bugs import (
    altered,
    commits,
    keeping,
    leader,
    logs,
    members,
    mutations,
    nodes,
    parts,
    peer_reads,
    real_parts,
    retired,
    segments,
    transactions,
)
from tests.simulation.bugs.registry import BUGS
from tests.simulation.stages import OF_A_STAGE

FIRST_SEEDS = Path(__file__).with_name("first_seeds.json")
FIRST: dict[str, int] = json.loads(FIRST_SEEDS.read_text()) if FIRST_SEEDS.exists() else {}
COMMON_MAX = 100
COMMON = [name for name in BUGS if FIRST.get(name, COMMON_MAX) % OF_A_STAGE < COMMON_MAX]

__all__ = [
    "BUGS",
    "COMMON",
    "COMMON_MAX",
    "FIRST",
    "FIRST_SEEDS",
    "altered",
    "commits",
    "keeping",
    "leader",
    "logs",
    "members",
    "mutations",
    "nodes",
    "parts",
    "peer_reads",
    "real_parts",
    "retired",
    "segments",
    "transactions",
]
