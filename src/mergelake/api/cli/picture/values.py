"""The values that a picture is drawn from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mergelake.api.cli.picture.drawing import SECONDS, Axis, unit_of
from mergelake.api.cli.picture.timeline import MergeLife, PartLife

WIDTH, MARGIN, LEFT, RIGHT = 1160, 24, 96, 868
"""Pixels: of the sheet, around it, and where frames begin and end; right of them is room for notes."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the time axis that has a name."""

    name: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """A query that was run by mergelake and by ClickHouse."""

    title: str
    query: str
    rows: int
    """Number of rows of the answer."""
    seconds: float
    clickhouse_seconds: float
    same: bool


@dataclass(frozen=True, slots=True)
class Sheet:
    """Everything that a picture shows."""

    title: str
    """What was done, in a few words; the product's name stands before it."""
    tiles: Sequence[tuple[str, str]] = ()
    """The main figures, each with its description; at most five."""
    phases: Sequence[Phase] = ()
    lives: Sequence[PartLife] = ()
    merges: Sequence[MergeLife] = ()
    answers: Sequence[QueryAnswer] = ()
    answers_note: str = ""
    """How the times were measured."""
    source: str = ""
    """What was measured, where, with which versions."""


def amplification(lives: Iterable[PartLife]) -> tuple[int, int]:
    """Bytes inserted into the bucket, and all bytes of parts written to it."""
    held = list(lives)
    return sum(life.bytes for life in held if not life.merged), sum(life.bytes for life in held)


def same_answers(answers: Sequence[QueryAnswer]) -> str:
    """`5 of 5 answers equal ClickHouse's`."""
    return f"{sum(answer.same for answer in answers)} of {len(answers)} answers equal ClickHouse's"


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time axis that all frames share."""

    start_ms: int
    end_ms: int
    axis: Axis
    unit: str
    unit_ms: float

    @classmethod
    def of(cls, sheet: Sheet) -> TimeAxis:
        """From the first moment of a sheet to its last."""
        moments = [life.born_ms for life in sheet.lives] + [life.died_ms for life in sheet.lives if life.died_ms]
        moments += [merge.ended_ms for merge in sheet.merges if merge.ended_ms]
        moments += [at for phase in sheet.phases for at in (phase.start_ms, phase.end_ms)]
        start, end = min(moments, default=0), max(moments, default=0)
        factor, unit = unit_of((end - start) / 1000, SECONDS)
        axis = Axis.to_end(max(end - start, 100) / 1000 / factor, LEFT, RIGHT, 12)
        return cls(start, end, axis, unit, factor * 1000)

    @property
    def moment(self) -> bool:
        """Whether everything happened at one moment, so that there is nothing to draw over time."""
        return self.start_ms == self.end_ms

    def x(self, at_ms: int | None) -> float:
        """The pixel of a time; None: the end."""
        at = self.end_ms if at_ms is None else at_ms
        return self.axis.at((at - self.start_ms) / self.unit_ms)
