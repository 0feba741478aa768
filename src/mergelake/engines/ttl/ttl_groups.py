"""TTL … GROUP BY … SET: expired rows that follow one another and are equal in a prefix of the key become one row.

A row that has not expired ends a run, so that the order of the rows stays. Columns without an assignment take their
first value that is not NULL, those of the sorting key the one of the first row.

An assignment is an expression over aggregate functions, `sum(x) + 1`. Each function is a rule over the values of its
argument, as that of a SimpleAggregateFunction column, so a run may be spread over many blocks. Where one of them is not
known here, all functions of the assignment are states that ClickHouse makes, merges and finishes (`StateFunctions`).

Source: ClickHouse, `TTLAggregationAlgorithm.cpp`, `TTLDescription.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import quote_string
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.types import DataType
from mergelake.engines.order.keys import Block, KeyColumn, bind_key, table_keys
from mergelake.engines.order.merging import merge_runs
from mergelake.engines.rules.aggregates import simple_aggregate
from mergelake.engines.rules.combining import GroupStream, concatenated, first_value
from mergelake.engines.rules.mode import Mask, Rule
from mergelake.engines.rules.states import StateFunctions, StateMaker, bound, state_rule
from mergelake.engines.ttl.ttl import table_ttl
from mergelake.engines.ttl.ttl_text import TtlElement
from mergelake.expr import Call, ColumnRef, Compiled, Literal, SyntaxNode, compile_expression
from mergelake.expr.nodes import walk
from mergelake.expr.parser import parse, parse_aggregate
from mergelake.expr.registry import find_function
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.state_programs import (
    UNKNOWN_STATES,
    aggregate_function,
    state_program,
    state_version,
)

_NAMES = {
    "any": "any", "any_value": "any", "first_value": "any", "anylast": "anyLast", "last_value": "anyLast",
    "min": "min", "max": "max", "sum": "sum", "sumwithoverflow": "sumWithOverflow", "count": "count", "avg": "avg",
    "groupbitand": "groupBitAnd", "groupbitor": "groupBitOr", "groupbitxor": "groupBitXor",
}  # fmt: skip
"""Aggregate functions, in lower case -> as ClickHouse spells them."""
_KEEPS = ("any", "anyLast", "min", "max")
"""Those that give one of the values."""
_VALUE = "value"


@dataclass(frozen=True, slots=True)
class Known:
    """An aggregate function of one argument that is a rule over values."""

    argument: Compiled
    """Of the type that the rule takes."""
    rule: Rule
    type: DataType

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the argument."""
        return self.argument.columns

    def values(self, block: pa.RecordBatch, begins: Mask) -> tuple[pa.Array, Mask]:
        """Values to combine by `rule`, and which of them begin a run: those of the rows, of which `begins` says it."""
        return self.argument.evaluate(block), begins


