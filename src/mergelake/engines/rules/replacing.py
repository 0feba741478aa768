"""ReplacingMergeTree([version[, is_deleted]]): of the rows with one key, one stays.

The one with the greatest version stays; among equals, and where there is no version, the last in the order of
(part, row). For a merge and an insert, a tombstone (is_deleted = 1) is a row like any other: it must stay,
because an older version of its key may arrive later. Only FINAL leaves out a key whose winner is a tombstone.
The rule is associative: merging in any grouping gives the same rows.

Source: ClickHouse, `src/Processors/Merges/Algorithms/ReplacingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.jit.intrinsics import kernel
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.normalized_keys import numpy_values
from mergelake.engines.rules.mode import Mode, check_version, engine_columns

ENGINE = "ReplacingMergeTree"


def replacing_mode(schema: TableSchema) -> Mode:
    """The mode of a ReplacingMergeTree, checked.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, NO_SUCH_COLUMN_IN_TABLE, BAD_ARGUMENTS or BAD_TYPE_OF_FIELD.
    """
    if len(schema.engine_args) > 2:
        raise error(
            "NUMBER_OF_ARGUMENTS_DOESNT_MATCH",
            f"{ENGINE} takes at most a version and an is_deleted column, got {len(schema.engine_args)} arguments",
        )
    columns = engine_columns(schema, ("version", "is_deleted"))
    if columns:
        check_version(columns[0], ENGINE)
    if len(columns) == 2 and columns[1].type != t.UINT8:
        message = f"The is_deleted column {columns[1].name} of {ENGINE} must have type UInt8"
        raise error("BAD_TYPE_OF_FIELD", message)
    names = [column.name for column in columns] + [None, None]
    return Mode(ENGINE, lambda final: WinnerStream(), decides=names[0], tombstone=names[1])


def winners(repeats: NDArray[np.bool_], ranks: NDArray[np.uint64] | None = None) -> NDArray[np.bool_]:
    """Which rows stay, of rows sorted by key in merge order.

    `repeats[i]` says whether row i has the key of row i - 1; `ranks` are versions, None for a table without.
    """
    stream = WinnerStream()
    blocks = stream.push(repeats, np.zeros(len(repeats), np.uint64) if ranks is None else ranks)
    blocks += stream.finish()
    return np.concatenate(blocks) if blocks else np.zeros(0, np.bool_)


class WinnerStream:
    """`KeepStream` of the winners of keys; `words` are versions, zeros for a table without."""

    def __init__(self) -> None:
        self._pending: list[NDArray[np.bool_]] = []
        self._open_row = -1
        self._open_rank = 0

    def push(self, repeats: NDArray[np.bool_], words: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """Judge a block; returns the blocks that are settled: for each row whether it stays."""
        if not len(repeats):
            return []
        keep = np.empty(len(repeats), np.bool_)
        beaten, open_row, open_rank = _judge(repeats, words, self._open_row >= 0, np.uint64(self._open_rank), keep)
        if beaten:
            self._pending[0][self._open_row] = False
        self._open_rank = int(open_rank)
        self._pending.append(keep)
        if open_row < 0:  # the winner of the open key still lies in the first pending block
            return []
        self._open_row = open_row
        settled, self._pending = self._pending[:-1], self._pending[-1:]
        return settled

    def finish(self) -> list[NDArray[np.bool_]]:
        """The blocks that are left, after the last `push`."""
        settled, self._pending, self._open_row = self._pending, [], -1
        return settled


def check_tombstones(values: pa.Array, name: str) -> None:
    """INCORRECT_DATA unless every value of the is_deleted column is 0 or 1."""
    numbers = numpy_values(values)
    if len(numbers) and numbers.max() > 1:
        raise error(
            "INCORRECT_DATA",
            f"Incorrect data: is_deleted = {numbers.max()} in column {name}",
            "It must be 1 for a deleted row or 0",
        )


@kernel
def _judge(
    repeats: NDArray[np.bool_],
    ranks: NDArray[np.uint64],
    started: bool,
    open_rank: np.uint64,
    keep: NDArray[np.bool_],
) -> tuple[bool, int, np.uint64]:
    """Fill `keep`; returns whether the earlier winner of the first key lost, and row and rank of the last key's."""
    beaten = False
    winner = -1
    for row in range(len(repeats)):
        keep[row] = True
        if repeats[row] and (started or row > 0):
            if ranks[row] < open_rank:
                keep[row] = False
                continue
            if winner >= 0:
                keep[winner] = False
            else:
                beaten = True
        winner, open_rank = row, ranks[row]
    return beaten, winner, open_rank
