"""Projections: each is a part inside the part, with a schema of its own, made of the part's rows.

=========  =======================================================================================
normal     the columns that the SELECT and ORDER BY read, of all rows, in that order: a MergeTree
aggregate  a row for each value of the GROUP BY's expressions, with the states of the aggregate
           functions over its rows (columns called `sum(k)`): an AggregatingMergeTree
=========  =======================================================================================

So the schema of a projection is that of a table (`BoundProjection.schema`), and its parts are written and merged by
what writes and merges those of tables.

Source: ClickHouse, `src/Storages/ProjectionsDescription.cpp`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import back_quote
from mergelake.core.model.engines import AGGREGATING
from mergelake.core.model.schema import Column, Projection, TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.keys import Block, TableKeys, table_keys, whole_column
from mergelake.engines.order.sorting import sort_order
from mergelake.engines.projections.projection_query import ProjectionQuery, parse_projection, replaced
from mergelake.engines.rules.mode import Rule
from mergelake.engines.rules.modes import collapse_block, mode_of
from mergelake.engines.rules.state_values import FUNCTIONS, makes_states, states_of
from mergelake.engines.rules.states import StateFunctions, StateMaker, StateRule, bound, without_if
from mergelake.expr import BoundNode, Call, ColumnRef, Literal, SyntaxNode, bind, columns_of, referenced_columns
from mergelake.expr.bound import EvaluationContext
from mergelake.expr.compiled import compile_expression
from mergelake.expr.nodes import column_name, walk
from mergelake.expr.registry import canonical_name, find_function
from mergelake.expr.values import to_arrow
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.state_programs import (
    UNKNOWN_STATES,
    aggregate_function,
    state_program,
    state_version,
)

_PART_OFFSET = "_part_offset"
_PARAMETERS = re.compile(r"[^(]*(?:\((?:-?\d+(?:\.\d*)?|'\w*'|[\[\], ])*\))?")
"""Aggregate functions with parameters that ClickHouse prints as they are here."""
_NAMED = """
plus minus multiply negate modulo intDiv equals notEquals less lessOrEquals greater greaterOrEquals isNull isNotNull
toDate toYYYYMM toYYYYMMDD toYear toMonth toDayOfMonth toDayOfWeek toHour toMinute toStartOfMonth toStartOfYear
toStartOfDay toStartOfHour toStartOfMinute toMonday toUInt8 toUInt16 toUInt32 toUInt64 toInt8 toInt16 toInt32 toInt64
toFloat32 toFloat64 toString lower upper length cityHash64 abs empty notEmpty and or not tuple
"""
NAMED_FUNCTIONS = frozenset(_NAMED.split())
"""Functions for which the names that ClickHouse gives to columns are known: it finds states by these names."""


OFFSET = Column(2**31 - 1, "_parent_part_offset", t.Int(64, signed=False))
"""The column that a normal projection with `_part_offset` has: with an id that no column of a table has."""


@dataclass(frozen=True, slots=True)
class BoundProjection:
    """A projection, bound to the columns of its table."""

    name: str
    query: str
    schema: TableSchema
    """The schema of its parts. Columns of a normal one are those of the table, with their ids."""
    inputs: Mapping[str, t.DataType]
    """The columns of the table that it reads, with their types."""
    computed: Mapping[str, tuple[tuple[BoundNode, ...], t.DataType]]
    """Of an aggregate one, for each of its columns the expression that it holds, or those that the states are made of,
    and the type; empty for a normal one."""
    digest: str
    """Equal for definitions that parts have the same columns and rows of: 16 hex digits."""

    @property
    def aggregate(self) -> bool:
        """Whether it holds states of aggregate functions."""
        return self.schema.engine == AGGREGATING

    @property
    def offsets(self) -> bool:
        """Whether it holds the place of each row in its part: it cannot be merged, but only made anew."""
        return self.schema.has(OFFSET.name)

    @property
    def foreign(self) -> Mapping[str, t.AggregateFunction]:
        """The columns whose states ClickHouse makes: own code does not know their functions."""
        kinds = ((name, kind) for name, (_, kind) in self.computed.items())
        return {name: kind for name, kind in kinds if isinstance(kind, t.AggregateFunction) and not makes_states(kind)}

    def check(self, functions: StateFunctions | None) -> None:
        """SUPPORT_IS_DISABLED if it has states that are made by `functions`, and they are None."""
        if functions is None and self.foreign:
            name, kind = next(iter(self.foreign.items()))
            message = f"States of column {name}, {kind}, of projection {self.name} are made by ClickHouse"
            raise error("SUPPORT_IS_DISABLED", f"{message}, which is not here", "pip install 'mergelake[sql]'")

    def block(self, block: Block, functions: StateFunctions | None = None) -> pa.Table:
        """Its rows for some rows of the table, in order; rows of equal keys are merged in an aggregate one.

        `functions` make the states of `foreign` columns; SUPPORT_IS_DISABLED without them. A column `OFFSET` of the
        block has the places of its rows in the part; without it they are those in the block.
        """
        self.check(functions)
        rows = pa.table({name: whole_column(block, name) for name in self.inputs})
        if self.offsets:
            known = OFFSET.name in block.schema.names
            places = whole_column(block, OFFSET.name) if known else pa.array(np.arange(block.num_rows, dtype=np.uint64))
            rows = rows.append_column(OFFSET.name, places)
        if self.computed:
            rows = self._states(rows, block.num_rows)
        keys = table_keys(self.schema)
        arrays = [key.values(rows) for key in keys.sorting]
        order = sort_order(arrays, [key.type for key in keys.sorting], keys.descending) if arrays else None
        ordered = rows if order is None else rows.take(pa.array(order))
        return self._collapsed(ordered, keys, functions) if self.aggregate else ordered

    def _states(self, rows: pa.Table, count: int) -> pa.Table:
        """The keys, and for each row its states; of `foreign` ones the arguments, as structs."""
        context = EvaluationContext.of_block(rows, self.inputs)
        found: dict[str, pa.Array] = {}
        for name, (nodes, kind) in self.computed.items():
            values = [_values(context, node, count) for node in nodes]
            if not isinstance(kind, t.AggregateFunction):
                found[name] = values[0]
            elif makes_states(kind):
                found[name] = states_of(kind, values, count)
            else:
                found[name] = StateMaker.joined(values)
        return pa.table(found)

    def _collapsed(self, rows: pa.Table, keys: TableKeys, functions: StateFunctions | None) -> pa.Table:
        """A row for each key."""
        mode = mode_of(self.schema)
        if functions is not None and mode is not None and mode.combination is not None:
            makers: dict[str, Rule] = {name: StateMaker(kind, functions) for name, kind in self.foreign.items()}
            rules = {**mode.combination.rules, **makers}
            mode = replace(mode, combination=replace(mode.combination, rules=rules, single_rows=True))
        return pa.table(collapse_block(rows, self.schema, keys, mode))


def _values(context: EvaluationContext, node: BoundNode, rows: int) -> pa.Array:
    array = to_arrow(context.eval(node), node.type, rows)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def table_projections(schema: TableSchema) -> tuple[BoundProjection, ...]:
    """All projections of a table."""
    return tuple(bind_projection(each, schema) for each in schema.projections)


def try_projections(schema: TableSchema, functions: StateFunctions | None) -> None:
    """Make the `foreign` states of a row of defaults, and merge them: raises what ClickHouse says of it.

    SUPPORT_IS_DISABLED if there are some, and no `functions`.
    """
    for projection in table_projections(schema):
        if projection.foreign:
            row = pa.table({name: default_array(kind, 1) for name, kind in projection.inputs.items()})
            try:
                made = projection.block(row, functions)
                for name, kind in projection.foreign.items():
                    twice = pa.concat_arrays([whole_column(made, name)] * 2)
                    bound({name: StateRule(name, kind)}, functions)[name](twice, np.zeros(1, np.int64))
            except MergelakeError as refused:
                refused.message = f"{refused.message}: in projection {projection.name}"
                raise


def bind_projection(projection: Projection, schema: TableSchema) -> BoundProjection:
    """A projection over the columns of `schema`.

    Raises SYNTAX_ERROR, UNKNOWN_IDENTIFIER for a column that is not there, ILLEGAL_PROJECTION, BAD_ARGUMENTS without an
    order, NOT_AN_AGGREGATE, and NOT_IMPLEMENTED for what projections cannot have here.
    """
    query = parse_projection(projection.query)
    _check_names(query, schema)
    aggregates = [node for item in query.items for node in walk(item) if _function(node) is not None]
    if query.group_by is None and not aggregates:
        return _normal(projection, query, schema)
    if query.order_by:
        raise error("ILLEGAL_PROJECTION", "When aggregation is used in projection, ORDER BY cannot be specified")
    return _aggregate(projection, query, schema)


def _check_names(query: ProjectionQuery, schema: TableSchema) -> None:
    for name, tree in query.aliases.items():
        if schema.has(name) and tree != ColumnRef(name):
            message = f"{tree} AS {name} in a projection is not supported: {name} is a column"
            raise error("NOT_IMPLEMENTED", message, "Use another alias")
    for tree in (*query.items, *(query.group_by or ()), *query.order_by):
        for node in walk(tree):
            if isinstance(node, Call) and _function(node) is None and not _is_known(node.function):
                message = f"The function {node.function} in a projection is not supported"
                raise error("NOT_IMPLEMENTED", message, UNKNOWN_STATES)
        for name in referenced_columns(tree):
            if name == "*" or (name == _PART_OFFSET and tree in query.items and query.order_by):
                continue
            if name.startswith("_") and not schema.has(name):
                hint = "Normal projections may SELECT _part_offset"
                raise error("NOT_IMPLEMENTED", f"The virtual column {name} in a projection is not supported", hint)
            kind = schema.column(name).default_kind if schema.has(name) else ""
            if kind in ("ALIAS", "EPHEMERAL"):
                if tree in query.items and tree not in query.order_by:
                    message = f"The {kind} column {name} in a projection is not supported"
                    raise error("NOT_IMPLEMENTED", message, "A projection holds stored columns only")
                message = f"Missing columns: '{name}' while processing: '{tree}'"
                raise error("UNKNOWN_IDENTIFIER", message, "A projection holds stored columns only")


def _normal(projection: Projection, query: ProjectionQuery, schema: TableSchema) -> BoundProjection:
    if not query.order_by:
        raise error("BAD_ARGUMENTS", "ORDER BY cannot be empty", f"Projection {projection.name} needs an order")
    read: set[str] = set()
    for tree in query.items:
        if tree == ColumnRef("*"):
            read |= {column.name for column in schema.stored if column.default_kind != "MATERIALIZED"}
        else:
            read |= set(_columns(tree, schema))
    for tree in query.order_by:
        read |= set(_columns(tree, schema))
    columns = tuple(column for column in schema.stored if column.name in read)
    offsets = any(_PART_OFFSET in referenced_columns(tree) for tree in query.items) and not schema.has(_PART_OFFSET)
    order = tuple(map(str, query.order_by))
    own = _own_schema(schema, (*columns, OFFSET) if offsets else columns, "MergeTree", order)
    return BoundProjection(
        projection.name,
        projection.query,
        own,
        {column.name: column.type for column in columns},
        {},
        _digest(own, "normal"),
    )


def _columns(tree: SyntaxNode, schema: TableSchema) -> tuple[str, ...]:
    """The columns that an expression reads. UNKNOWN_IDENTIFIER for one that is not there."""
    found: dict[str, None] = {}
    for name in referenced_columns(tree):
        if name == _PART_OFFSET and not schema.has(name):
            continue
        try:
            found.update(dict.fromkeys(columns_of(bind(ColumnRef(name), schema.types))))
        except MergelakeError:
            raise _unknown(name) from None
    return tuple(found)


def _unknown(name: str) -> MergelakeError:
    return error("UNKNOWN_IDENTIFIER", f"Unknown expression identifier `{name}` in a projection")


def _aggregate(projection: Projection, query: ProjectionQuery, schema: TableSchema) -> BoundProjection:
    keys: dict[str, SyntaxNode] = {}
    for tree in query.group_by or ():
        if _has_aggregate(tree):
            raise error("ILLEGAL_AGGREGATION", f"Aggregate function found in GROUP BY of a projection: {tree}")
        if referenced_columns(tree):
            keys[column_name(_plain(tree))] = _plain(tree)
    found: dict[str, tuple[tuple[SyntaxNode, ...], t.AggregateFunction]] = {}
    for item in query.items:
        _collect(item, set(keys), schema, found)
    computed: dict[str, tuple[tuple[BoundNode, ...], t.DataType]] = {}
    for name, tree in keys.items():
        node = _bound(tree, schema)
        refused = any(isinstance(kind, t.UNORDERED) for kind in t.parts(node.type))
        if refused or (isinstance(tree, Call) and any(_is_dictionary(each, schema) for each in _columns(tree, schema))):
            raise error("NOT_IMPLEMENTED", f"GROUP BY {tree} of type {node.type} in a projection is not supported")
        computed[name] = (node,), node.type
    for name, (arguments, kind) in found.items():
        computed[name] = tuple(_bound(argument, schema) for argument in arguments), kind
    columns = tuple(Column(at, name, kind) for at, (name, (_, kind)) in enumerate(computed.items()))
    if not columns:
        raise error("ILLEGAL_PROJECTION", f"Projection {projection.name} has no columns")
    own = _own_schema(schema, columns, AGGREGATING, tuple(map(back_quote, keys)))
    read = {name for nodes, _ in computed.values() for node in nodes for name in columns_of(node)}
    inputs = {column.name: column.type for column in schema.stored if column.name in read}
    made_of = ",".join(f"{name}={schema.column(name).id}:{kind}" for name, kind in inputs.items())
    return BoundProjection(projection.name, projection.query, own, inputs, computed, _digest(own, made_of))


def _collect(
    node: SyntaxNode,
    keys: set[str],
    schema: TableSchema,
    found: dict[str, tuple[tuple[SyntaxNode, ...], t.AggregateFunction]],
) -> None:
    """Add the aggregate functions of what is selected to `found`; all else must be made of keys."""
    function = _function(node)
    if function is not None and isinstance(node, Call):
        name, arguments, kind = _state(function, node, schema)
        found.setdefault(name, (arguments, kind))
    elif isinstance(node, ColumnRef) or (isinstance(node, Call) and column_name(_named(node)) in keys):
        if column_name(_named(node)) not in keys:
            if isinstance(node, ColumnRef) and node.name != "*" and not schema.has(node.name):
                raise _unknown(node.name)
            message = f"Column '{node}' is not under aggregate function and not in GROUP BY keys of the projection"
            raise error("NOT_AN_AGGREGATE", message)
    elif isinstance(node, Call):
        for arg in node.args:
            _collect(arg, keys, schema, found)


def _state(function: str, call: Call, schema: TableSchema) -> tuple[str, tuple[SyntaxNode, ...], t.AggregateFunction]:
    """Name, arguments and type of the column for an aggregate function."""
    if any(_has_aggregate(arg) for arg in call.args):
        raise error("ILLEGAL_AGGREGATION", f"Aggregate function {call} is found inside another aggregate function")
    args = tuple(map(_plain, call.args))
    base = without_if(function)
    if function == "count" and all(isinstance(arg, Literal) and arg.value is not None for arg in args):
        args = ()
    extra = int(base != function)
    if base in FUNCTIONS and not (0 if base == "count" else 1) + extra <= len(args) <= 1 + extra:
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", f"Aggregate function {function} takes other arguments: {call}")
    for arg in args:
        if not referenced_columns(arg):
            raise error("NOT_IMPLEMENTED", f"{call} of a constant in a projection is not supported", "Write count()")
    kinds = tuple(_bound(arg, schema).type for arg in args)
    data_type = t.AggregateFunction(function, kinds, state_version(function, kinds))
    refused = f"{call} of {', '.join(map(str, kinds))} in a projection is not supported"
    if not _PARAMETERS.fullmatch(function):
        raise error(
            "NOT_IMPLEMENTED", refused, "Parameters are whole numbers, plain decimals, words, or lists of these"
        )
    if not (makes_states(data_type) or (args and state_program(data_type))):
        raise error("NOT_IMPLEMENTED", refused, UNKNOWN_STATES)
    # ClickHouse replaces other names of a function only where they may be written in any case.
    called = call.function if call.function.startswith("median") else function
    return f"{called}({', '.join(map(column_name, args))})", args, data_type


def _bound(tree: SyntaxNode, schema: TableSchema) -> BoundNode:
    _columns(tree, schema)
    node: BoundNode = compile_expression(str(tree), schema.types).node
    return node


def _function(node: SyntaxNode) -> str | None:
    """ClickHouse's name, with the parameters, of the aggregate function that is called; None for others."""
    return aggregate_function(node.function) if isinstance(node, Call) else None