@dataclass(frozen=True, slots=True)
class Foreign:
    """Any aggregate function, as states: one for each piece of a run in a block."""

    arguments: tuple[Compiled, ...]
    type: t.AggregateFunction
    functions: StateFunctions | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the arguments."""
        return tuple(name for each in self.arguments for name in each.columns)

    @property
    def rule(self) -> Rule:
        """Merges states."""
        return bound({_VALUE: state_rule(Column(0, _VALUE, self.type))}, self.functions)[_VALUE]

    def values(self, block: pa.RecordBatch, begins: Mask) -> tuple[pa.Array, Mask]:
        """As `Known.values`: a state for each piece of a run."""
        if not block.num_rows:
            return pa.array([], pa.binary()), begins
        starts = np.flatnonzero(begins)
        if not begins[0]:  # the run began in a block before
            starts = np.concatenate(([0], starts))
        make = StateMaker(self.type, _needed(self.functions, str(self.type)))
        arguments = [each.evaluate(block) for each in self.arguments]
        return make(StateMaker.joined(arguments), starts), begins[starts]


Finish = Callable[[Mapping[str, pa.Array]], pa.Array]
"""What the aggregates of the result's rows are, by name -> the values of the column."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """How the value of a column in the row of a run is computed."""

    column: str
    aggregates: Mapping[str, Known | Foreign]
    """By the names that `finish` uses."""
    finish: Finish

    @property
    def foreign(self) -> bool:
        """Whether its functions are ClickHouse's."""
        return any(isinstance(each, Foreign) for each in self.aggregates.values())

    @property
    def reads(self) -> tuple[str, ...]:
        """The column, and those whose values are aggregated."""
        names = [name for each in self.aggregates.values() for name in each.columns]
        return tuple(dict.fromkeys((self.column, *names)))

    def combine(self, blocks: Iterator[tuple[pa.RecordBatch, Mask, Mask]]) -> Iterator[pa.Array]:
        """The values of the result's rows, from blocks of `reads`, where each such row begins, and which expired."""
        streams = {name: GroupStream(each.rule) for name, each in self.aggregates.items()}
        own, flags = GroupStream(first_value), GroupStream(first_value)

        def computed(values: Mapping[str, pa.Array], own: pa.Array, expired: pa.Array) -> pa.Array:
            result = self.finish(values)
            rows = np.arange(len(own))
            return concatenated(result, own).take(pa.array(np.where(expired, rows, rows + len(own))))

        for block, begins, expired in blocks:
            values = {n: streams[n].push(*each.values(block, begins)) for n, each in self.aggregates.items()}
            first, flag = own.push(block.column(self.column), begins), flags.push(pa.array(expired), begins)
            if len(first):
                yield computed(values, first, flag)
        left = {name: stream.finish() for name, stream in streams.items()}
        last, flag = own.finish(), flags.finish()
        if last is not None:
            yield computed({name: array for name, array in left.items() if array is not None}, last, flag)


def _needed(functions: StateFunctions | None, what: str) -> StateFunctions:
    if functions is None:
        message = f"TTL … SET with {what} is computed by ClickHouse, which is not here"
        raise error("SUPPORT_IS_DISABLED", message, "pip install 'mergelake[sql]'")
    return functions


class Grouping:
    """`GROUP BY … SET …` of one element, bound to a table."""

    def __init__(self, element: TtlElement, schema: TableSchema, functions: StateFunctions | None) -> None:
        """`functions` compute assignments with functions that are not known here."""
        keys = table_keys(schema)
        self._keys: Sequence[KeyColumn] = [bind_key(text, schema) for text in element.group_by]
        self._of_key = {name for key in keys.sorting for name in key.columns}
        self.assignments = {name: _bound(name, text, schema, functions) for name, text in element.assignments}
        """By column."""
        self.reads = tuple(dict.fromkeys(name for key in self._keys for name in key.columns))
        """The columns of the keys."""
        self._last: list[pa.Array] | None = None
        self._last_expired = False
        self._schema = schema

    def rule(self, name: str) -> Rule | None:
        """The rule of a column without an assignment; None: the value of the first row."""
        kind = self._schema.column(name).type
        nullable = isinstance(kind, t.Nullable) or (
            isinstance(kind, t.LowCardinality) and isinstance(kind.inner, t.Nullable)
        )
        return _rule("any", kind) if nullable and name not in self._of_key else None

    def begins(self, block: Block, expired: Mask) -> Mask:
        """Of each of the next rows whether it begins a row of the result."""
        if not block.num_rows:
            return np.ones(0, np.bool_)
        values = [key.evaluate(block) for key in self._keys]
        if self._last is not None:
            values = [concatenated(a, b) for a, b in zip(self._last, values, strict=True)]
        types, descending = [key.type for key in self._keys], [False] * len(self._keys)
        steps = merge_runs([iter([values])], types, descending)
        repeats = np.concatenate([step.repeats for step in steps])
        before = np.concatenate(([self._last_expired], expired[:-1]))
        if self._last is not None:
            repeats = repeats[1:]
        else:
            before[0] = False
        self._last = [array.slice(len(array) - 1) for array in values]
        self._last_expired = bool(expired[-1])
        begins: Mask = ~(repeats & expired & before)
        return begins


