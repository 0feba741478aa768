"""By which definitions servers may have attached a published table, and whether they would still read it rightly.

A server reads the columns of parts by name, by the definition with which it attached the table. So a version of the
schema is *served* once a statement with it was printed or names of parts were put under it (`_served/<version>`, an
empty object; without any, version 1 is if the table has names: putting them under version 1 notes nothing). Names are
put only while every served version reads the same as the newest one: columns may be added and dropped, but no name may
get another meaning.

The newest version in turn must read all parts: a column that is added after another of its name was dropped is none to
servers that attached the table in between, but it is in parts from before. Those are rewritten before the version is
served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mergelake.core.model.schema import Column, TableSchema
from mergelake.engines.rules.collapsing import without_version
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle

_FIRST = 1
"""The version that is served without an object for it, once there are names."""


def read_wrongly(handle: TableHandle, state: State, *, named: bool | None = None) -> tuple[str, set[int]]:
    """Why a served version of the schema reads parts of the newest one wrongly; empty if none does.

    And the versions that are to be served then, which are not noted yet (`serve`).

    `named`: whether names of parts are visible; None: not known yet. Costs one LIST; nothing for a table that was never
    altered.
    """
    newest = state.schema_version
    if newest == _FIRST:
        return "", set()
    prefix = f"{handle.directory}/_served/"
    listed = {int(meta.key.removeprefix(prefix)) for meta in handle.store.list(prefix)}
    versions = listed
    if not listed:
        if named is None:
            named = any(True for _ in handle.store.list(f"{handle.directory}/__meta/"))
        versions = {_FIRST} if named else set()
    for version in sorted(versions):
        reason = reads_wrongly(state.schemas[version], state.schema)
        if reason is not None:
            return reason, set()
    return "", (versions | {newest}) - listed


def serve(handle: TableHandle, versions: Iterable[int]) -> None:
    """Note versions of the schema as served ones."""
    for version in sorted(versions):
        handle.store.put(f"{handle.directory}/_served/{version}", b"")


def outdated(state: State, parts: Iterable[ActivePart]) -> tuple[str, ...]:
    """The names of the parts that a server would read wrongly, by the newest version and the names of columns.

    `parts` are not looked at if no schema has such parts.
    """
    others = misread_versions(state)
    return tuple(part.name for part in parts if part.manifest.schema_version in others) if others else ()


def misread_versions(state: State) -> set[int]:
    """The versions of the schema with parts that a server would read wrongly by the newest one."""
    return {version for version, schema in state.schemas.items() if holds_other_names(schema, state.schema)}


def forget_served(handle: TableHandle) -> None:
    """No server has attached the table: the next round may show any definition."""
    prefix = f"{handle.directory}/_served/"
    handle.store.delete([meta.key for meta in handle.store.list(prefix)])


def reads_wrongly(served: TableSchema, newest: TableSchema) -> str | None:
    """Why a server with the definition `served` reads parts of `newest` wrongly; None if it does not."""
    old, new = _by_id(served), _by_id(newest)
    for column_id, column in old.items():
        now = new.get(column_id)
        if now is not None and now.name != column.name:
            return f"column {column.name} is called {now.name} now"
        if now is not None and now.type != column.type:
            return f"column {column.name} has another type now"
        if now is not None and (now.default_kind, now.default) != (column.default_kind, column.default):
            return f"column {column.name} has another default now"
    names = {column.name: column.id for column in served.columns}
    for column in newest.columns:
        if names.get(column.name, column.id) != column.id:
            return f"column {column.name} is another one now"
    if _frame(served) != _frame(newest):
        return "its keys or its engine are others now"
    indexes = {index.name: index for index in served.indices}
    for index in newest.indices:
        if indexes.get(index.name, index) != index:
            return f"index {index.name} is another one now"
    return None


def holds_other_names(written: TableSchema, newest: TableSchema) -> bool:
    """Whether a part of the schema `written` has a column or an index that a server would read wrongly by its name."""
    now, names = _by_id(newest), {column.name: column.id for column in newest.stored}
    for column in written.stored:
        same = now.get(column.id)
        if same is None:
            if column.name in names:
                return True
        elif same.name != column.name or same.changed_since(written.version):
            return True
    before = {index.name for index in written.indices}
    return any(index.name in before and not index.is_of(written.version) for index in newest.indices)


def _by_id(schema: TableSchema) -> Mapping[int, Column]:
    return {column.id: column for column in schema.columns}


def _frame(schema: TableSchema) -> tuple[object, ...]:
    plain = without_version(schema)
    keys = (plain.partition_by, plain.order_by, plain.order_desc, plain.primary_key, plain.sample_by)
    return (*keys, plain.engine, plain.engine_args)
