"""Views as text: a SELECT over a table of ClickHouse's with the parts as they are, that gives their rows as mutated.

::

    SELECT _view.k AS k, multiIf(_view.v > 10, CAST(0, 'Int32'), _view.v) AS v
    FROM (SELECT _view.k AS k, multiIf(_view.k = 7, CAST(3, 'Int32'), _view.v) AS v FROM parts AS _view) AS _view

Commands that do not depend on one another are in one level, others in nested ones, so the text is as long as the
commands. Which commands a row lacks is decided by `_part_data_version`, unless all parts lack them. Expressions are
written as they were parsed here. Pure.

With FINAL, deleted rows must not replace others, so they are filtered by PREWHERE, in which the values before are
expressions. Updates come after FINAL: they change no column by which it chooses rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mergelake.core.base.errors import error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode, referenced_columns, walk
from mergelake.expr.parser import parse
from mergelake.log.model.state import PendingMutation
from mergelake.table.pending.bound import bind_command, command_trees
from mergelake.table.pending.commands import row_commands

DATA_VERSION, PARTITION_ID = "_part_data_version", "_partition_id"
"""ClickHouse's virtual columns: the last mutation that a part has, or its first block; the id of its partition."""
NODES_MAX = 5_000
"""Maximum nodes of an expression of several levels: ClickHouse puts them into one another, at 5 us a node."""
_NODES_IN_ALL = 20_000
"""Maximum nodes of all commands: ClickHouse parses them for each statement, and takes 50,000."""
_TEXTS_KEPT = 64
_BRANCHES = "multiIf"