def check_grouping(element: TtlElement, schema: TableSchema) -> None:
    """Raise ClickHouse's errors for a GROUP BY that is no prefix of the primary key and for wrong assignments.

    NOT_IMPLEMENTED, by name, for an aggregate function that is not supported, and for an assignment to a column of a
    key, which could break the order of the rows.
    """
    primary = schema.primary_key or schema.order_by
    if element.group_by != tuple(str(parse(text)) for text in primary[: len(element.group_by)]):
        message = "TTL Expression GROUP BY key should be a prefix of primary key"
        raise error("BAD_TTL_EXPRESSION", f"{message} ({', '.join(primary)})")
    stored = {column.name for column in schema.stored}
    names = [name for name, _ in element.assignments]
    if len(set(names)) != len(names):
        raise error("BAD_TTL_EXPRESSION", "Multiple aggregations set for one column in TTL Expression")
    keys = table_keys(schema)
    sorting = {name for key in keys.sorting for name in key.columns}
    partition = {name for key in keys.partition for name in key.columns}
    for name, text in element.assignments:
        functions = _aggregates(parse_aggregate(text))
        if not functions:
            message = f"Invalid expression for assignment of column {name}. Should contain an aggregate function"
            raise error("BAD_TTL_EXPRESSION", message)
        if name not in stored:
            raise error("NO_SUCH_COLUMN_IN_TABLE", f"There is no physical column {name} in table")
        keeps = f"{_NAMES.get(functions[0].function.lower())}({name})" if len(functions) == 1 else ""
        keeps_value = str(parse_aggregate(text)) == str(functions[0]) and keeps in {
            f"{each}({name})" for each in _KEEPS
        }
        if (name in sorting and not (keeps_value and name in element.group_by)) or (
            name in partition and not keeps_value
        ):
            message = f"TTL … SET {name} = {text} of a column of the key is not supported"
            raise error("NOT_IMPLEMENTED", message, "Leave it out: it keeps the value of the first row")
        _bound(name, text, schema, None)


def check_functions(schema: TableSchema, functions: StateFunctions | None) -> None:
    """SUPPORT_IS_DISABLED if a TTL of the table needs `functions`, and they are None."""
    for element in table_ttl(schema).groups:
        for name, text in element.element.assignments:
            if functions is None and _bound(name, text, schema, None).foreign:
                _needed(functions, text)


def try_functions(schema: TableSchema, functions: StateFunctions | None) -> None:
    """Apply the assignments that need `functions` to a row of defaults: raises what ClickHouse says of them."""
    check_functions(schema, functions)
    one = np.ones(1, np.bool_)
    for element in table_ttl(schema).groups:
        for name, text in element.element.assignments:
            assignment = _bound(name, text, schema, functions)
            if assignment.foreign:
                arrays = [default_array(schema.column(each).type, 1) for each in assignment.reads]
                block = pa.RecordBatch.from_arrays(arrays, list(assignment.reads))
                list(assignment.combine(iter([(block, one, one), (block, ~one, one)])))


def _aggregates(node: SyntaxNode) -> list[Call]:
    """The calls of aggregate functions. NOT_IMPLEMENTED for an unknown function, which may be one."""
    calls: list[Call] = []
    if isinstance(node, Call):
        if _function(node) is not None:
            return [node]
        try:
            find_function(node.function)
        except MergelakeError:
            message = f"The function {node.function} is not supported in TTL … SET"
            raise error("NOT_IMPLEMENTED", message, UNKNOWN_STATES) from None
        for arg in node.args:
            calls += _aggregates(arg)
    return calls


def _function(node: SyntaxNode) -> str | None:
    """The aggregate function that is called, as ClickHouse spells it; None for others."""
    if not isinstance(node, Call):
        return None
    return _NAMES.get(node.function.lower()) or aggregate_function(node.function)


