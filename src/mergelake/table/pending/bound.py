"""Commands bound against the columns of a table, and their application to rows. Pure.

`Steps` are the bound commands that one part lacks. `base(wanted)` names the columns to read from the part for some
columns of the view; `apply` turns their values in some rows into those of the view. Commands are applied in order: each
sees what those before it left, and an expression is evaluated for the rows that match only, so one that fails for other
rows does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.base.sized_cache import sized_cache
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.expr.aliases import alias_expression, expand_aliases
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundNode, EvaluationContext, columns_of
from mergelake.expr.nodes import Call, Literal, SyntaxNode
from mergelake.expr.parser import parse
from mergelake.expr.values import to_arrow
from mergelake.log.model.state import PendingMutation
from mergelake.table.pending.commands import Delete, RowCommand, row_commands

Arrays = dict[str, pa.Array]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Step:
    """One bound command, or the MATERIALIZED columns that follow from one."""

    where: BoundNode | None
    """None: the rows that matched in the step before."""
    sets: Mapping[str, BoundNode] = field(default_factory=dict)
    """By column the new value, of the column's type; empty: the rows are deleted."""

    @property
    def deletes(self) -> bool:
        """Whether the rows that match are deleted."""
        return not self.sets


@dataclass(frozen=True, slots=True)
class Steps:
    """What a part lacks, in order."""

    steps: tuple[Step, ...]
    types: Mapping[str, t.DataType]
    """Types of the table's columns."""
    versions: tuple[int, ...] = ()
    """Versions of the mutations: equal for parts with the same rows to be changed."""
    aliases: Mapping[str, BoundNode] = field(default_factory=dict)
    """The expressions of ALIAS columns: they see what the steps leave."""

    @property
    def deletes(self) -> bool:
        """Whether rows may be deleted."""
        return any(step.deletes for step in self.steps)

    @property
    def touched(self) -> frozenset[str]:
        """The columns that get new values."""
        return frozenset(name for step in self.steps for name in step.sets)

    def base(self, wanted: Sequence[str], *, deletes: bool = True) -> list[str]:
        """The columns to read from the part for columns `wanted` of the view.

        `deletes=False`: deleted rows are known already, and are not among those that `apply` gets.
        """
        return self._live(wanted, self._asked(deletes=deletes))[0]

    def for_deletes(self) -> list[str]:
        """The columns to read in order to know which rows are deleted."""
        return self.base((), deletes=True) if self.deletes else []

    def for_matches(self) -> list[str]:
        """The columns to read for `matches`."""
        return self._live((), [True] * len(self.steps))[0]

    def sources(self, wanted: Sequence[str]) -> list[str]:
        """The columns to read for columns `wanted` of the view if all matches are known (`apply(…, known=…)`)."""
        return self._live(wanted, None)[0]

    def _asked(self, *, deletes: bool) -> list[bool]:
        """For each step whether its matches are needed whatever columns are wanted."""
        return [deletes and step.deletes for step in self.steps]

    def _live(self, wanted: Sequence[str], asked: Sequence[bool] | None) -> tuple[list[str], list[frozenset[str]]]:
        """(columns to read, for each step the columns that are needed after it); `asked` None: matches are known."""
        live = dict.fromkeys(self._sources_of_aliases(wanted))
        after: list[frozenset[str]] = [frozenset()] * len(self.steps)
        follows = False
        for at in range(len(self.steps) - 1, -1, -1):
            step = self.steps[at]
            after[at] = frozenset(live)
            needed = [name for name in step.sets if name in live]
            for name in needed:
                live |= dict.fromkeys(columns_of(step.sets[name]))
            if step.where is None:
                follows = follows or bool(needed)
            elif asked is not None and (needed or follows or asked[at]):
                live |= dict.fromkeys(columns_of(step.where))
                follows = False
        return list(live), after

    def apply(
        self,
        arrays: Arrays,
        rows: int,
        wanted: Sequence[str],
        *,
        deletes: bool = True,
        known: Sequence[Mask] | None = None,
    ) -> tuple[Arrays, Mask | None]:
        """The columns `wanted` after all steps, and which of the rows stay (None: all).

        `arrays` are the columns `base(wanted, deletes)` in `rows` rows, in storage form. If rows go, the arrays that
        are returned have those that stay. `known` are the matches of each step among these rows, which all stay: then
        `sources(wanted)` are enough.
        """
        deletes = deletes and known is None and self.deletes
        asked = None if known is not None else self._asked(deletes=deletes)
        _, after = self._live(wanted, asked)
        held, alive, count = dict(arrays), np.arange(rows), rows
        matched: Mask | None = None
        for at, step in enumerate(self.steps):
            needed = [name for name in step.sets if name in after[at]]
            if known is not None:
                matched = known[at]
            elif step.where is not None:
                wanted_now = needed or (step.deletes and deletes) or self._is_followed(at, after)
                matched = self._matching(step.where, held, count) if wanted_now else None
            if matched is None or not matched.any():
                continue
            if needed:
                held |= self._updated(step, needed, held, matched)
            elif step.deletes and deletes:
                keep = pa.array(np.flatnonzero(~matched))
                held = {name: array.take(keep) for name, array in held.items()}
                alive = alive[~matched]
                count, matched = len(alive), None
        mask = None
        if len(alive) < rows:
            mask = np.zeros(rows, np.bool_)
            mask[alive] = True
        computed = {name: self.aliases[name] for name in wanted if name in self.aliases}
        if computed:
            context = self._context(held, count)
            held |= {name: to_arrow(context.eval(node), node.type, count) for name, node in computed.items()}
        return {name: held[name] for name in wanted}, mask

    def _sources_of_aliases(self, wanted: Sequence[str]) -> Iterator[str]:
        """The columns, with those from which ALIAS columns are computed in their place."""
        for name in wanted:
            yield from columns_of(self.aliases[name]) if name in self.aliases else (name,)

    def matches(self, arrays: Arrays, rows: int) -> list[Mask]:
        """For each step which of `rows` rows match; a row that was deleted matches no later step.

        `arrays` are the columns `for_matches()`.
        """
        _, after = self._live((), [True] * len(self.steps))
        held, alive = dict(arrays), np.arange(rows)
        matched = np.zeros(0, np.bool_)
        out: list[Mask] = []
        for at, step in enumerate(self.steps):
            if step.where is not None:
                matched = self._matching(step.where, held, len(alive))
            mask = np.zeros(rows, np.bool_)
            mask[alive[matched]] = True
            out.append(mask)
            if step.deletes:
                keep = pa.array(np.flatnonzero(~matched))
                held = {name: array.take(keep) for name, array in held.items()}
                alive = alive[~matched]
            elif matched.any():
                held |= self._updated(step, [name for name in step.sets if name in after[at]], held, matched)
        return out

    def _matching(self, where: BoundNode, held: Arrays, rows: int) -> Mask:
        return self._context(held, rows).mask(where) if rows else np.zeros(0, np.bool_)

    def _is_followed(self, at: int, after: Sequence[frozenset[str]]) -> bool:
        """Whether a step that uses the matches of step `at` is needed."""
        for place in range(at + 1, len(self.steps)):
            if self.steps[place].where is not None:
                return False
            if not after[place].isdisjoint(self.steps[place].sets):
                return True
        return False

    def _updated(self, step: Step, needed: Sequence[str], held: Arrays, matched: Mask) -> Arrays:
        places = np.flatnonzero(matched)
        every = len(places) == len(matched)
        at = pa.array(places)
        reads = dict.fromkeys(name for column in needed for name in columns_of(step.sets[column]))
        some = {name: held[name] if every else held[name].take(at) for name in reads}
        context = self._context(some, len(places))
        out = {}
        for name in needed:
            node = step.sets[name]
            new = to_arrow(context.eval(node), self.types[name], len(places))
            out[name] = new if every else scattered(held[name], new, matched, places)
        return out

    def _context(self, arrays: Arrays, rows: int) -> EvaluationContext:
        return EvaluationContext.of_block(pa.table(arrays) if arrays else pa.table({"": pa.nulls(rows)}), self.types)


