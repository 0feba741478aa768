"""The schema of a table: columns, keys, engine, settings; plain values that are stored in the log as JSON.

Expressions are ClickHouse text (`toYYYYMM(ts)`); `expr` binds them against the columns. The `id` of a column never
changes and parts refer to columns by id, so renaming a column changes no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mergelake.core.base.errors import error, there_are
from mergelake.core.model.stored_form import StoredForm
from mergelake.core.types.types import DataType, parse_type


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A change of a column's type: values of parts that were written before it are converted as it was made."""

    version: int
    """Version of the schema from which on the column has the type."""
    type: DataType
    null: str = ""
    """The constant that takes the place of NULL, if the type was Nullable before and is no longer."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    id: int
    """Stable for the life of the table; never reused."""
    name: str
    type: DataType
    default_kind: str = ""
    """`DEFAULT`, `MATERIALIZED`, `ALIAS`, `EPHEMERAL`, or empty."""
    default: str = ""
    """The default's expression as ClickHouse text, or empty."""
    codec: str = ""
    """The contents of `CODEC(…)`, or empty for the table's default."""
    comment: str = ""
    ttl: str = ""
    changes: tuple[TypeChange, ...] = ()
    """The changes of its type, in order."""

    def changed_since(self, version: int) -> tuple[TypeChange, ...]:
        """The changes of its type that values lack which were written with a version of the schema."""
        return tuple(change for change in self.changes if change.version > version)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form; empty fields are left out."""
        texts = {
            "default_kind": self.default_kind,
            "default": self.default,
            "codec": self.codec,
            "comment": self.comment,
            "ttl": self.ttl,
        }
        out: dict[str, Any] = {"id": self.id, "name": self.name, "type": str(self.type), **_not_empty(texts)}
        if self.changes:
            out["changes"] = [[change.version, str(change.type), change.null] for change in self.changes]
        return out

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Column:
        """Inverse of `to_json`. TypeError or KeyError for what no `to_json` writes."""
        changes = tuple(TypeChange(v, parse_type(kind), null) for v, kind, null in raw.get("changes", ()))
        return _COLUMN.value({**raw, "type": parse_type(raw["type"]), "changes": changes})


_COLUMN = StoredForm(
    Column,
    id="id",
    name="name",
    type="type",
    default_kind="default_kind",
    default="default",
    codec="codec",
    comment="comment",
    ttl="ttl",
    changes="changes",
)


@dataclass(frozen=True, slots=True)
class SkipIndex:
    """A data-skipping index."""

    name: str
    expression: str
    type: str
    """`minmax`, `set(100)`, `bloom_filter(0.01)`, …"""
    granularity: int = 1
    since: int = 0
    """The version of the schema that added it: files of its name in parts of older schemas are of another index."""

    def is_of(self, schema_version: int) -> bool:
        """Whether files of its name in a part of that schema version are its own."""
        return schema_version >= self.since


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection: other columns, or aggregates, of the same rows in another order, kept in each part."""

    name: str
    query: str
    """`SELECT … [GROUP BY …] [ORDER BY …]`."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that rows satisfy: inserts are checked against CHECK, ASSUME is only a promise."""

    name: str
    kind: str
    """`CHECK` or `ASSUME`."""
    expression: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The contents of a CREATE TABLE. Immutable; ALTER makes a new one with `version` + 1."""

    columns: tuple[Column, ...]
    engine: str = "MergeTree"
    engine_args: tuple[str, ...] = ()
    """Arguments of the engine as text: `ReplacingMergeTree(ver)` has ("ver",)."""
    partition_by: tuple[str, ...] = ()
    """Expressions of the partition key; a single expression is a tuple of one, none is empty."""
    order_by: tuple[str, ...] = ()
    """Expressions of the sorting key; empty for ORDER BY tuple()."""
    order_desc: tuple[bool, ...] = ()
    """For each expression of the sorting key whether it is descending; empty if none is."""
    primary_key: tuple[str, ...] = ()
    """A prefix of `order_by`; equal to it unless PRIMARY KEY was given."""
    sample_by: str = ""
    indices: tuple[SkipIndex, ...] = ()
    projections: tuple[Projection, ...] = ()
    past_projections: tuple[Projection, ...] = ()
    """Those that were dropped: a name stands for one query for the life of the table, as files of parts have it."""
    constraints: tuple[Constraint, ...] = ()
    ttl: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Explicit table settings by name, values as text."""
    comment: str = ""
    version: int = 1
    next_column_id: int = 0
    """The id of the next new column."""
    _by_name: Mapping[str, Column] = field(init=False, repr=False, compare=False)
    """The columns by name, in order: an index for tables with thousands of columns."""
    _types: dict[str, DataType] = field(init=False, repr=False, compare=False)
    _stored: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    _readable: dict[str, DataType] = field(init=False, repr=False, compare=False)
    by_id: Mapping[int, Column] = field(init=False, repr=False, compare=False)
    """The stored columns by their ids, in order."""

    def __post_init__(self) -> None:
        by_name = {column.name: column for column in self.columns}
        if len(by_name) != len(self.columns):
            twice = Counter(column.name for column in self.columns).most_common(1)[0][0]
            raise error("DUPLICATE_COLUMN", f"Column {twice} is given twice")
        stored = tuple(c for c in self.columns if c.default_kind not in ("ALIAS", "EPHEMERAL"))
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_types", {name: column.type for name, column in by_name.items()})
        readable = {column.name: column.type for column in self.columns if column.default_kind != "EPHEMERAL"}
        object.__setattr__(self, "_stored", stored)
        object.__setattr__(self, "_readable", readable)
        object.__setattr__(self, "by_id", {column.id: column for column in stored})
        if self.next_column_id == 0:
            object.__setattr__(self, "next_column_id", max((c.id for c in self.columns), default=-1) + 1)

    def column(self, name: str) -> Column:
        """The column called `name`; NO_SUCH_COLUMN_IN_TABLE if there is none."""
        column = self._by_name.get(name)
        if column is None:
            raise unknown_column(name, list(self._by_name))
        return column

    def has(self, name: str) -> bool:
        """Whether there is a column called `name`."""
        return name in self._by_name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in order."""
        return tuple(self._by_name)

    @property
    def types(self) -> dict[str, DataType]:
        """Type of each column by name, in order."""
        return self._types.copy()

    @property
    def readable(self) -> dict[str, DataType]:
        """Type of each column that rows of the table have: all but EPHEMERAL ones, which exist in inserts only."""
        return self._readable.copy()

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that parts store: all but ALIAS and EPHEMERAL ones."""
        return self._stored

    def with_settings(self, settings: Mapping[str, str]) -> TableSchema:
        """The same table with other settings."""
        return replace(self, settings=dict(settings))

    def of_new_table(self) -> TableSchema:
        """The same definition for another table, without the history that it has in this one."""
        columns = tuple(replace(column, changes=()) for column in self.columns)
        indices = tuple(replace(index, since=0) for index in self.indices)
        return replace(self, columns=columns, indices=indices, past_projections=(), version=1)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form; empty fields are left out."""
        lists = {
            "engine_args": list(self.engine_args),
            "partition_by": list(self.partition_by),
            "order_by": list(self.order_by),
            "order_desc": list(self.order_desc),
            "primary_key": list(self.primary_key),
            "ttl": list(self.ttl),
        }
        out: dict[str, Any] = {
            "columns": [column.to_json() for column in self.columns],
            "engine": self.engine,
            **_not_empty(lists),
        }
        if self.sample_by:
            out["sample_by"] = self.sample_by
        if self.indices:
            out["indices"] = [
                [i.name, i.expression, i.type, i.granularity, *([i.since] if i.since else ())] for i in self.indices
            ]
        if self.projections:
            out["projections"] = [[each.name, each.query] for each in self.projections]
        if self.past_projections:
            out["past_projections"] = [[each.name, each.query] for each in self.past_projections]
        if self.constraints:
            out["constraints"] = [[c.name, c.kind, c.expression] for c in self.constraints]
        if self.settings:
            out["settings"] = dict(self.settings)
        if self.comment:
            out["comment"] = self.comment
        return {**out, "version": self.version, "next_column_id": self.next_column_id}

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> TableSchema:
        """Inverse of `to_json`. TypeError or KeyError for what no `to_json` writes."""
        fields = dict(raw)
        fields["columns"] = tuple(Column.from_json(column) for column in raw["columns"])
        fields["indices"] = tuple(SkipIndex(*index) for index in raw.get("indices", ()))
        for key in ("projections", "past_projections"):
            fields[key] = tuple(Projection(*each) for each in raw.get(key, ()))
        fields["constraints"] = tuple(Constraint(*constraint) for constraint in raw.get("constraints", ()))
        for key in ("engine_args", "partition_by", "order_by", "order_desc", "primary_key", "ttl"):
            fields[key] = tuple(raw.get(key, ()))
        return _SCHEMA.value(fields)


_SCHEMA = StoredForm(
    TableSchema,
    columns="columns",
    engine="engine",
    engine_args="engine_args",
    partition_by="partition_by",
    order_by="order_by",
    order_desc="order_desc",
    primary_key="primary_key",
    sample_by="sample_by",
    indices="indices",
    projections="projections",
    past_projections="past_projections",
    constraints="constraints",
    settings="settings",
    comment="comment",
    ttl="ttl",
    version="version",
    next_column_id="next_column_id",
)


def _not_empty(held: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not empty."""
    return {name: value for name, value in held.items() if value}


def unknown_column(name: str, known: list[str], table: str = "") -> Exception:
    """The error for a column that does not exist, with similar names."""
    import difflib

    near = [other for other in known if other.lower() == name.lower()] or difflib.get_close_matches(name, known, n=1)
    where = f" in table {table}" if table else ""
    hint = f"Maybe you meant {near[0]}" if near else there_are("columns", known)
    return error("NO_SUCH_COLUMN_IN_TABLE", f"There is no column {name}{where}", hint)
