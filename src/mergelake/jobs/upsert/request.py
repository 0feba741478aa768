"""What a merge shall do, checked against the columns of the table and of the source. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import Column, TableSchema, unknown_column
from mergelake.core.types import types as t
from mergelake.engines.order.keys import table_keys
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundColumn, BoundNode, columns_of
from mergelake.expr.nodes import Call, Literal, referenced_columns
from mergelake.expr.parser import parse

SOURCE, TARGET = "source.", "target."
"""Prefixes of columns in expressions."""
MATCHED = ("replace", "update", "delete", "ignore")
NOT_MATCHED = ("insert", "ignore")
_COMPARABLE = (
    t.Int, t.Float, t.Bool, t.Decimal, t.String, t.FixedString, t.UUID, t.Date, t.Date32, t.DateTime, t.DateTime64,
    t.Enum, t.IPv4, t.IPv6,
)  # fmt: skip
"""Types of columns by which rows are matched, also Nullable and LowCardinality ones."""


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """The arguments of a merge; their meaning is documented at `Table.merge`. Pickles.

    Raises BAD_ARGUMENTS or TYPE_MISMATCH for what is never valid.
    """

    on: tuple[str, ...]
    when_matched: str = "replace"
    when_not_matched: str = "insert"
    assignments: tuple[tuple[str, str], ...] = ()
    """Column and expression of each change, if `when_matched` is `update`; empty: all columns of the source."""
    matched_if: str | None = None
    delete_if: str | None = None

    @staticmethod
    def of(
        on: Sequence[str] | str,
        when_matched: str | Mapping[str, str] = "replace",
        when_not_matched: str = "insert",
        matched_if: str | None = None,
        delete_if: str | None = None,
    ) -> MergeRequest:
        """The request of a user's arguments."""
        names = (on,) if isinstance(on, str) else tuple(on)
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise error("BAD_ARGUMENTS", f"Rows cannot be matched on {on!r}", "Give the names of one or more columns")
        assignments: tuple[tuple[str, str], ...] = ()
        if isinstance(when_matched, Mapping):
            assignments, when_matched = tuple(when_matched.items()), "update"
            if not assignments or not all(isinstance(text, str) for pair in assignments for text in pair):
                hint = "Give expressions by column, such as {'n': 'target.n + source.n'}"
                raise error("TYPE_MISMATCH", f"{dict(assignments)!r} are no new values of columns", hint)
        for name, value, words in (
            ("when_matched", when_matched, MATCHED),
            ("when_not_matched", when_not_matched, NOT_MATCHED),
        ):
            if value not in words:
                raise error("BAD_ARGUMENTS", f"{name} is {value!r}", f"It is one of {', '.join(words)}")
        for name, condition in (("matched_if", matched_if), ("delete_if", delete_if)):
            if not isinstance(condition, str | None):
                raise error("TYPE_MISMATCH", f"{name} is {condition!r}", "Give a ClickHouse expression as text")
        if (when_matched, when_not_matched) == ("ignore", "ignore") and delete_if is None:
            raise error("BAD_ARGUMENTS", "Rows that match are ignored, and so are the others", "Leave out the merge")
        return MergeRequest(names, when_matched, when_not_matched, assignments, matched_if, delete_if)

    @property
    def mentioned(self) -> tuple[str, ...]:
        """The source's columns that expressions read, each once."""
        texts = [*(text for _, text in self.assignments), self.matched_if or "1", self.delete_if or "1"]
        names = (name for text in texts for name in referenced_columns(parse(text)) if name.startswith(SOURCE))
        return tuple(dict.fromkeys(name.removeprefix(SOURCE) for name in names))


def source_schema(schema: TableSchema, extras: Mapping[str, t.DataType]) -> TableSchema:
    """The schema by which a source is read: the table's, with extra columns of these types."""
    if not extras:
        return schema
    first = schema.next_column_id
    columns = (Column(first + at, name, kind) for at, (name, kind) in enumerate(extras.items()))
    return replace(schema, columns=(*schema.columns, *columns), next_column_id=first + len(extras))


