"""INSERT … VALUES of random rows into random tables stores what ClickHouse stores, or is refused as there.

By hand: MERGELAKE_CONFORMANCE=long draws some thousands.
"""

from __future__ import annotations

import numpy as np
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types import types as t
from mergelake.core.types.types import parse_type
from tests.helpers.inserted import held_by_clickhouse, held_here
from tests.helpers.random_inserts import Inserts
from tests.helpers.rounds import rounds

STRICTER = {
    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN": "NULL where none may be becomes a default there",
    "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE": "numbers out of range wrap there",
    "CANNOT_PARSE_NUMBER": "so do negative ones in unsigned columns",
    "TYPE_MISMATCH": "fractions are cut off there; and a NULL or a number inside of a tuple of one element",
    "CANNOT_PARSE_BOOL": "2 is true there",
    "CANNOT_PARSE_DATETIME": "a text without a year, which there means one that depends on the day",
    "SYNTAX_ERROR": "NULL in a map becomes a default there",
    "DECIMAL_OVERFLOW": "DateTime64(7) beyond 2262 in a computed value: Arrow cannot bring it over",
}
"""What ClickHouse takes and we refuse, by the error that we give."""
UNREADABLE = (
    "CANNOT_PARSE_TEXT", "CANNOT_PARSE_NUMBER", "CANNOT_PARSE_DATE", "CANNOT_PARSE_DATETIME", "CANNOT_PARSE_UUID",
    "CANNOT_PARSE_IPV4", "CANNOT_PARSE_IPV6", "CANNOT_PARSE_BOOL", "ATTEMPT_TO_READ_AFTER_EOF",
    "CANNOT_PARSE_INPUT_ASSERTION_FAILED", "UNKNOWN_ELEMENT_OF_ENUM", "TOO_LARGE_STRING_SIZE",
)  # fmt: skip
"""Errors of texts that do not parse: a Nullable column of ClickHouse's takes such a literal for NULL."""


class Case:
    """A table and an INSERT into it."""

    def __init__(self, seed: int) -> None:
        self.draw = Inserts(np.random.default_rng(seed))
        self.one = seed % 2 == 0
        """One column and row with something odd in it, or several of both with little."""
        columns = [self.draw.type() for _ in range(1 if self.one else int(self.draw.rng.integers(1, 5)))]
        named = [f"c{i} {kind}{self.draw.default(kind)}" for i, kind in enumerate(columns)]
        self.columns = f"(k UInt32, {', '.join(named)})"
        self.kinds = [parse_type(kind) for kind in ("UInt32", *columns)]
        rows = [self._row(number) for number in range(1 if self.one else int(self.draw.rng.integers(1, 6)))]
        self.count = len(rows)
        self.values = f"VALUES {', '.join(rows)}"

    def _row(self, number: int) -> str:
        cells = [str(number)]
        for kind in self.kinds[1:]:
            # The keyword puts 0 into an Enum and a Date32 there, which is not their default.
            left_out = self.draw.chance(0.08) and not t.holds(kind, t.Enum, t.Date32)
            cells.append("DEFAULT" if left_out else self.draw.cell(kind, 0.7 if self.one else 0.12))
        return f"({', '.join(cells)})"

    def theirs(self) -> list[str] | str:
        """What ClickHouse holds then, or the name of its error."""
        return held_by_clickhouse(self.columns, self.kinds, self.values, self.count)

    def ours(self) -> list[str] | MergelakeError:
        """The same here."""
        return held_here(self.columns, self.kinds, self.values)


def judged(case: Case) -> str:
    """Empty, or what is wrong."""
    theirs, ours = case.theirs(), case.ours()
    if isinstance(ours, list):
        if isinstance(theirs, list):
            return "" if theirs == ours else f"holds {ours}, in ClickHouse {theirs}"
        # After a computed value in the same column ClickHouse does not know DEFAULT any more.
        allowed = theirs == "UNKNOWN_IDENTIFIER" and "DEFAULT" in case.values
        return "" if allowed else f"is taken, in ClickHouse {theirs}"
    if isinstance(theirs, str):
        # Of several faults either may come first; texts that do not parse have several codes.
        nested = any(t.holds(kind, t.Array, t.Map, t.Tuple) for kind in case.kinds)
        same = ours.name == theirs or not case.one or nested or {ours.name, theirs} <= set(UNREADABLE)
        return "" if same else f"{ours}, in ClickHouse {theirs}"
    lost = ours.name in UNREADABLE and "None" in repr(theirs)
    return "" if ours.name in STRICTER or lost else f"{ours}, in ClickHouse {theirs}"


@pytest.mark.chdb
@pytest.mark.parametrize("block", range(rounds(4, 80)))
def test_random_rows_are_stored_as_clickhouse_stores_them(block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        case = Case(seed)
        wrong = judged(case)
        assert not wrong, f"seed {seed}: {case.columns} {case.values}: {wrong}"
