"""FINAL of an engine that makes one row of several: values of rows that no part has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mergelake.core.model.schema import TableSchema
from mergelake.core.types.types import DataType
from mergelake.engines.rules.modes import final_block, working_mode
from mergelake.engines.rules.states import StateFunctions
from mergelake.expr import bind
from mergelake.expr.aliases import alias_expression
from mergelake.expr.bound import EvaluationContext, columns_of
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.read.prewhere import FilterStep
from mergelake.scan.read.source import Arrays, block_of, evaluate, joined


class Combiner:
    """Combines rows, and evaluates on the result what cannot be evaluated before: conditions and ALIAS columns."""

    def __init__(
        self, schema: TableSchema, columns: Sequence[str], late: Sequence[FilterStep], states: StateFunctions | None
    ) -> None:
        self._schema, self._columns = schema, columns
        self._types = all_types(schema)
        self._conditions = [condition for step in late for condition in step.conditions]
        aliases = [n for n in columns if schema.has(n) and schema.column(n).default_kind == "ALIAS"]
        self._aliases = {name: bind(alias_expression(name, schema), self._types) for name in aliases}
        wanted = [name for name in columns if name not in self._aliases]
        for expression in (*self._conditions, *self._aliases.values()):
            wanted += columns_of(expression)
        mode = working_mode(schema, states)
        assert mode is not None, schema.engine
        assert mode.combination is not None, schema.engine
        self._combination = mode.combination
        wanted += self._combination.nothing
        wanted += [each for name in wanted for each in self._combination.maps.get(name, ())]
        self.names = tuple(dict.fromkeys(wanted))
        """The columns that `combine` needs."""

    def combine(
        self, arrays: Arrays, rows: int, keys: Sequence[pa.Array], key_types: Sequence[DataType]
    ) -> list[pa.Array]:
        """The columns of the result, of the rows that FINAL shows and that pass the conditions; empty for no row.

        `arrays` have `rows` rows in merge order (key, part, row), `keys` their sorting keys.
        """
        block = final_block(block_of(arrays, rows), self._combination, keys, key_types)
        for condition in self._conditions:
            if block.num_rows:
                block = block.filter(pa.array(EvaluationContext.of_block(block, self._types).mask(condition)))
        if not block.num_rows:
            return []
        found = {name: joined(block.column(name).chunks) for name in self.names}
        for name, expression in self._aliases.items():
            sources = {source: found[source] for source in columns_of(expression)}
            found[name] = evaluate(expression, sources, self._types, block.num_rows)
        return [found[name] for name in self._columns]
