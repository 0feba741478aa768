"""Snapshots that ClickHouse reads itself, from the first statement on, however small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from mergelake.query.attach import attached
from mergelake.query.attach.attached import AttachedSets, Reading as LayeredReading
from mergelake.query.part_set import PartSet


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a warehouse lies, and whether its parts are to lie in plain files."""

    url: str
    plain: bool


def attach_at_once(patch: pytest.MonkeyPatch) -> None:
    """Small tables too, and for the first statement."""
    patch.setattr(attached, "ROWS_MIN", 0)
    patch.setattr(attached, "SCANNED_FIRST", 0)


class Mixed(AttachedSets):
    """Reads every set by a table that has some parts too many, beside a scan of those that it lacks."""

    @contextmanager
    def using(self, wanted: PartSet, *, exact: bool = False) -> Iterator[LayeredReading]:
        """As always where one table must have all of it."""
        ids = list(wanted.by_id)
        if exact or len(ids) < 2:
            with super().using(wanted, exact=exact) as reading:
                yield reading
            return
        base = wanted.only(frozenset(ids[: 2 * len(ids) // 3 + 1]))
        without = base.parts[0]
        with super().using(base, exact=True) as reading:
            ((name, _),) = reading.tables
            rest = wanted.only(frozenset((ids[0], *ids[len(base.parts) :])))
            yield LayeredReading(((name, (without.name,)),), rest)
