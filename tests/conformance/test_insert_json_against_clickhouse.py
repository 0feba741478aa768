"""INSERT … FORMAT JSONEachRow of random rows into random tables stores what ClickHouse stores, or is refused as there.

By hand: MERGELAKE_CONFORMANCE=long draws some thousands.
"""

from __future__ import annotations

import numpy as np
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from tests.helpers.inserted import held_by_clickhouse, held_here, shown_by_clickhouse, shown_here
from tests.helpers.random_json import JsonRows
from tests.helpers.rounds import rounds

STRICTER = {
    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN": "NULL where none may be becomes a default there",
    "CANNOT_PARSE_INPUT_ASSERTION_FAILED": "so it does in data that is left to ClickHouse's reader",
    "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE": "numbers out of range wrap there",
    "INCORRECT_DATA": "keys that are unknown or come twice are left out there",
    "TYPE_MISMATCH": "fractions of a second are cut off there",
    "CANNOT_PARSE_DATETIME": "a text without a year, which there means one that depends on the day",
}
"""What ClickHouse takes and we refuse, by the error that we give."""
FORMATS = ["JSONEachRow", "JSONCompactEachRow", "JSONStringsEachRow", "TSV", "CSV", "Values"]


class Case:
    """A table and an INSERT into it."""

    def __init__(self, seed: int) -> None:
        self.draw = JsonRows(np.random.default_rng(seed))
        self.one = seed % 2 == 0
        """One column and row with something odd in it, or several of both with little."""
        columns = [self.draw.type() for _ in range(1 if self.one else int(self.draw.rng.integers(1, 5)))]
        named = [f"c{i} {kind}{self.draw.default(kind)}" for i, kind in enumerate(columns)]
        self.columns = f"(k UInt32, {', '.join(named)})"
        kinds = {f"c{i}": parse_type(kind) for i, kind in enumerate(columns)}
        self.kinds = [parse_type("UInt32"), *kinds.values()]
        odd = 0.7 if self.one else 0.05
        rows = [self.draw.row(i, kinds, odd) for i in range(1 if self.one else int(self.draw.rng.integers(1, 6)))]
        self.count = len(rows)
        between = self.draw.pick(["\n", "\n", "\n", " ", ",", " ,\n", ""])
        self.data = f"[{','.join(rows)}]" if self.draw.chance(0.1) else between.join(rows)
        self.sql = f"FORMAT JSONEachRow {self.data}"

    def theirs(self) -> list[str] | str:
        """What ClickHouse holds then, or the name of its error."""
        return held_by_clickhouse(self.columns, self.kinds, self.sql, self.count)

    def ours(self) -> list[str] | MergelakeError:
        """The same here."""
        return held_here(self.columns, self.kinds, self.sql)


def judged(case: Case, format_name: str) -> str:
    """Empty, or what is wrong: with what is stored, or how it is shown in a format."""
    theirs, ours = case.theirs(), case.ours()
    if isinstance(ours, MergelakeError):
        return "" if isinstance(theirs, str) or ours.name in STRICTER else f"{ours}, in ClickHouse {theirs}"
    if isinstance(theirs, str):
        return f"is taken, in ClickHouse {theirs}"
    if theirs != ours:
        return f"holds {ours}, in ClickHouse {theirs}"
    shown, expected = shown_here(format_name), shown_by_clickhouse(format_name)
    return "" if shown.strip() == expected.strip() else f"{format_name} gives {shown}, in ClickHouse {expected}"


@pytest.mark.chdb
@pytest.mark.parametrize("block", range(rounds(4, 250)))
def test_random_objects_are_stored_and_shown_as_clickhouse_does(block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        case = Case(seed)
        wrong = judged(case, FORMATS[seed % len(FORMATS)])
        assert not wrong, f"seed {seed}: {case.columns} {case.sql}: {wrong}"
