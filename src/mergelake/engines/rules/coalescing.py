"""CoalescingMergeTree([columns]): of the rows with one key, the last value of each column that is not NULL.

Of a column whose type is neither Nullable nor LowCardinality(Nullable) the last value, whatever it holds; aggregate
states are merged. With a list, the other columns take the first row. Columns that the sorting or the partition key
reads are never combined.
Merging in any grouping gives the same rows.

Source: ClickHouse, `src/Processors/Merges/Algorithms/SummingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

import re

from mergelake.core.base.errors import error
from mergelake.core.base.lexer import quoted_name
from mergelake.core.model.engines import COALESCING
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.keys import table_keys
from mergelake.engines.rules.combining import FirstStream, last_row, last_value
from mergelake.engines.rules.mode import Combination, Mode, Rule
from mergelake.engines.rules.states import state_rule

_PLACES = ("_part", "_partition_id", "_part_offset")
_LIST = re.compile(r"(?:tuple)?\s*\((.*)\)", re.DOTALL)


def coalescing_mode(schema: TableSchema) -> Mode:
    """The mode of a CoalescingMergeTree, checked; raises as `listed_columns` does."""
    listed = listed_columns(schema)
    fixed = key_sources(schema)
    # FINAL of ClickHouse takes the columns that say where a row lies for columns of the table.
    rules: dict[str, Rule] = dict.fromkeys(_PLACES, last_row) if listed is None else {}
    for column in schema.stored:
        if column.name not in fixed and (listed is None or column.name in listed):
            if isinstance(column.type, t.AggregateFunction):
                rules[column.name] = state_rule(column)
                continue
            if isinstance(column.type, t.SimpleAggregateFunction):
                message = f"Column {column.name} of type {column.type} is not supported by {COALESCING}"
                raise error("NOT_IMPLEMENTED", message, "Use an AggregatingMergeTree or a SummingMergeTree")
            rules[column.name] = last_value if is_nullable(column.type) else last_row
    return Mode(COALESCING, lambda final: FirstStream(), combination=Combination(rules))


def key_sources(schema: TableSchema) -> frozenset[str]:
    """The columns that the sorting key and the partition key read."""
    keys = table_keys(schema)
    return frozenset(name for key in (*keys.sorting, *keys.partition) for name in key.columns)


def listed_columns(schema: TableSchema) -> tuple[str, ...] | None:
    """The columns (or Nested names) in the engine's argument, `a` or `(a, b)`; None without an argument.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, BAD_ARGUMENTS for one that is in a key or listed twice, or
    NO_SUCH_COLUMN_IN_TABLE.
    """
    engine, arguments = schema.engine, schema.engine_args
    if len(arguments) > 1:
        hint = f"Put them into brackets: {engine}(({', '.join(arguments)}))"
        raise error(
            "NUMBER_OF_ARGUMENTS_DOESNT_MATCH", f"{engine} takes at most a list, got {len(arguments)} arguments", hint
        )
    if not arguments:
        return None
    match = _LIST.fullmatch(arguments[0].strip())
    texts = [text.strip() for text in (match.group(1) if match else arguments[0]).split(",")]
    names = [quoted_name(text) or text for text in texts if text]
    stored = {column.name for column in schema.stored}
    nested = {name.rpartition(".")[0] for name in stored if "." in name}
    keys = table_keys(schema)
    for name, text in zip(names, texts, strict=False):
        if text[:1] == "'" or (not re.fullmatch(r"[\w.]+", name) and quoted_name(text) is None):
            raise error("BAD_ARGUMENTS", f"{engine} cannot combine {text}", "Name columns")
        if (name not in stored and name not in nested) or ("." in name and name.rpartition(".")[0] in nested):
            message = f"Column {name} listed in columns to sum does not exist in table declaration"
            raise error("NO_SUCH_COLUMN_IN_TABLE", message)
        if names.count(name) > 1:
            message = f"Column {name} is listed multiple times in the list of columns to sum"
            raise error("BAD_ARGUMENTS", message, "Leave it out")
        for kind, of_key in (("sorting", keys.sorting), ("partition", keys.partition)):
            if any(name in key.columns for key in of_key):
                message = f"Columns: {name} listed both in columns to sum and in {kind} key. That is not allowed"
                raise error("BAD_ARGUMENTS", message, "Leave it out")
    return tuple(names)


def is_nullable(kind: t.DataType) -> bool:
    """Whether values may be NULL and are skipped then."""
    return t.is_nullable(kind.inner if isinstance(kind, t.LowCardinality) else kind)
