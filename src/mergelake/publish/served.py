"""By which definitions servers may have attached a published table, and whether they would still read it rightly.

A server reads the columns of parts by name, by the definition with which it attached the table. So a version of the
schema is *served* once a statement with it was printed or names of parts were put under it (`_served/<version>`, an
empty object; without any, version 1 is if the table has names). Names are put only while every served version reads
the same as the newest one: columns may be added and dropped, but no name may get another meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from mergelake.core.schema import Column, TableSchema
from mergelake.log.state import State
from mergelake.order.collapsing import without_version
from mergelake.table.handle import TableHandle

_FIRST = 1
"""The version that is served without an object for it."""


def admit(handle: TableHandle, state: State, *, named: bool | None = None) -> str | None:
    """Make the schema of a state a served one. If a served one reads it wrongly, nothing changes: why it does.

    `named`: whether names of parts are visible; None: not known yet. Costs one LIST, and one PUT for a new version;
    nothing for a table that was never altered.
    """
    newest = state.schema_version
    if newest == _FIRST:
        return None
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
            return reason
    for version in sorted((versions | {newest}) - listed):
        handle.store.put(f"{prefix}{version}", b"")
    return None


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
