"""A new table that refers to the objects of another: no byte is copied, and both go their own way from there.

1. **Hold.** Every table whose objects the clone will refer to (the source, and where that is a clone itself, those that
   own what it refers to) notes in its own log that the clone needs these directories. A hold is refused if one of
   them is no longer kept there: it may be deleted at any moment.
2. **Begin.** The first entry of the clone brings schema and parts: new ids over the old extents.
3. **Look again.** A collector gives a holder that does not begin a grace period. Whoever slept through that finds the
   holds gone, and gives up before the table gets its name.

The holds go when the clone refers to nothing there any more (`collect_holds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from mergelake.core.errors import ConflictError, error
from mergelake.core.ids import IdSource
from mergelake.core.manifest import Extent, FileTable, PartFile, PartManifest, encode_files
from mergelake.core.schema import TableSchema
from mergelake.log.operations import AddParts, AddReference, AlterMetadata, TableOp
from mergelake.log.retention import refers
from mergelake.log.state import State
from mergelake.log.volatile import unfinished
from mergelake.table.handle import OpenTable, TableHandle


@dataclass(frozen=True, slots=True)
class ClonePlan:
    """What a clone begins with."""

    schema: TableSchema
    """The first one; the later ones follow in `more`."""
    more: tuple[TableOp, ...]
    holds: dict[str, tuple[str, ...]]
    """Directory of an owner -> its directories that the clone refers to."""


def plan_clone(state: State, directory: str, ids: IdSource) -> ClonePlan:
    """The clone of a state of the table in `directory`. Pure but for the ids of its parts.

    Raises UNFINISHED where parts lack a mutation: their rows are not what they will be.
    """
    refuse_unfinished(state, "cloned")
    schemas = [state.schemas[version] for version in sorted(state.schemas) if version <= state.schema_version]
    parts = renewed(state, ids, base_version=0, table=directory)
    holds: dict[str, list[str]] = {}
    for name in sorted({name for part in parts for name in refers(part)}):
        _, owner, inner = name.split("/", 2)
        holds.setdefault(owner, []).append(inner)
    more: list[TableOp] = [AlterMetadata(schema) for schema in schemas[1:]]
    if parts:
        more.append(AddParts(parts))
    return ClonePlan(schemas[0], tuple(more), {owner: tuple(inner) for owner, inner in holds.items()})


def renewed(state: State, ids: IdSource, base_version: int, table: str = "") -> tuple[PartManifest, ...]:
    """The parts of a state under new ids, their files where they are: seen from another table if `table` owns them."""
    return tuple(
        replace(
            part.manifest,
            id=ids.new_id(),
            base_version=base_version,
            level=part.info.level,
            files=_seen_from_outside(part.manifest, table) if table else part.manifest.files,
        )
        for part in state.parts()
    )


def _seen_from_outside(manifest: PartManifest, table: str) -> FileTable:
    def absolute(extent: Extent) -> Extent:
        return extent if extent.key.startswith("/") else structs.replace(extent, key=f"/{table}/{extent.key}")

    def moved(file: PartFile) -> PartFile:
        return structs.replace(file, extents=tuple(map(absolute, file.extents)))

    return encode_files(map(moved, manifest.file_table().values()))


def refuse_unfinished(state: State, what: str) -> None:
    """Raise UNFINISHED if parts of a state lack a mutation."""
    late = unfinished(state)
    if late:
        names = ", ".join(m.id for m in late[:3])
        message = f"A version with unfinished mutations ({names}) cannot be {what}"
        raise error("UNFINISHED", message, "Take a version from before or after them")


def take_holds(holder: str, plan: ClonePlan, open_table: OpenTable) -> list[TableHandle]:
    """Hold what the plan refers to, for the table that will be `holder`; the owners. ConflictError if some is gone."""
    owners = []
    for owner, directories in plan.holds.items():
        handle = open_table(owner)
        hold = AddReference(holder, directories)
        handle.log.commit(lambda _, hold=hold: (hold,))  # type: ignore[misc]
        owners.append(handle)
    return owners


def check_holds(holder: str, owners: Sequence[TableHandle]) -> None:
    """Raise ConflictError unless all holds still stand, now that the holder has begun."""
    for owner in owners:
        if holder not in owner.refresh().holds:
            raise ConflictError(
                f"Table {owner.directory} did not wait for its clone any longer",
                name="ABORTED",
                hint="Clone it again; if that takes longer than gc_grace_seconds, raise that setting",
            )
