"""ReplacingMergeTree([version[, is_deleted]]): of the rows with one key, one stays.

The one with the greatest version stays; among equals, and where there is no version, the last in the order of
(part, row). For a merge and an insert, a tombstone (is_deleted = 1) is a row like any other: it must stay,
because an older version of its key may arrive later. Only FINAL leaves out a key whose winner is a tombstone.

The same rule is used by merges (streaming: `WinnerStream`), FINAL (`final_rows`) and `optimize_on_insert`
(`collapse_block`). It is associative: merging in any grouping gives the same rows.

Source: ClickHouse, `src/Processors/Merges/Algorithms/ReplacingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core import types as t
from mergelake.core.errors import error
from mergelake.core.schema import TableSchema
from mergelake.jit.intrinsics import kernel
from mergelake.order.keys import Block, TableKeys, table_keys, whole_column
from mergelake.order.normalized_keys import normalized_keys, number_words, numpy_values, same_as_previous

ENGINE = "ReplacingMergeTree"


@dataclass(frozen=True, slots=True)
class ReplacingMode:
    """The engine's columns."""

    version: str | None = None
    """Column whose greatest value stays, or None: the last row stays."""
    is_deleted: str | None = None
    """UInt8 column that marks tombstones, or None."""


def replacing_mode(schema: TableSchema) -> ReplacingMode | None:
    """The mode of a ReplacingMergeTree, checked; None for another engine.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, NO_SUCH_COLUMN_IN_TABLE or BAD_TYPE_OF_FIELD: CREATE TABLE calls this.
    """
    if schema.engine != ENGINE:
        return None
    if len(schema.engine_args) > 2:
        raise error(
            "NUMBER_OF_ARGUMENTS_DOESNT_MATCH",
            f"{ENGINE} takes at most a version and an is_deleted column, got {len(schema.engine_args)} arguments",
        )
    names = [argument.strip().strip("`") for argument in schema.engine_args]
    for name in names:
        if schema.column(name).default_kind == "ALIAS":
            raise error("NO_SUCH_COLUMN_IN_TABLE", f"Column {name} of {ENGINE} is an ALIAS column, which is not stored")
    if names:
        kind = schema.column(names[0]).type
        if not isinstance(kind, (t.Int, t.Float, t.Date, t.Date32, t.DateTime, t.DateTime64, t.Bool)) or (
            isinstance(kind, t.Int) and kind.bits > 64
        ):
            raise error(
                "BAD_TYPE_OF_FIELD",
                f"The version column {names[0]} of {ENGINE} cannot have type {kind}",
                "Use an integer, Date, DateTime or DateTime64",
            )
    if len(names) == 2 and schema.column(names[1]).type != t.UINT8:
        raise error(
            "BAD_TYPE_OF_FIELD", f"The is_deleted column {names[1]} of {ENGINE} must have type UInt8",
        )  # fmt: skip
    return ReplacingMode(*names)


def version_ranks(versions: pa.Array, data_type: t.DataType) -> NDArray[np.uint64]:
    """The version column as numbers to compare; NaN is greatest."""
    return number_words(versions, data_type)


def winners(repeats: NDArray[np.bool_], ranks: NDArray[np.uint64] | None = None) -> NDArray[np.bool_]:
    """Which rows stay, of rows sorted by key in merge order.

    `repeats[i]` says whether row i has the key of row i - 1; `ranks` are versions, None for a table without.
    """
    stream = WinnerStream()
    blocks = stream.push(repeats, np.zeros(len(repeats), np.uint64) if ranks is None else ranks)
    blocks += stream.finish()
    return np.concatenate(blocks) if blocks else np.zeros(0, np.bool_)


class WinnerStream:
    """Winners of keys whose rows may be spread over many blocks.

    Blocks go in by `push` and come out, in order, once nothing that follows can change them.
    """

    def __init__(self) -> None:
        self._pending: list[NDArray[np.bool_]] = []
        self._open_row = -1
        self._open_rank = 0

    def push(self, repeats: NDArray[np.bool_], ranks: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """Judge a block; returns the blocks that are settled: for each row whether it stays."""
        if not len(repeats):
            return []
        keep = np.empty(len(repeats), np.bool_)
        beaten, open_row, open_rank = _judge(repeats, ranks, self._open_row >= 0, np.uint64(self._open_rank), keep)
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


def collapse_block(block: Block, schema: TableSchema, keys: TableKeys | None = None) -> Block:
    """`optimize_on_insert` for one sorted block of one partition: the rows that a merge would keep.

    `block` holds storage-form columns; `keys` are `table_keys(schema)`, where the caller has them. Blocks of other
    engines come back as they are. Raises INCORRECT_DATA for an is_deleted value other than 0 and 1.
    """
    mode = replacing_mode(schema)
    if mode is None or block.num_rows == 0:
        return block
    check_tombstones(block, mode)
    sorting = (keys or table_keys(schema)).sorting
    keep = _keep(block, schema, mode, [key.values(block) for key in sorting], [key.type for key in sorting])
    return block if keep.all() else block.filter(pa.array(keep))


def final_rows(
    block: Block, schema: TableSchema, keys: Sequence[pa.Array], key_types: Sequence[t.DataType]
) -> NDArray[np.bool_]:
    """Which rows FINAL shows, of all rows of some keys in merge order (key, part, row).

    `keys` are the values of the sorting key's expressions, `block` holds at least the version and is_deleted columns,
    all in storage form. Raises ILLEGAL_FINAL for an engine that does not collapse.
    """
    mode = replacing_mode(schema)
    if mode is None:
        raise error("ILLEGAL_FINAL", f"Storage {schema.engine} does not support FINAL", "Leave out FINAL")
    keep = _keep(block, schema, mode, keys, key_types)
    if mode.is_deleted is not None:
        keep &= numpy_values(whole_column(block, mode.is_deleted)) == 0
    return keep


def check_tombstones(block: Block, mode: ReplacingMode) -> None:
    """INCORRECT_DATA unless every is_deleted value is 0 or 1."""
    if mode.is_deleted is None:
        return
    values = numpy_values(whole_column(block, mode.is_deleted))
    if len(values) and values.max() > 1:
        raise error(
            "INCORRECT_DATA",
            f"Incorrect data: is_deleted = {values.max()} in column {mode.is_deleted}",
            "It must be 1 for a deleted row or 0",
        )


def _keep(
    block: Block,
    schema: TableSchema,
    mode: ReplacingMode,
    keys: Sequence[pa.Array],
    key_types: Sequence[t.DataType],
) -> NDArray[np.bool_]:
    # Under ORDER BY tuple() all rows have one key.
    repeats = same_as_previous(normalized_keys(keys, key_types)) if keys else np.arange(block.num_rows) > 0
    if mode.version is None:
        return winners(repeats)
    return winners(repeats, version_ranks(whole_column(block, mode.version), schema.column(mode.version).type))


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
