"""AggregatingMergeTree: of the rows with one key, each SimpleAggregateFunction column as its function combines it, and
each column of aggregate states (AggregateFunction) as the merge of the states.

Other columns take the first row: only MATERIALIZED ones and those of the partition key are such, unless the setting
`allow_dimensions_outside_sorting_key` is 1, or no column is aggregated. No row is removed.

Source: ClickHouse, `src/Processors/Merges/Algorithms/AggregatingSortedAlgorithm.cpp`.
"""

from __future__ import annotations

from mergelake.core.base.errors import error
from mergelake.core.model.engines import AGGREGATING
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.core.types import types as t
from mergelake.engines.rules.aggregates import changes_single_rows, simple_aggregate
from mergelake.engines.rules.coalescing import key_sources
from mergelake.engines.rules.combining import FirstStream
from mergelake.engines.rules.mode import Combination, Mode, Rule
from mergelake.engines.rules.states import state_rule

_ALLOW = "allow_dimensions_outside_sorting_key"


def aggregating_mode(schema: TableSchema) -> Mode:
    """The mode of an AggregatingMergeTree, checked.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, BAD_ARGUMENTS for columns that are neither in a key nor aggregated, and as
    `simple_aggregate` does.
    """
    if schema.engine_args:
        message = f"{AGGREGATING} takes no arguments, got {', '.join(schema.engine_args)}"
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", message, "Leave them out")
    fixed = key_sources(schema)
    rules: dict[str, Rule] = {}
    dimensions = []
    for column in schema.stored:
        if isinstance(column.type, t.AggregateFunction):
            rules[column.name] = state_rule(column)
        elif isinstance(column.type, t.SimpleAggregateFunction):
            if column.name in fixed and column.name not in schema.order_by:  # CREATE refuses it in ORDER BY anyway
                message = f"Column {column.name} of type {column.type} in a key is not supported by {AGGREGATING}"
                raise error("NOT_IMPLEMENTED", message, "Keep a column of its own for the key")
            rules[column.name] = simple_aggregate(column, AGGREGATING)
        elif column.name not in fixed and column.default_kind != "MATERIALIZED":
            dimensions.append(column.name)
    if rules and dimensions and not TableSettings(schema.settings).integer(_ALLOW):
        message = f"Columns of an {AGGREGATING} are neither in its sorting key nor aggregated: {', '.join(dimensions)}"
        hint = f"Merges would keep the value of any row: add them to ORDER BY, aggregate them, or set {_ALLOW} = 1"
        raise error("BAD_ARGUMENTS", message, hint)
    single = any(changes_single_rows(column.type) for column in schema.stored)
    return Mode(AGGREGATING, lambda final: FirstStream(), combination=Combination(rules, single_rows=single))
