"""Deliberate mistakes, each of which the simulation must find by itself: patches of the real code, by name.

Each is one line that somebody might write: a comparison that is wrong, a precondition that is missing, two steps in the
wrong order, a number that is off by one. 
"""

from __future__ import annotations

from tests.simulation.bugs import commits, keeping, logs, nodes, parts
from tests.simulation.bugs.registry import BUGS

__all__ = ["BUGS", "commits", "keeping", "logs", "nodes", "parts"]