def _bound(column: str, text: str, schema: TableSchema, functions: StateFunctions | None) -> Assignment:
    types = {each.name: each.type for each in schema.stored}
    tree = parse_aggregate(text)
    foreign = any(_function(call) not in _NAMES.values() for call in _aggregates(tree))
    aggregates: dict[str, Known | Foreign] = {}

    def replaced(node: SyntaxNode) -> SyntaxNode:
        if not isinstance(node, Call):
            return node
        function = _function(node)
        if function is None:
            return Call(node.function, tuple(map(replaced, node.args)))
        if any(_function(inner) is not None for each in node.args for inner in walk(each)):
            raise error("ILLEGAL_AGGREGATION", f"An aggregate function is inside of another one: {node}")
        if function == "avg" and not foreign:
            parts = (replaced(Call("sum", node.args)), replaced(Call("count", node.args)))
            return Call("divide", (Call("toFloat64", (parts[0],)), parts[1]))
        name = f"{_VALUE}{len(aggregates)}"
        aggregates[name] = _foreign(function, node, types, functions) if foreign else _known(function, node, types)
        return ColumnRef(name)

    whole = replaced(tree)
    if any(isinstance(each, ColumnRef) and each.name not in aggregates for each in walk(whole)):
        message = f"Column under no aggregate function in TTL … SET {column} = {text}"
        raise error("NOT_AN_AGGREGATE", message)
    target = schema.column(column).type
    if foreign:
        if any(isinstance(each, t.UNORDERED) for each in t.parts(target)):
            raise error("NOT_IMPLEMENTED", f"TTL … SET {column} = {text} of type {target} is not supported")
        kinds = {name: each.type for name, each in aggregates.items() if isinstance(each, Foreign)}

        def finished(values: Mapping[str, pa.Array]) -> pa.Array:
            states = {name: (kind, values[name]) for name, kind in kinds.items()}
            return _needed(functions, text).finish(str(whole), states, target)

        return Assignment(column, aggregates, finished)
    cast = Call("CAST", (whole, Literal(str(target).encode(), t.STRING)))
    result = compile_expression(str(cast), {name: each.type for name, each in aggregates.items()})

    def evaluated(values: Mapping[str, pa.Array]) -> pa.Array:
        return result.evaluate(pa.RecordBatch.from_arrays(list(values.values()), list(values)))

    return Assignment(column, aggregates, evaluated)


def _foreign(function: str, call: Call, types: Mapping[str, DataType], functions: StateFunctions | None) -> Foreign:
    """A function of ClickHouse; count() counts a constant."""
    arguments = tuple(compile_expression(str(each), types) for each in call.args or (Literal(1, t.UINT8),))
    kinds = tuple(each.type for each in arguments)
    data_type = t.AggregateFunction(function, kinds, state_version(function, kinds))
    if state_program(data_type) is None:
        message = f"{call} of {', '.join(map(str, kinds))} in TTL … SET is not supported"
        raise error("NOT_IMPLEMENTED", message, UNKNOWN_STATES)
    return Foreign(arguments, data_type, functions)


def _known(function: str, call: Call, types: Mapping[str, DataType]) -> Known:
    if function == "count":
        counted = "1" if not call.args else f"isNotNull({call.args[0]})"
        argument = compile_expression(f"toUInt64({counted})", types)
        return Known(argument, _rule("sum", argument.type), argument.type)
    if len(call.args) != 1:
        raise _number(call)
    plain = compile_expression(str(call.args[0]), types)
    kind = _summed(plain.type) if function == "sum" else plain.type
    if kind != plain.type:
        plain = compile_expression(f"CAST({call.args[0]}, {quote_string(str(kind))})", types)
    return Known(plain, _rule(function, plain.type), plain.type)


def _number(call: Call) -> MergelakeError:
    return error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", f"{call.function} takes one argument, not {len(call.args)}")


def _summed(kind: DataType) -> DataType:
    """The type of a sum of values of a type."""
    match kind:
        case t.Nullable(inner):
            return t.Nullable(_summed(inner))
        case t.LowCardinality(inner):
            return _summed(inner)
        case t.Int(bits, signed) if bits < 64:
            return t.Int(64, signed)
        case t.Bool():
            return t.Int(64, signed=False)
        case t.Float(32):
            return t.Float(64)
        case t.Decimal(precision, scale) if precision <= 38:
            return t.Decimal(38, scale)
        case t.Decimal(_, scale):
            return t.Decimal(76, scale)
    return kind


def _rule(function: str, kind: DataType) -> Rule:
    return simple_aggregate(Column(0, _VALUE, t.SimpleAggregateFunction(function, kind)), "TTL")


def combine_first(arrays: Iterator[tuple[pa.Array, Mask]], rule: Rule | None) -> Iterator[pa.Array]:
    """The values of a column without an assignment, from arrays and where each row of the result begins."""
    stream = GroupStream(rule or first_value)
    for array, begins in arrays:
        out = stream.push(array, begins)
        if len(out):
            yield out
    last = stream.finish()
    if last is not None:
        yield last
