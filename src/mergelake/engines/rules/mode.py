"""What an engine does with rows of equal keys, as a value: `modes.mode_of` gives the mode of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.base.lexer import quoted_name
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t

Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]


class KeepStream(Protocol):
    """Judges rows in merge order, block by block: the rows of a key may be spread over many blocks."""

    def push(self, repeats: Mask, words: Words) -> list[Mask]:
        """Judge a block; returns the blocks that are settled, in order: for each row whether it stays.

        `repeats[i]` says whether row i has the key of the row before it, in this block or an earlier one; `words` are
        the values of `Mode.decides` as numbers.
        """

    def finish(self) -> list[Mask]:
        """The blocks that are left, after the last `push`."""


Rule = Callable[[pa.Array, NDArray[np.int64]], pa.Array]
"""(values in storage form, the row at which each group begins, ascending from 0) -> a value for each group."""


Judge = Callable[[pa.Array], Mask]


@dataclass(frozen=True, slots=True)
class Combination:
    """How an engine makes one row of the rows of a key; columns without a rule take the value of the first row."""

    rules: Mapping[str, Rule]
    """Column -> its rule."""
    nothing: Mapping[str, Judge] = field(default_factory=dict)
    """Column -> which of its combined values are nothing: a row of which all are is removed. Empty: none is."""
    maps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column -> all columns with which it is combined, it among them: their rule takes and gives structs of them."""
    single_rows: bool = False
    """Whether a rule may give another value than that of a single row."""
    by_columns: bool = False
    """Whether the rows that FINAL of ClickHouse shows depend on the columns that a query reads."""


@dataclass(frozen=True, slots=True)
class Mode:
    """The rule of one engine, with its columns."""

    engine: str
    begin: Callable[[bool], KeepStream]
    """A new stream; True for FINAL, False for merges and inserts."""
    decides: str | None = None
    """The column whose values decide which rows of a key stay; None: their order does."""
    tombstone: str | None = None
    """UInt8 column; a row that FINAL would show is left out if it is 1."""
    sign: str | None = None
    """Int8 column of 1 and -1."""
    splits: bool = False
    """Whether rows are judged after a `KeySplitter`."""
    combination: Combination | None = None
    """How the rows of a key become one, which stands in the place of the first; None: rows stay as they are."""

    @property
    def hides(self) -> bool:
        """Whether keys may have rows of which FINAL shows none."""
        return self.tombstone is not None or self.sign is not None or self.removes

    @property
    def removes(self) -> bool:
        """Whether rows that were combined may be removed."""
        return self.combination is not None and bool(self.combination.nothing)

    @property
    def by_columns(self) -> bool:
        """Whether the rows that FINAL of ClickHouse shows depend on the columns that a query reads."""
        return self.combination is not None and self.combination.by_columns

    @property
    def judged(self) -> tuple[str, ...]:
        """The columns that FINAL reads besides the sorting key."""
        return tuple(name for name in (self.decides, self.tombstone) if name is not None)


class KeySplitter:
    """Ends a key before a row if the key's first row lies in the same part, of a level above 0.

    ClickHouse assumes that the rows of such a part have different keys. That is wrong for parts of a
    CollapsingMergeTree, whose results depend on it.
    """

    def __init__(self) -> None:
        self._first = -1  # the part of the first row of the open key

    def push(self, repeats: Mask, parts: NDArray[np.int64]) -> Mask:
        """`repeats` of the next rows; `parts` has a number of each row's part, -1 for parts of level 0."""
        if not len(repeats):
            return repeats
        begins = np.maximum.accumulate(np.where(repeats, -1, np.arange(len(repeats))))
        first = np.where(begins < 0, self._first, parts[begins])
        self._first = int(first[-1])
        split: Mask = repeats & ((parts < 0) | (parts != first))
        return split


def engine_columns(schema: TableSchema, kinds: Sequence[str]) -> list[Column]:
    """The columns that the engine's arguments name; `kinds` describes each for errors (`sign`, `version`).

    Raises BAD_ARGUMENTS or NO_SUCH_COLUMN_IN_TABLE.
    """
    columns = []
    for kind, argument in zip(kinds, schema.engine_args, strict=False):
        text = argument.strip()
        name = quoted_name(text) or text
        if text[:1] == "'" or (not schema.has(name) and not text.replace("_", "").replace(".", "").isalnum()):
            raise error("BAD_ARGUMENTS", f"The {kind} column of {schema.engine} cannot be {text}", "Name a column")
        column = schema.column(name)
        if column.default_kind == "ALIAS":
            message = f"Column {name} of {schema.engine} is an ALIAS column, which is not stored"
            raise error("NO_SUCH_COLUMN_IN_TABLE", message)
        columns.append(column)
    return columns


def check_version(column: Column, engine: str, *, wide: bool = False) -> None:
    """BAD_TYPE_OF_FIELD unless the column can be a version; `wide`: integers of more than 64 bits can, too."""
    kind = column.type
    fits = isinstance(kind, (t.Int, t.Float, t.Date, t.Date32, t.DateTime, t.DateTime64, t.Bool))
    if not fits or (isinstance(kind, t.Int) and kind.bits > 64 and not wide):
        raise error(
            "BAD_TYPE_OF_FIELD",
            f"The version column {column.name} of {engine} cannot have type {kind}",
            "Use an integer, Date, DateTime or DateTime64",
        )
