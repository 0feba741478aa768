"""CollapsingMergeTree(sign) and VersionedCollapsingMergeTree(sign, version): rows of opposite signs cancel.

**Collapsing.** Of the rows with one key, P of sign 1 and N of sign -1, stay

=====================  ===============================================
P > N                  the last row of sign 1
N > P                  the first of sign -1; FINAL shows none
P = N, the last is -1  none
P = N, the last is 1   the first of -1 and the last of 1; FINAL shows only the latter
=====================  ===============================================

Merging in any grouping gives the same rows where the signs of a key alternate, beginning with 1, in the order of
inserts; otherwise the rows depend on which parts were merged first, here as in ClickHouse, and on `KeySplitter`.

**Versioned.** The version is the last column of the sorting key (`with_version`). Of the rows with one key, which have
one version then, each cancels the nearest one before it that is left and has another sign. FINAL shows all that are
left. How many stay does not depend on the grouping of merges.

Source: ClickHouse, `CollapsingSortedAlgorithm.cpp` and `VersionedCollapsingAlgorithm.cpp` of
`src/Processors/Merges/Algorithms/`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.jit.intrinsics import kernel
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.keys import bind_key
from mergelake.engines.order.normalized_keys import number_words, numpy_values
from mergelake.engines.rules.mode import Mode, check_version, engine_columns

COLLAPSING = "CollapsingMergeTree"
VERSIONED = "VersionedCollapsingMergeTree"
INT8 = t.Int(8, signed=True)
NEGATIVE, POSITIVE = number_words(pa.array([-1, 1], pa.int8()), INT8)
"""The signs as words."""


def collapsing_mode(schema: TableSchema) -> Mode:
    """The mode of a CollapsingMergeTree, checked.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, NO_SUCH_COLUMN_IN_TABLE, BAD_ARGUMENTS or BAD_TYPE_OF_FIELD.
    """
    _check_count(schema, ("sign",))
    sign = _sign(schema)
    return Mode(COLLAPSING, lambda final: CollapseStream(final=final), decides=sign, sign=sign, splits=True)


def versioned_mode(schema: TableSchema) -> Mode:
    """The mode of a VersionedCollapsingMergeTree, checked; raises as `collapsing_mode` does."""
    _check_count(schema, ("sign", "version"))
    sign, version = _sign(schema), engine_columns(schema, ("sign", "version"))[1]
    if version.name == sign:
        raise error("BAD_ARGUMENTS", f"The version and sign column cannot be the same column ({sign})")
    check_version(version, VERSIONED, wide=True)
    return Mode(VERSIONED, lambda final: CancelStream(), decides=sign, sign=sign)


def with_version(schema: TableSchema) -> TableSchema:
    """The schema with the version of a VersionedCollapsingMergeTree in its sorting key, as its last column.

    The primary key stays. Schemas of other engines, or with the version in the key, come back as they are. Raises
    NOT_IMPLEMENTED for a table without a sorting key.
    """
    if schema.engine != VERSIONED:
        return schema
    version = engine_columns(schema, ("sign", "version"))[1].name
    if not schema.order_by:
        message = f"A {VERSIONED} with ORDER BY tuple() is not supported"
        raise error("NOT_IMPLEMENTED", message, f"ORDER BY {version} has the same rows in the same order")
    keys = [bind_key(text, schema) for text in schema.order_by]
    if any(key.plain and key.columns == (version,) for key in keys):
        return schema
    text = schema.engine_args[1].strip()
    return replace(
        schema,
        primary_key=schema.primary_key or schema.order_by,
        order_by=(*schema.order_by, text),
        order_desc=(*schema.order_desc, False) if schema.order_desc else (),
    )


def without_version(schema: TableSchema) -> TableSchema:
    """The schema as CREATE TABLE has it: the reverse of `with_version`, which gives the same table."""
    if (
        schema.engine != VERSIONED
        or not schema.primary_key
        or schema.order_by == schema.primary_key
        or schema.order_by[-1:] != (schema.engine_args[1].strip(),)
    ):
        return schema
    return replace(schema, order_by=schema.order_by[:-1], order_desc=schema.order_desc[:-1])


def check_signs(values: pa.Array) -> None:
    """INCORRECT_DATA unless every sign is 1 or -1."""
    signs = numpy_values(values)
    wrong = signs[np.abs(signs.astype(np.int64)) != 1]
    if len(wrong):
        raise _wrong_sign(int(wrong[0].item()))


class _PendingBlocks:
    """Blocks that later rows may still change."""

    def __init__(self) -> None:
        self._pending: list[NDArray[np.bool_]] = []
        self._first = 0  # the number of the first pending row

    def _settle(self, row: int) -> list[NDArray[np.bool_]]:
        """The pending blocks that end at `row` or before it."""
        settled = []
        while self._pending and self._first + len(self._pending[0]) <= row:
            settled.append(self._pending.pop(0))
            self._first += len(settled[-1])
        return settled


class CollapseStream(_PendingBlocks):
    """`KeepStream` of a CollapsingMergeTree; `words` are signs. Raises INCORRECT_DATA for another sign than 1 or -1."""

    def __init__(self, *, final: bool = False) -> None:
        self._final = final
        super().__init__()
        # Of the open key: rows of sign 1, of sign -1, the first row of -1, the last of 1, whether the last row is of 1.
        self._open = np.array([0, 0, -1, -1, 0], np.int64)

    def push(self, repeats: NDArray[np.bool_], words: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """Judge a block; returns the blocks that are settled: for each row whether it stays."""
        keep = np.zeros(len(repeats), np.bool_)
        earlier = np.full(2, -1, np.int64)
        begin = self._first + sum(map(len, self._pending))
        wrong = _collapse(repeats, words, POSITIVE, NEGATIVE, begin, self._final, self._open, keep, earlier)
        if wrong >= 0:
            raise _wrong_sign(int(words[wrong]) - (1 << 63))
        self._pending.append(keep)
        self._keep(earlier)
        candidates = [int(row) for row in self._open[2:4] if row >= 0]
        return self._settle(min(candidates, default=begin))

    def finish(self) -> list[NDArray[np.bool_]]:
        """The blocks that are left, after the last `push`."""
        earlier = np.full(2, -1, np.int64)
        end = self._first + sum(map(len, self._pending))
        _close(end, self._final, self._open, np.zeros(0, np.bool_), earlier)
        self._keep(earlier)
        return self._settle(end)

    def _keep(self, rows: NDArray[np.int64]) -> None:
        """Mark pending rows as ones that stay."""
        for number in rows[rows >= 0].tolist():
            at = number - self._first
            for block in self._pending:
                if at < len(block):
                    block[at] = True
                    break
                at -= len(block)


class CancelStream(_PendingBlocks):
    """`KeepStream` of a VersionedCollapsingMergeTree; `words` are signs."""

    def __init__(self) -> None:
        super().__init__()
        self._left = np.zeros(0, np.int64)  # rows of the open key that are left, in order; all have one sign
        self._sign = np.uint64(0)

    def push(self, repeats: NDArray[np.bool_], words: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """Judge a block; returns the blocks that are settled: for each row whether it stays."""
        begin = self._first + sum(map(len, self._pending))
        self._pending.append(np.ones(len(repeats), np.bool_))
        carried = len(self._left)
        left = np.concatenate((self._left, np.zeros(len(repeats), np.int64)))
        gone = np.zeros(carried + len(repeats) + 1, np.int64)
        count, lost, sign = _cancel(repeats, words, begin, carried, self._sign, left, gone)
        rows = gone[:lost] - self._first
        for block in self._pending:
            inside = rows[(rows >= 0) & (rows < len(block))]
            block[inside] = False
            rows = rows - len(block)
        self._left, self._sign = left[:count].copy(), np.uint64(sign)
        return self._settle(int(self._left[0]) if count else begin + len(repeats))

    def finish(self) -> list[NDArray[np.bool_]]:
        """The blocks that are left, after the last `push`."""
        self._left = self._left[:0]
        return self._settle(self._first + sum(map(len, self._pending)))


def _check_count(schema: TableSchema, kinds: tuple[str, ...]) -> None:
    if len(schema.engine_args) != len(kinds):
        message = f"{schema.engine} takes {len(kinds)} arguments ({', '.join(kinds)}), got {len(schema.engine_args)}"
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", message, f"{schema.engine}({', '.join(kinds)})")


def _sign(schema: TableSchema) -> str:
    column = engine_columns(schema, ("sign",))[0]
    if column.type != INT8:
        message = f"The sign column {column.name} of {schema.engine} must have type Int8, not {column.type}"
        raise error("BAD_TYPE_OF_FIELD", message)
    return column.name


def _wrong_sign(value: int) -> Exception:
    return error("INCORRECT_DATA", f"Incorrect data: Sign = {value} (must be 1 or -1)")


@kernel
def _close(
    begin: int, final: bool, open_key: NDArray[np.int64], keep: NDArray[np.bool_], earlier: NDArray[np.int64]
) -> None:
    """Decide about the rows of the open key; those before row `begin`, the first of `keep`, go to `earlier`."""
    positive, negative = open_key[0], open_key[1]
    if positive != negative or open_key[4]:
        if positive <= negative and not final:
            row = open_key[2]
            if row >= begin:
                keep[row - begin] = True
            else:
                earlier[0] = row
        if positive >= negative:
            row = open_key[3]
            if row >= begin:
                keep[row - begin] = True
            else:
                earlier[1] = row
    open_key[0] = 0
    open_key[1] = 0
    open_key[2] = -1
    open_key[3] = -1
    open_key[4] = 0


@kernel
def _collapse(
    repeats: NDArray[np.bool_],
    signs: NDArray[np.uint64],
    one: np.uint64,
    minus_one: np.uint64,
    begin: int,
    final: bool,
    open_key: NDArray[np.int64],
    keep: NDArray[np.bool_],
    earlier: NDArray[np.int64],
) -> int:
    """Fill `keep` for all keys but the last, which is open; returns a row of another sign, or -1."""
    for row in range(len(repeats)):
        if not repeats[row]:
            _close(begin, final, open_key, keep, earlier)
        if signs[row] == one:
            open_key[0] += 1
            open_key[3] = begin + row
            open_key[4] = 1
        elif signs[row] == minus_one:
            open_key[1] += 1
            open_key[4] = 0
            if open_key[2] < 0:
                open_key[2] = begin + row
        else:
            return row
    return -1


@kernel
def _cancel(
    repeats: NDArray[np.bool_],
    signs: NDArray[np.uint64],
    begin: int,
    count: int,
    sign: np.uint64,
    left: NDArray[np.int64],
    gone: NDArray[np.int64],
) -> tuple[int, int, np.uint64]:
    """Keep `left`, the rows of the open key that are left; returns how many there are, how many rows went, their sign.

    Rows are numbered from `begin`; those that cancel each other go to `gone`.
    """
    lost = 0
    for row in range(len(repeats)):
        if not repeats[row]:
            count = 0
        if count > 0 and signs[row] != sign:
            count -= 1
            gone[lost] = left[count]
            gone[lost + 1] = begin + row
            lost += 2
        else:
            sign = signs[row]
            left[count] = begin + row
            count += 1
    return count, lost, sign
