"""ADD and DROP INDEX. Pure: parts that are there do not get an index, or lose its files, by it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from mergelake.core.base.errors import error, there_are
from mergelake.core.model.schema import SkipIndex, TableSchema


@dataclass(frozen=True, slots=True)
class AddIndex:
    """ADD INDEX i x TYPE … [FIRST | AFTER j]: new parts, and those that are merged, have it."""

    index: SkipIndex
    after: str | None = None
    """Another index; empty: before all others. None: last."""
    if_not_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises ILLEGAL_COLUMN if there is one of that name, BAD_ARGUMENTS for an unknown `after`."""
        names = [index.name for index in schema.indices]
        if self.index.name in names:
            if self.if_not_exists:
                return schema
            message = f"Cannot add index {self.index.name}: index with this name already exists"
            raise error("ILLEGAL_COLUMN", message, "DROP INDEX first, in the same statement")
        if self.after and self.after not in names:
            message = f"Wrong index name. Cannot find index `{self.after}` to insert after"
            raise error("BAD_ARGUMENTS", message, there_are("indexes", names))
        at = len(names) if self.after is None else names.index(self.after) + 1 if self.after else 0
        new = replace(self.index, since=schema.version + 1)
        return replace(schema, indices=(*schema.indices[:at], new, *schema.indices[at:]))


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX i: parts keep its files until they are merged, and nothing reads them."""

    name: str
    if_exists: bool = False

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises BAD_ARGUMENTS if there is none of that name."""
        kept = tuple(index for index in schema.indices if index.name != self.name)
        if len(kept) == len(schema.indices) and not self.if_exists:
            message = f"Wrong index name. Cannot find index `{self.name}` to drop"
            raise error("BAD_ARGUMENTS", message, there_are("indexes", [index.name for index in kept]))
        return replace(schema, indices=kept)


def brought_back(
    indices: tuple[SkipIndex, ...], schemas: Collection[TableSchema], version: int
) -> tuple[SkipIndex, ...]:
    """The indexes of an older schema as those of the new schema `version`, after all of `schemas`.

    Where another index had the name of one, parts with its files may come back: then no older part has it.
    """
    every = [(index.name, index.since) for schema in schemas for index in schema.indices]
    return tuple(
        replace(index, since=version)
        if any(name == index.name and since != index.since for name, since in every)
        else index
        for index in indices
    )
