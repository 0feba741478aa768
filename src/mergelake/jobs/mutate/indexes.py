"""What the index commands of a task change in the files of its part. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.format.indexes.skip_files import PACKED, index_stems
from mergelake.jobs.merge.plan import MergeTask
from mergelake.table.pending.commands import IndexCommand, parse_commands


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """What a part that is mutated does with its indexes."""

    kept: frozenset[str]
    """Names of the table's indexes that the part has afterwards."""
    built: frozenset[str]
    """Those that it has not now."""
    cleared: frozenset[str]
    """Those that it has now, and not afterwards."""

    @staticmethod
    def of(task: MergeTask) -> IndexChanges:
        """Of the task's only source; of several commands about one index the last one counts."""
        (source,) = task.sources
        last: dict[str, bool] = {}
        for mutation in source.lacks:
            for command in parse_commands(mutation.commands):
                of_part = command.partition_id in (None, source.info.partition_id)
                if isinstance(command, IndexCommand) and of_part:
                    last[command.name] = command.clears
        held = held_indexes(source.manifest, task.schema)
        known = {index.name for index in task.schema.indices}
        built = frozenset(name for name, clears in last.items() if not clears and name in known - held)
        cleared = frozenset(name for name, clears in last.items() if clears and name in held)
        return IndexChanges((held | built) - cleared, built, cleared)

    @property
    def any(self) -> bool:
        """Whether files are written or left out for a command."""
        return bool(self.built or self.cleared)

    def schema_of(self, schema: TableSchema) -> TableSchema:
        """The schema for a part that is written anew."""
        return replace(schema, indices=tuple(index for index in schema.indices if index.name in self.kept))


def held_indexes(part: PartManifest, schema: TableSchema) -> frozenset[str]:
    """Names of the table's indexes that a part has; all that it may have, if only a read could tell."""
    files = part.file_table()
    own = [index.name for index in schema.indices if index.is_of(part.schema_version)]
    if PACKED in files:
        return frozenset(own)
    starts = {name: tuple(f"{stem}." for stem in index_stems(name)) for name in own}
    return frozenset(name for name in own if any(file.startswith(starts[name]) for file in files))
