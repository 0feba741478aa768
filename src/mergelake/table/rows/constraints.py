"""CHECK constraints: definitions are checked with the schema, rows whenever they are written by an insert.

A constraint holds for a row where its expression, of type `UInt8` or `Bool`, is 1; NULL and 2 are violations.
Mutations and merges do not check. ASSUME is a promise about rows, which nothing here uses.

Source: ClickHouse, `ConstraintsDescription.cpp`, `CheckConstraintsTransform.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import quote_string
from mergelake.core.convert.public import to_public
from mergelake.core.model.schema import Constraint, TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.keys import Block, whole_column
from mergelake.expr import Compiled, Seed, compile_expression


def check_constraints(schema: TableSchema) -> None:
    """Raise UNKNOWN_IDENTIFIER, and other errors of binding, for a constraint that is not over stored columns."""
    for constraint in schema.constraints:
        try:
            _compiled(constraint, schema, 0, lambda: 0)
        except MergelakeError as refused:
            refused.message = f"{refused.message}: in constraint {constraint.name}"
            raise


def _compiled(constraint: Constraint, schema: TableSchema, now_ms: int, seed: Seed) -> Compiled:
    types = {column.name: column.type for column in schema.stored}
    return compile_expression(constraint.expression, types, now_ms, seed)


@dataclass(frozen=True, slots=True)
class ConstraintChecks:
    """The CHECK constraints of a table, ready to be evaluated."""

    checks: tuple[tuple[Constraint, Compiled], ...]

    @staticmethod
    def of(schema: TableSchema, now_ms: int, seed: Seed) -> ConstraintChecks:
        """`now_ms`: what `now()` means in a constraint; `seed`: where `rand()` and the like begin."""
        checks = [c for c in schema.constraints if c.kind == "CHECK"]
        return ConstraintChecks(tuple((c, _compiled(c, schema, now_ms, seed)) for c in checks))

    def check(self, block: Block) -> None:
        """Raise VIOLATED_CONSTRAINT for the first row that breaks one; `block` has all stored columns.

        UNSUPPORTED_METHOD if the expression is no condition.
        """
        for constraint, compiled in self.checks:
            _check(constraint, compiled, block)


def _check(constraint: Constraint, compiled: Compiled, block: Block) -> None:
    shown = f"Constraint `{constraint.name}`"
    kind = t.inner_type(compiled.type)
    if kind != t.UINT8 and not isinstance(kind, t.Bool):
        message = f"{shown} does not return a value of type UInt8: {constraint.expression} has type {compiled.type}"
        raise error("UNSUPPORTED_METHOD", message, "Drop it, and add one that compares it with something")
    values = compiled.evaluate(block)
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    expression = f"Expression: ({constraint.expression})."
    if values.null_count:
        message = f"{shown} is violated. {expression} Constraint expression returns nullable column that contains null"
        raise error("VIOLATED_CONSTRAINT", f"{message} value", "Say what NULL means, as in `x IS NULL OR x > 0`")
    wrong = np.flatnonzero(values.to_numpy(zero_copy_only=False) != 1)
    if len(wrong):
        row = int(wrong[0])
        here = ", ".join(f"{name} = {_value(block, name, compiled, row)}" for name in compiled.columns)
        raise error("VIOLATED_CONSTRAINT", f"{shown} is violated at row {row + 1}. {expression} Column values: {here}")


def _value(block: Block, name: str, compiled: Compiled, row: int) -> str:
    value = to_public(whole_column(block, name).slice(row, 1), compiled.types[name])[0].as_py()
    if value is None:
        return "NULL"
    return quote_string(value) if isinstance(value, str) else str(value)
