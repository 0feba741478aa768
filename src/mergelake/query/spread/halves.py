"""What splitting a statement gives: a statement for each task, and one over their answers."""

from __future__ import annotations

from dataclasses import dataclass

FILES = "\ue000files\ue000"
"""Stands in a final statement for the partial answers."""


class NotSplitError(Exception):
    """Why a statement is not split, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Both."""

    partial: str
    """For each task, over its share of the rows."""
    final: str
    """Over the partial answers, where `FILES` stands."""
    why: str
    """What the tasks do, in words."""

    def final_text(self, source: str) -> str:
        """The final statement over a table function that reads the partial answers."""
        return self.final.replace(FILES, source)
