"""Partitions that a table's setting makes immutable: no statement may change their rows or add any. Pure.

`immutable_partitions` is a condition over `_partition_id` and, where the partition key consists of columns, over these.
It holds for partitions that have parts: one that is empty may still be filled, by one commit. What changes no row is
allowed (merges, mutations that were submitted before), and so is taking whole partitions or parts away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr import Compiled, compile_expression
from mergelake.format.serializations.values import decode_values, plain_type
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.state import State

SETTING = "immutable_partitions"
PARTITION_ID = "_partition_id"


def check_setting(schema: TableSchema) -> None:
    """Raise BAD_ARGUMENTS for a value of the setting that is no condition on partitions of the table."""
    text = schema.settings.get(SETTING, "")
    if not text:
        return
    known = f"It is over {', '.join([PARTITION_ID, *_key_types(schema)])}"
    try:
        compiled = compile_expression(text, _types(schema))
    except MergelakeError as refused:
        raise error("BAD_ARGUMENTS", f"The setting {SETTING}: {refused.message}", known) from None
    if not isinstance(t.inner_type(compiled.type), t.Bool) and t.inner_type(compiled.type) != t.UINT8:
        raise error("BAD_ARGUMENTS", f"The setting {SETTING} has type {compiled.type}, and is no condition", known)


def immutable_partitions(state: State, among: Collection[str] | None = None, until: int | None = None) -> list[str]:
    """The partitions with parts that are immutable, of those in `among` (None: of all), in order.

    `until` is the last block number before an entry: partitions that it has filled itself do not count.
    """
    schema = state.schema
    text = schema.settings.get(SETTING, "")
    if not text:
        return []
    partitions = state.partitions
    key = (SETTING, text, schema.version)
    names = partitions.remembered(key, lambda: _matching(partitions, schema, text))
    found = names if among is None else [*filter({*names}.__contains__, among)]
    return found if until is None else [name for name in found if partitions[name][0].info.min_block <= until]


def mutable_scope(state: State, named: Collection[str] = ()) -> tuple[str, ...] | None:
    """The partitions that a mutation of the whole table concerns, with those that it names; None if these are all."""
    immutable = {*immutable_partitions(state)} - {*named}
    return tuple(name for name in state.partitions if name not in immutable) if immutable else None


def refusal(names: Iterable[str]) -> str:
    """Why a change of some partitions is refused, as a text."""
    return f"Partition {next(iter(names))} is immutable (the setting {SETTING})"


def _matching(partitions: Partitions, schema: TableSchema, text: str) -> list[str]:
    names = list(partitions)
    if not names:
        return []
    compiled = compile_expression(text, _types(schema))
    matches = compiled.mask(_values(partitions, names, schema, compiled)).tolist()
    return [name for name, match in zip(names, matches, strict=True) if match]


def _values(partitions: Partitions, names: list[str], schema: TableSchema, compiled: Compiled) -> pa.Table:
    columns = {PARTITION_ID: pa.array(names, storage_type(t.STRING))}
    if {*compiled.columns} - {PARTITION_ID}:
        types = _key_types(schema)
        data = bytes.fromhex("".join(map(partitions.partition_value, names)))
        columns |= dict(zip(types, decode_values(data, list(types.values()), len(names)), strict=True))
    return pa.table(columns)


def _key_types(schema: TableSchema) -> dict[str, t.DataType]:
    """Types of the columns of the partition key; none if it has expressions."""
    if not all(schema.has(text) for text in schema.partition_by):
        return {}
    return {text: plain_type(schema.types[text]) for text in schema.partition_by}


def _types(schema: TableSchema) -> dict[str, t.DataType]:
    return {PARTITION_ID: t.STRING, **_key_types(schema)}
