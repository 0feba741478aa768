"""Engines' rules for rows of equal keys: which mode a table has, and its use for blocks in memory.

The same rule is used by merges (streaming: `Mode.begin`), FINAL (`final_rows`) and `optimize_on_insert`
(`collapse_block`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.model.engines import AGGREGATING, COALESCING, SUMMING
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.keys import Block, TableKeys, table_keys, whole_column
from mergelake.engines.order.normalized_keys import normalized_keys, number_words, numpy_values, same_as_previous
from mergelake.engines.rules.aggregating import aggregating_mode
from mergelake.engines.rules.coalescing import coalescing_mode
from mergelake.engines.rules.collapsing import COLLAPSING, VERSIONED, check_signs, collapsing_mode, versioned_mode
from mergelake.engines.rules.combining import combine_block
from mergelake.engines.rules.mode import Combination, KeySplitter, Mask, Mode
from mergelake.engines.rules.replacing import ENGINE as REPLACING, check_tombstones, replacing_mode
from mergelake.engines.rules.states import StateFunctions, bound
from mergelake.engines.rules.summing import summing_mode

_MODES: Mapping[str, Callable[[TableSchema], Mode]] = {
    REPLACING: replacing_mode,
    COLLAPSING: collapsing_mode,
    VERSIONED: versioned_mode,
    COALESCING: coalescing_mode,
    SUMMING: summing_mode,
    AGGREGATING: aggregating_mode,
}
ENGINES = ("MergeTree", *_MODES)
"""The engines of tables."""


def mode_of(schema: TableSchema) -> Mode | None:
    """The mode of the table's engine, checked; None for MergeTree, which keeps all rows.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, NO_SUCH_COLUMN_IN_TABLE, BAD_ARGUMENTS or BAD_TYPE_OF_FIELD for wrong
    arguments: CREATE TABLE calls this.
    """
    make = _MODES.get(schema.engine)
    return None if make is None else make(schema)


def working_mode(schema: TableSchema, states: StateFunctions | None) -> Mode | None:
    """The mode of the table's engine, for those who combine rows: its rules merge aggregate states by `states`.

    Raises SUPPORT_IS_DISABLED if it needs them and they are None.
    """
    mode = mode_of(schema)
    if mode is None or mode.combination is None:
        return mode
    return replace(mode, combination=replace(mode.combination, rules=bound(mode.combination.rules, states)))


def final_mode(schema: TableSchema) -> Mode:
    """The mode of a table that is read with FINAL; ILLEGAL_FINAL for an engine that keeps all rows."""
    mode = mode_of(schema)
    if mode is None:
        raise error("ILLEGAL_FINAL", f"Storage {schema.engine} does not support FINAL", "Leave out FINAL")
    return mode


def check_rows(block: Block, mode: Mode) -> None:
    """INCORRECT_DATA for a sign other than 1 and -1."""
    if mode.sign is not None and block.num_rows:
        check_signs(whole_column(block, mode.sign))


def collapse_block(block: Block, schema: TableSchema, keys: TableKeys | None = None, mode: Mode | None = None) -> Block:
    """`optimize_on_insert` for one sorted block of one partition: the rows that a merge would keep.

    `block` holds storage-form columns; `keys` and `mode` are `table_keys(schema)` and `working_mode(schema, …)`, where
    the caller has them. Blocks of MergeTree come back as they are. Raises INCORRECT_DATA for an is_deleted value other
    than 0 and 1, or a wrong sign.
    """
    mode = mode or mode_of(schema)
    if mode is None or block.num_rows == 0:
        return block
    if mode.tombstone is not None:
        check_tombstones(whole_column(block, mode.tombstone), mode.tombstone)
    sorting = (keys or table_keys(schema)).sorting
    repeats = _repeats(block, [key.values(block) for key in sorting], [key.type for key in sorting])
    if mode.combination is not None:
        return combine_block(block, repeats, mode.combination)
    keep = _keep(block, schema, mode, repeats)
    return block if keep.all() else block.filter(pa.array(keep))


def final_rows(
    block: Block,
    schema: TableSchema,
    keys: Sequence[pa.Array],
    key_types: Sequence[t.DataType],
    merged: NDArray[np.int64] | None = None,
) -> Mask:
    """Which rows FINAL shows, of all rows of some keys in merge order (key, part, row).

    `keys` are the values of the sorting key's expressions, `block` holds at least the columns `Mode.judged`, all in
    storage form; `merged` has for each row a number of its part, -1 for parts of level 0 (None: all are). Raises
    ILLEGAL_FINAL for an engine that keeps all rows.
    """
    mode = final_mode(schema)
    repeats = _repeats(block, keys, key_types)
    if mode.splits and merged is not None:
        repeats = KeySplitter().push(repeats, merged)
    keep = _keep(block, schema, mode, repeats, final=True)
    if mode.tombstone is not None:
        keep &= numpy_values(whole_column(block, mode.tombstone)) == 0
    return keep


def final_block(
    block: Block, combination: Combination, keys: Sequence[pa.Array], key_types: Sequence[t.DataType]
) -> pa.Table:
    """What FINAL shows of an engine with a combination; arguments as of `final_rows`, `block` has whole columns."""
    return combine_block(block, _repeats(block, keys, key_types), combination)


def _repeats(block: Block, keys: Sequence[pa.Array], key_types: Sequence[t.DataType]) -> Mask:
    """For each row whether it has the key of the row before it."""
    # Under ORDER BY tuple() all rows have one key.
    return same_as_previous(normalized_keys(keys, key_types)) if keys else np.arange(block.num_rows) > 0


def _keep(block: Block, schema: TableSchema, mode: Mode, repeats: Mask, *, final: bool = False) -> Mask:
    words = np.zeros(block.num_rows, np.uint64)
    if mode.decides is not None:
        words = number_words(whole_column(block, mode.decides), schema.column(mode.decides).type)
    stream = mode.begin(final)
    kept = stream.push(repeats, words) + stream.finish()
    return np.concatenate(kept) if kept else np.zeros(0, np.bool_)
