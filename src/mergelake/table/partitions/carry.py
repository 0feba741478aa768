"""Parts of one table in another, by reference: new ids over the old objects, with the mutations that they lack. Pure,
but for the ids.

The rows are those that a reader of the first table sees. A mutation that some of the parts lack comes along, for their
rows alone (`Mutation.only`). Parts name columns by ids, so those of the other table, of columns with the same names,
take their place; where parts have other columns than these (from before an ALTER), the schema that they were written
with becomes an older one of the other table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mergelake.core.base.errors import error
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import with_keys
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.engines.projections.projections import table_projections
from mergelake.engines.ttl.ttl import has_ttl, table_ttl
from mergelake.log.model.operations import AddParts, AlterMetadata, TableOp
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retention import refers
from mergelake.log.model.state import State
from mergelake.log.model.volatile import lacking
from mergelake.parts.read.evolve import can_evolve
from mergelake.table.definition.fit import check_projections_fit, definition
from mergelake.table.definition.needs import means_the_same, same_default
from mergelake.table.partitions.clone import with_lacks


@dataclass(frozen=True, slots=True)
class Carried:
    """Parts on their way into another table."""

    ops: tuple[TableOp, ...]
    """For that table."""
    holds: dict[str, tuple[str, ...]]
    """Directory of another table -> its directories that the parts refer to: it has to hold them."""


def carried(
    state: State, parts: Sequence[ActivePart], source: str, target: str, there: State, ids: IdSource, base_version: int
) -> Carried:
    """Parts of a state of the table in directory `source`, in block order, for the table in `target` in state `there`.

    The schemas fit (`fit.check_fit`). `base_version` is that of the new parts. INCOMPATIBLE_COLUMNS if they lack a
    column that the other table fills in another way, NOT_IMPLEMENTED if it would convert one in another way.
    """
    _check_lacking(state.schema, there.schema, parts)
    check_projections_fit(state.schema, there.schema, parts)
    alike = _computed(state.schema) == _computed(there.schema)
    for mutation in {m.version: m for part in parts for m in lacking(state.mutations, part.info)}.values():
        if not (alike or means_the_same(mutation, state.schema, there.schema)):
            message = f"{mutation.name} is not finished, and changes other columns in the other table"
            raise error("INCOMPATIBLE_COLUMNS", message, "Table.apply_mutations() finishes it")
    ops, older = _older_schemas(state, parts, there)
    _check_conversions(state, parts)
    times, digests = _times(state.schema, there.schema), _digests(state.schema, there.schema)
    moved = [
        (
            replace(
                with_keys(part.manifest, _keys(part.manifest.object_keys(), source, target)),
                id=ids.new_id(),
                base_version=base_version,
                level=part.info.level,
                columns=tuple(older[part.manifest.schema_version].ids.get(id, id) for id in part.manifest.columns),
                schema_version=older[part.manifest.schema_version].version,
                ttl={times[name]: held for name, held in part.manifest.ttl.items() if name in times},
                projections={
                    name: facts._replace(digest=digests.get((name, facts.digest), ""))
                    for name, facts in part.manifest.projections.items()
                },
            ),
            [replace(m, schema_version=older[m.schema_version].version) for m in lacking(state.mutations, part.info)],
        )
        for part in parts
    ]
    holds: dict[str, set[str]] = {}
    for op in with_lacks(moved, ids):
        outside = sorted({name for part in op.parts for name in refers(part)}) if isinstance(op, AddParts) else []
        held = tuple(name for name in outside if name.startswith("/"))
        for name in held:
            _, owner, inner = name.split("/", 2)
            holds.setdefault(owner, set()).add(inner)
        ops.append(replace(op, held=held) if isinstance(op, AddParts) else op)
    return Carried(tuple(ops), {owner: tuple(sorted(inner)) for owner, inner in sorted(holds.items())})


def held_for(state: State, holder: str, directories: Iterable[str]) -> tuple[str, ...]:
    """What a table holds for another one, with further directories."""
    return tuple(sorted({*state.holds.get(holder, ()), *directories}))


def _computed(schema: TableSchema) -> dict[str, tuple[str, str]]:
    """The columns whose expressions stand for them in commands of mutations."""
    return {c.name: (c.default_kind, c.default) for c in schema.columns if c.default_kind in ("ALIAS", "MATERIALIZED")}


def _times(source: TableSchema, target: TableSchema) -> dict[str, str]:
    """What the times of an element of the TTL are called in the source -> and of the same element in the target.

    The names have the ids of columns in them (`engines.ttl.ttl`).
    """
    if not (has_ttl(source) and has_ttl(target)):
        return {}
    there = {element.element: element.key for element in table_ttl(target).elements}
    return {e.key: there[e.element] for e in table_ttl(source).elements if e.element in there}


def _digests(source: TableSchema, target: TableSchema) -> dict[tuple[str, str], str]:
    """Name and digest of a projection in the source -> digest in the target, which has the ids of its columns in it."""
    if not source.projections:
        return {}
    there = {projection.name: projection.digest for projection in table_projections(target)}
    return {(each.name, each.digest): there.get(each.name, "") for each in table_projections(source)}


def _check_lacking(source: TableSchema, target: TableSchema, parts: Sequence[ActivePart]) -> None:
    held = [set(part.manifest.columns) for part in parts]
    for column in source.stored:
        there = target.column(column.name)
        same = same_default(column, source, there, target)
        if not same and any(column.id not in each for each in held):
            message = f"Some parts lack column {column.name}, whose default is another one in the other table"
            raise error("INCOMPATIBLE_COLUMNS", message, f"ALTER TABLE … MATERIALIZE COLUMN {column.name} writes it")


def _check_conversions(state: State, parts: Sequence[ActivePart]) -> None:
    """NOT_IMPLEMENTED for a part whose values are converted on reading in several steps, with a loss.

    The target converts them in one step, and the result could be another one.
    """
    for part in parts:
        version = part.manifest.schema_version
        written = {column.id: column.type for column in state.schemas[version].stored}
        for column in state.schema.stored:
            changes = column.changed_since(version)
            if not changes or column.id not in part.manifest.columns:
                continue
            types = [written[column.id], *(change.type for change in changes)]
            one_step = len(changes) == 1 and not changes[0].null
            if not one_step and not all(map(can_evolve, types, types[1:])):
                message = f"Part {part.name} has column {column.name} in the type {types[0]} of before"
                raise error("NOT_IMPLEMENTED", message, "OPTIMIZE TABLE … FINAL writes it in the newest one")


@dataclass(frozen=True, slots=True)
class _Older:
    """A schema that parts were written with, as one of the other table."""

    version: int
    ids: dict[int, int]
    """Id of each of its columns -> there. (The mask of deleted rows is in no schema, and has the same everywhere.)"""


def _older_schemas(state: State, parts: Sequence[ActivePart], there: State) -> tuple[list[TableOp], dict[int, _Older]]:
    """The schemas to add to the target, and what takes the place there of each one that the parts, or mutations that
    they lack, were written with.

    Columns with a name of today have the id of the target's. Others are not read there: they have those of a schema of
    the target that is the same apart from them, or else new ones.
    """
    now = {column.id: there.schema.column(column.name).id for column in state.schema.stored}
    forms = {at: _as_written(schema, now.values()) for at, schema in sorted(there.schemas.items(), reverse=True)}
    current, following = there.schema, there.schema.next_column_id
    found: dict[int, _Older] = {}
    added: list[TableSchema] = []
    used = {part.manifest.schema_version for part in parts}
    used |= {m.schema_version for part in parts for m in lacking(state.mutations, part.info)}
    for version in sorted(used):
        old = state.schemas[version]
        gone = [column for column in old.columns if column.id not in now]
        ids = {column.id: now.get(column.id, -1) for column in old.columns}
        moved = replace(old, columns=tuple(replace(column, id=ids[column.id], changes=()) for column in old.columns))
        form = _as_written(moved, now.values())
        known = next((at for at in forms if forms[at] == form and _reads_alike(state.schema, version, current, at)), 0)
        if known:
            names = {column.name: column.id for column in there.schemas[known].columns}
            ids |= {column.id: names.get(column.name, -1) for column in gone}
            found[version] = _Older(known, ids)
            continue
        ids |= {column.id: following + at for at, column in enumerate(gone)}
        following += len(gone)
        columns = tuple(replace(column, id=ids[column.id], changes=()) for column in old.columns)
        added.append(_as_of(current, replace(old, columns=columns)))
        found[version] = _Older(current.version + len(added), ids)
    if not added:
        return [], found
    newest = current.version + len(added) + 1
    # What older files of the name of an index hold is not known here: parts that were there before lose it, too.
    trusted = set.intersection(*(set(map(definition, schema.indices)) for schema in added))
    indices = tuple(i if definition(i) in trusted else replace(i, since=newest) for i in current.indices)
    schemas = [*added, replace(current, indices=indices)]
    return [
        AlterMetadata(replace(schema, version=at, next_column_id=following))
        for at, schema in enumerate(schemas, current.version + 1)
    ], found


def _as_of(table: TableSchema, old: TableSchema) -> TableSchema:
    """An older schema of another table as one of this table: what a part depends on stays, the rest is the table's own.

    (The settings of a table's newest schema act at once: what it remembers of inserts is cut to their number.)
    """
    return replace(
        old,
        indices=tuple(replace(index, since=0) for index in old.indices),
        engine=table.engine,
        engine_args=table.engine_args,
        sample_by=table.sample_by,
        settings=table.settings,
    )


def _as_written(schema: TableSchema, ids: Collection[int]) -> tuple[object, ...]:
    """What files of a part depend on that was written with a schema; of columns `ids` what they are called."""
    held = {(column.id if column.id in ids else -1, column.name, column.type) for column in schema.stored}
    return held, set(map(definition, schema.indices)), schema.order_by, schema.primary_key


def _reads_alike(source: TableSchema, version: int, target: TableSchema, at: int) -> bool:
    """Whether the target converts what was written with its schema `at` as the source does for its schema `version`, or
    not on the way to its newest type.
    """

    def steps(column: Column, since: int) -> list[tuple[t.DataType, str]]:
        return [(change.type, change.null) for change in column.changed_since(since)]

    pairs = ((steps(column, version), steps(target.column(column.name), at)) for column in source.stored)
    return all(there in ([], here) for here, there in pairs)


def _keys(keys: Iterable[str], source: str, target: str) -> dict[str, str]:
    """Keys of objects as the source has them -> as the target does."""
    own = f"/{target}/"
    absolute = {key: key if key.startswith("/") else f"/{source}/{key}" for key in keys}
    return {old: new.removeprefix(own) for old, new in absolute.items()}