@dataclass(frozen=True, slots=True)
class SelectStep:
    """One command over the columns that the commands before leave."""

    where: SyntaxNode
    """With the conditions on parts; NULL is false."""
    sets: Mapping[str, SyntaxNode] = field(default_factory=dict)
    """By column the new value; empty: the rows are deleted."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """What a view is over."""

    table: str
    final: bool = False
    sample: str = ""
    """`SAMPLE 1/10 OFFSET 1/2`, or empty."""
    where: str = ""
    """A condition on rows of the table, whatever mutations they lack."""
    prewhere: str = ""
    """With FINAL: a condition on rows of the view that filters before rows are replaced."""


@dataclass(frozen=True, slots=True)
class View:
    """The rows of a table after some mutations."""

    steps: tuple[SelectStep, ...]
    types: Mapping[str, t.DataType]
    """Types of the table's columns."""
    versions: tuple[int, ...]
    """Versions of the mutations."""
    _texts: dict[tuple[tuple[str, ...], SourceText], str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def alias(self) -> str:
        """The name of what a level is over; no column has it."""
        name = "_view"
        while name in self.types:
            name += "_"
        return name

    def select(self, columns: Sequence[str], source: SourceText) -> str:
        """A SELECT with these columns. Raises NOT_IMPLEMENTED if the expressions would be too long."""
        if not self.steps:
            return _plain(columns, source)
        key = tuple(columns), source
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= _TEXTS_KEPT:
                self._texts.clear()
            text = self._texts[key] = self._select(columns, source)
        return text

    def _select(self, columns: Sequence[str], source: SourceText) -> str:
        needed, before = self._needed(columns, deletes=not source.final)
        levels, alias = [_Level(self.types)], self.alias
        for step, live in zip(needed, before, strict=True):
            if not levels[-1].takes(step):
                levels.append(_Level(self.types, live, levels[-1].sizes))
            levels[-1].add(step)
        text = ""
        for level, shown in zip(levels, [*(level.live for level in levels[1:]), columns], strict=True):
            below = f"({text}) AS {alias}" if text else self._from(source)
            conditions = [f"({source.where})"] if source.where and not text else []
            conditions += [_text(tree, alias) for tree in level.kept]
            values = ", ".join(f"{_text(level.value(name), alias)} AS {back_quote(name)}" for name in shown)
            text = f"SELECT {values} FROM {below}"
            text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return text

    def _needed(self, columns: Sequence[str], *, deletes: bool) -> tuple[list[SelectStep], list[tuple[str, ...]]]:
        """The steps that matter for the columns, and for each the columns that are needed before it."""
        live = dict.fromkeys(columns)
        out: list[tuple[SelectStep, tuple[str, ...]]] = []
        for step in reversed(self.steps):
            sets = {name: value for name, value in step.sets.items() if name in live}
            if not (sets or (deletes and not step.sets)):
                continue
            live |= dict.fromkeys(name for node in (step.where, *sets.values()) for name in referenced_columns(node))
            out.append((replace(step, sets=sets), tuple(live)))
        out.reverse()
        return [step for step, _ in out], [names for _, names in out]

    def _from(self, source: SourceText) -> str:
        text = f"{source.table} AS {self.alias}{' FINAL' * source.final} {source.sample}".rstrip()
        conditions = self._before_final(source.prewhere) if source.final else []
        return f"{text} PREWHERE {' AND '.join(conditions)}" if conditions else text

    def _before_final(self, prewhere: str) -> list[str]:
        """Conditions on rows as the parts have them: not deleted, and those of the statement's PREWHERE."""
        updated = any(step.sets for step in self.steps)
        tree = _over_columns(parse(prewhere), self.types) if prewhere and updated else None
        level = _Level(self.types)
        for step in self._needed(() if tree is None else referenced_columns(tree), deletes=True)[0]:
            sets = {name: level.inlined(value) for name, value in step.sets.items()}
            level.add(SelectStep(level.inlined(step.where), sets))
        conditions = [_text(kept, self.alias) for kept in level.kept]
        if tree is not None:
            return [*conditions, f"({_text(level.inlined(tree), self.alias)})"]
        return [*conditions, f"({prewhere})"] if prewhere else conditions


UNCHANGED = View((), {}, ())
"""The view of parts that lack nothing."""


def view_of(mutations: Iterable[PendingMutation], schema: TableSchema, newest: int) -> View:
    """The view of parts that lack some of these mutations; `newest` is the newest data version of a part.

    Raises the errors of parsing and binding, and NOT_IMPLEMENTED for columns named as virtual ones that are needed.
    """
    steps: list[SelectStep] = []
    versions = []
    for mutation in mutations:
        versions.append(mutation.version)
        for command in row_commands(mutation.commands):
            where, groups = command_trees(command, schema)
            where = _over_columns(where, schema.types)
            on = [parse(f"{DATA_VERSION} < {mutation.version}")] if mutation.version <= newest else []
            if mutation.since:
                on.append(parse(f"{DATA_VERSION} >= {mutation.since}"))
            if command.partition_id is not None:
                on.append(parse(f"{PARTITION_ID} = {quote_string(command.partition_id)}"))
            elif mutation.partition_ids is not None and not mutation.since:
                ids = ", ".join(map(quote_string, mutation.partition_ids))
                on.append(parse(f"{PARTITION_ID} IN ({ids})" if ids else "0"))
            bind_command(command, schema)
            sets: dict[str, SyntaxNode] = {}
            for group in groups:  # those after the first are over the new values
                sets |= {n: _replaced(_over_columns(value, schema.types), sets) for n, value in group.items()}
            steps.append(SelectStep(Call("and", (*on, where)) if on else where, sets))
    used = {name for step in steps for name in referenced_columns(step.where)}
    for name in used & {DATA_VERSION, PARTITION_ID}:
        if schema.has(name):
            raise error("NOT_IMPLEMENTED", f"The table has a column {name}, which its pending mutations need")
    if sum(1 for step in steps for node in (step.where, *step.sets.values()) for _ in walk(node)) > _NODES_IN_ALL:
        raise error("NOT_IMPLEMENTED", f"Pending mutations of more than {_NODES_IN_ALL} nodes are not supported")
    return View(tuple(steps), schema.types, tuple(versions))


@dataclass(frozen=True, slots=True)
class _Qualified(ColumnRef):
    """A column with the name of what it belongs to."""

    alias: str

    def __str__(self) -> str:
        return f"{self.alias}.{back_quote(self.name)}"


@dataclass
class _Level:
    """Steps over the same columns: the values and the rows that they leave."""

    types: Mapping[str, t.DataType]
    live: tuple[str, ...] = ()
    """The columns that the level needs."""
    inside: Mapping[str, int] = field(default_factory=dict)
    """By column of the level below the nodes of its expression over stored columns; others have one."""
    values: dict[str, SyntaxNode] = field(default_factory=dict)
    """The new values of columns."""
    kept: list[SyntaxNode] = field(default_factory=list)
    """Conditions of the rows that are not deleted."""

    def takes(self, step: SelectStep) -> bool:
        """Whether the step reads nothing that the level changes."""
        read = {name for node in (step.where, *step.sets.values()) for name in referenced_columns(node)}
        return self.values.keys().isdisjoint(read)

    def add(self, step: SelectStep) -> None:
        """Add a step. Raises NOT_IMPLEMENTED if an expression is too long."""
        if not step.sets:
            self.kept.append(Call("not", (Call("ifNull", (step.where, Literal(0, t.UINT8))),)))
            self._check(self.kept[-1])
        for name, value in step.sets.items():
            old = self.values.get(name, ColumnRef(name))
            branches = old.args if isinstance(old, Call) and old.function == _BRANCHES else (old,)
            self.values[name] = Call(_BRANCHES, (step.where, value, *branches))
            self._check(self.values[name])

    def value(self, name: str) -> SyntaxNode:
        """A column's value."""
        node = self.values.get(name, ColumnRef(name))
        kind = str(self.types[name]) if name in self.values else ""
        if "LowCardinality" not in kind:
            return node
        return Call("CAST", (node, Literal(kind.encode(), t.STRING)))  # branches with dictionaries give plain values

    def inlined(self, node: SyntaxNode) -> SyntaxNode:
        """An expression over the columns that the level gives as one over those that it needs."""
        self._check(node, self.sizes)
        return _replaced(node, {name: self.value(name) for name in referenced_columns(node)})

    @property
    def sizes(self) -> dict[str, int]:
        """By column the nodes of its expression over stored columns."""
        return {**self.inside, **{name: self._size(self.value(name), self.inside) for name in self.values}}

    def _check(self, node: SyntaxNode, sizes: Mapping[str, int] | None = None) -> None:
        sizes = self.inside if sizes is None else sizes
        depends = any(sizes.get(name, 1) > 1 for name in referenced_columns(node))
        if depends and self._size(node, sizes) > NODES_MAX:
            message = f"Pending mutations that depend on each other, of more nodes than {NODES_MAX}, are not supported"
            raise error("NOT_IMPLEMENTED", message)

    def _size(self, node: SyntaxNode, sizes: Mapping[str, int]) -> int:
        return sum(sizes.get(each.name, 1) if isinstance(each, ColumnRef) else 1 for each in walk(node))


def _plain(columns: Sequence[str], source: SourceText) -> str:
    """A SELECT of the rows as they are."""
    text = f"SELECT {', '.join(map(back_quote, columns))} FROM {source.table}{' FINAL' * source.final}"
    for word, clause in (("", source.sample), ("PREWHERE ", source.prewhere), ("WHERE ", source.where)):
        text += f" {word}{clause}" if clause else ""
    return text


def _replaced(node: SyntaxNode, values: Mapping[str, SyntaxNode]) -> SyntaxNode:
    """`node` with the columns in `values` replaced."""
    if isinstance(node, Call):
        return Call(node.function, tuple(_replaced(arg, values) for arg in node.args))
    return values.get(node.name, node) if isinstance(node, ColumnRef) else node


def _over_columns(node: SyntaxNode, types: Mapping[str, t.DataType]) -> SyntaxNode:
    """`node` with `getSubcolumn(column, 'path')` in place of subcolumns."""
    out: dict[str, SyntaxNode] = {}
    for name in referenced_columns(node):
        head = name
        while head not in types and "." in head:
            head = head.rpartition(".")[0]
        if head != name and head in types:
            out[name] = Call("getSubcolumn", (ColumnRef(head), Literal(name[len(head) + 1 :].encode(), t.STRING)))
    return _replaced(node, out)


def _text(node: SyntaxNode, alias: str) -> str:
    """An expression whose columns belong to the level below, whatever names its own level gives out."""
    return str(_replaced(node, {name: _Qualified(name, alias) for name in referenced_columns(node)}))