def scattered(old: pa.Array, new: pa.Array, matched: Mask, places: NDArray[np.int64]) -> pa.Array:
    """`old` with the values at `places` (where `matched`) replaced by `new`."""
    kind = old.type
    if kind == new.type and (pa.types.is_primitive(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary(kind)):
        return pc.replace_with_mask(old, pa.array(matched), new)
    take = np.arange(len(old), dtype=np.int64)
    take[places] = len(old) + np.arange(len(new))
    both = pa.chunked_array([old, new])
    if pa.types.is_dictionary(kind):
        both = both.unify_dictionaries()
    whole = both.combine_chunks()
    return (whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole).take(pa.array(take))


def bind_steps(mutations: Sequence[PendingMutation], schema: TableSchema, partition_id: str) -> Steps | None:
    """The commands of `mutations` that concern a partition; None if there are none.

    Raises the errors of parsing and binding.
    """
    commands = tuple(
        command
        for mutation in mutations
        for command in row_commands(mutation.commands)
        if command.partition_id in (None, partition_id)
    )
    if not commands:
        return None
    columns = _Columns(schema)
    steps = tuple(step for command in commands for step in _steps_of(command, columns))
    versions = tuple(mutation.version for mutation in mutations)
    return Steps(steps, schema.types, versions, _bound_aliases(columns))


class _Columns:
    """The columns of a schema as a cache key."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._key = schema.columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Columns) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@sized_cache(1024, 32 << 20, lambda command, _: len(command.where))
def _steps_of(command: RowCommand, columns: _Columns) -> tuple[Step, ...]:
    return tuple(bind_command(command, columns.schema))


def check_command(command: RowCommand, schema: TableSchema) -> None:
    """Raise the errors of binding. The steps are kept for the next reads."""
    _steps_of(command, _Columns(schema))


@lru_cache(maxsize=256)
def _bound_aliases(columns: _Columns) -> Mapping[str, BoundNode]:
    schema = columns.schema
    names = [column.name for column in schema.columns if column.default_kind == "ALIAS"]
    return {name: bind(alias_expression(name, schema), schema.types) for name in names}


def bind_command(command: RowCommand, schema: TableSchema) -> list[Step]:
    """The steps of a command: itself, and the MATERIALIZED columns that depend on what it sets."""
    where, groups = command_trees(command, schema)
    condition = _condition(where, command.where, schema)
    if isinstance(command, Delete):
        return [Step(condition)]
    bound = [{name: bind(value, schema.types) for name, value in sets.items()} for sets in groups]
    return [Step(None if at else condition, sets) for at, sets in enumerate(bound)]


def command_trees(command: RowCommand, schema: TableSchema) -> tuple[SyntaxNode, list[dict[str, SyntaxNode]]]:
    """The condition of a command, and by column the new values, over stored columns and cast to the column's type.

    After the assignments of an UPDATE come the MATERIALIZED columns that depend on them, then those that depend on
    these, and so on, but for those that read an EPHEMERAL column, which keep their values; a DELETE has none. Raises
    the errors of parsing.
    """
    where = _tree(command.where, schema)
    if isinstance(command, Delete):
        return where, []
    sets = {name: _cast(value, schema.column(name), schema) for name, value in command.assignments}
    groups = [sets]
    readable = frozenset(schema.readable)
    while dependents := {
        column.name: _cast(column.default, column, schema)
        for column in schema.stored
        if column.default_kind == "MATERIALIZED"
        and not groups[-1].keys().isdisjoint(reads := columns_of(bind(_tree(column.default, schema), schema.types)))
        and readable.issuperset(reads)
    }:
        groups.append(dependents)
    return where, groups


def bind_condition(text: str, schema: TableSchema) -> BoundNode:
    """A WHERE bound against the columns. Raises ILLEGAL_TYPE_OF_ARGUMENT if it is no condition."""
    return _condition(_tree(text, schema), text, schema)


def bind_value(text: str, column: Column, schema: TableSchema) -> BoundNode:
    """An expression as a new value of a column: cast to its type, as CAST does."""
    return bind(_cast(text, column, schema), schema.readable)


def _condition(tree: SyntaxNode, text: str, schema: TableSchema) -> BoundNode:
    bound = bind(tree, schema.readable)
    inner = t.inner_type(bound.type)
    if not isinstance(inner, t.Bool | t.Nothing) and inner != t.UINT8:
        message = f"The WHERE of a mutation has type {bound.type}, and must have UInt8: {text}"
        raise error("ILLEGAL_TYPE_OF_ARGUMENT", message, "Compare it with something")
    return bound


def _tree(text: str, schema: TableSchema) -> SyntaxNode:
    return expand_aliases(parse(text), schema)


def _cast(text: str, column: Column, schema: TableSchema) -> SyntaxNode:
    return Call("CAST", (_tree(text, schema), Literal(str(column.type).encode(), t.STRING)))