def _is_known(function: str) -> bool:
    try:
        find_function(function)
    except MergelakeError:
        return False
    return True


def _has_aggregate(tree: SyntaxNode) -> bool:
    return any(_function(node) is not None for node in walk(tree))


def _named(node: SyntaxNode) -> SyntaxNode:
    """The tree with ClickHouse's own names of functions."""

    def own(each: SyntaxNode) -> SyntaxNode | None:
        return Call(canonical_name(each.function), tuple(map(_named, each.args))) if isinstance(each, Call) else None

    return replaced(node, own)


def _plain(tree: SyntaxNode) -> SyntaxNode:
    """The tree with ClickHouse's own names. NOT_IMPLEMENTED if the name of its column is not known for sure."""
    named = _named(tree)
    for node in walk(named):
        unsure = isinstance(node, Call) and node.function not in NAMED_FUNCTIONS
        if isinstance(node, Literal):
            plain = isinstance(node.value, bytes) and node.value.isalnum()
            unsure = not plain and not (isinstance(node.value, int) and isinstance(node.type, t.Int))
        if unsure:
            what = f"the function {node.function}" if isinstance(node, Call) else f"the constant {node}"
            message = f"{tree} in an aggregate projection is not supported, because of {what}"
            raise error("NOT_IMPLEMENTED", message, "Add a MATERIALIZED column of it, and use that")
    return named


def _is_dictionary(name: str, schema: TableSchema) -> bool:
    return isinstance(schema.column(name).type, t.LowCardinality)


def _own_schema(schema: TableSchema, columns: tuple[Column, ...], engine: str, order: tuple[str, ...]) -> TableSchema:
    plain = tuple(replace(column, default_kind="", default="", ttl="") for column in columns)
    return TableSchema(
        plain,
        engine=engine,
        order_by=order,
        primary_key=order,
        settings={**schema.settings, "allow_nullable_key": "1"},
        version=schema.version,
    )


def _digest(own: TableSchema, made_of: str) -> str:
    columns = [f"{column.id}:{column.type}:{column.name}" for column in own.columns]
    text = "\n".join([own.engine, made_of, *own.order_by, "", *columns])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