@dataclass(frozen=True, slots=True)
class Merge:
    """A request, bound to a table and the columns of a source."""

    request: MergeRequest
    schema: TableSchema
    source: TableSchema
    """The table's columns, and those that only the source has."""
    given: tuple[str, ...]
    """The source's columns."""
    sets: Mapping[str, BoundNode]
    """By column of the table the new value in rows that match, over columns of both."""
    matched_if: BoundNode | None
    delete_if: BoundNode | None

    @staticmethod
    def of(request: MergeRequest, schema: TableSchema, source: TableSchema, given: Sequence[str], now_ms: int) -> Merge:
        """Check everything but values; `given` may hold columns of `source` only.

        Raises NO_SUCH_COLUMN_IN_TABLE, UNKNOWN_IDENTIFIER, ILLEGAL_TYPE_OF_ARGUMENT, CANNOT_UPDATE_COLUMN,
        BAD_ARGUMENTS.
        """
        check_on(request.on, schema, given)
        types = {f"{TARGET}{column.name}": column.type for column in schema.stored}
        types |= {f"{SOURCE}{name}": source.column(name).type for name in given}
        sets: dict[str, BoundNode] = {}
        if request.when_matched == "update" and not request.assignments:
            named = {column.name for column in insertable(schema)}.difference(request.on)
            sets = {n: BoundColumn(f"{SOURCE}{n}", schema.column(n).type) for n in given if n in named}
            if not sets:
                raise error("BAD_ARGUMENTS", "The source has no column but the keys", "There is nothing to update")
        for name, text in request.assignments:
            _check_assigned(name, schema)
            sets[name] = _bound(text, types, now_ms, schema.column(name).type)
        conditions = [
            None if text is None else _condition(text, types, now_ms)
            for text in (request.matched_if, request.delete_if)
        ]
        merge = Merge(request, schema, source, tuple(given), sets, *conditions)
        if not merge.is_blind:
            _check_kept(schema)
        return merge

    @property
    def on(self) -> tuple[Column, ...]:
        """The columns by which rows are matched."""
        return tuple(self.schema.column(name) for name in self.request.on)

    @property
    def inserted(self) -> tuple[str, ...]:
        """The source's columns that the table has."""
        return tuple(name for name in self.given if self.schema.has(name))

    @property
    def deletes_by_source(self) -> bool:
        """Whether `delete_if` reads the source only: then it also holds for rows that match nothing."""
        return self.delete_if is not None and not any(n.startswith(TARGET) for n in columns_of(self.delete_if))

    @property
    def is_blind(self) -> bool:
        """Whether the table need not be read: whatever rows it has, the same keys go and the same rows come."""
        request = self.request
        form = (request.when_matched, request.when_not_matched)
        return (
            form in (("replace", "insert"), ("delete", "ignore"))
            and self.matched_if is None
            and (self.delete_if is None or self.deletes_by_source)
        )


def insertable(schema: TableSchema) -> tuple[Column, ...]:
    """The stored columns that an insert may give."""
    return tuple(column for column in schema.stored if column.default_kind != "MATERIALIZED")


def _check_kept(schema: TableSchema) -> None:
    """NOT_IMPLEMENTED if a MATERIALIZED column reads an EPHEMERAL one: rows that are added again would lose it."""
    for column in schema.stored:
        if column.default_kind == "MATERIALIZED":
            reads = columns_of(bind(expand_aliases(parse(column.default), schema), schema.types, 0, lambda: 0))
            if not schema.readable.keys() >= set(reads):
                message = (
                    f"A merge that reads the table cannot keep {column.name}, which follows from EPHEMERAL columns"
                )
                raise error(
                    "NOT_IMPLEMENTED", message, "when_matched='replace' reads nothing; or use UPDATE and INSERT"
                )


def check_on(on: Sequence[str], schema: TableSchema, given: Sequence[str]) -> None:
    """Whether rows can be matched on these columns."""
    for name in on:
        column = schema.column(name)
        if name not in given or column not in schema.stored:
            raise error(
                "BAD_ARGUMENTS", f"Rows are matched on column {name}, which the source lacks", "Give its values"
            )
        if not isinstance(t.inner_type(column.type), _COMPARABLE) or isinstance(column.type, t.SimpleAggregateFunction):
            raise error("BAD_ARGUMENTS", f"Rows cannot be matched on column {name} of type {column.type}")
    if mode_of(schema) is not None:
        keys = {name for key in table_keys(schema).sorting if key.plain for name in key.columns}
        other = next((name for name in on if name not in keys), None)
        if other is not None:
            message = f"Rows of a {schema.engine} cannot be matched on {other}, which is not in its sorting key"
            raise error("BAD_ARGUMENTS", message, "An older row with the same sorting key would show up again")


def _check_assigned(name: str, schema: TableSchema) -> None:
    if not schema.has(name) or schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
        raise unknown_column(name, list(schema.names))
    if schema.column(name).default_kind == "MATERIALIZED":
        raise error("CANNOT_UPDATE_COLUMN", f"Cannot UPDATE materialized column {name}")


def _bound(text: str, types: Mapping[str, t.DataType], now_ms: int, target: t.DataType | None = None) -> BoundNode:
    """An expression over columns of both sides; cast to `target`, as CAST does."""
    tree = parse(text)
    if target is not None:
        tree = Call("CAST", (tree, Literal(str(target).encode(), t.STRING)))
    try:
        return bind(tree, types, now_ms)
    except MergelakeError as failure:
        if failure.name == "UNKNOWN_IDENTIFIER":
            failure.hint = f"Write {TARGET}name or {SOURCE}name. {failure.hint}"
        raise


def _condition(text: str, types: Mapping[str, t.DataType], now_ms: int) -> BoundNode:
    bound = _bound(text, types, now_ms)
    inner = t.inner_type(bound.type)
    if not isinstance(inner, t.Bool | t.Nothing) and inner != t.UINT8:
        message = f"A condition has type {bound.type}, and must have UInt8: {text}"
        raise error("ILLEGAL_TYPE_OF_ARGUMENT", message, "Compare it with something")
    return bound
