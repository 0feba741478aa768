"""The halves of a split statement: a statement for each task, and one over their results."""

from __future__ import annotations

from dataclasses import dataclass

FILES = "\ue000files\ue000"
"""Placeholder in a final statement for the partial results."""


class NotSplitError(Exception):
    """Why a statement is not split: a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Halves:
    """The partial and the final statement."""

    partial: str
    """Statement of each task, over its share of the rows."""
    final: str
    """Statement over the partial results, with `FILES` in their place."""
    why: str
    """Description of what the tasks do, for EXPLAIN."""

    def final_text(self, source: str) -> str:
        """The final statement with a table function that reads the partial results."""
        return self.final.replace(FILES, source)
