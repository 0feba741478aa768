"""What happened to the parts of a table, from its log: the rows of `system.part_log`. Pure.

An operation carries no block numbers, so it does not know the names of its parts. The state does: a part that was added
or retired after the oldest version that is kept is active, retired or detached now, with those versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mergelake.api.python.cost import CHUNK_BYTES, put_requests, written_objects
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.types.types import DataType
from mergelake.format.files.partition_text import partition_text
from mergelake.log.model.operations import AddParts, Entry, LogOp, MarkMutated, Publish
from mergelake.log.model.parts import RetiredPart
from mergelake.log.model.state import State

NEW, MERGED, MUTATED, REMOVED = "NewPart", "MergeParts", "MutatePart", "RemovePart"


class _Names:
    """Names of parts by the version at which they were added or retired, and their id."""

    def __init__(self, state: State) -> None:
        retired = list(state.retired)
        self.added: dict[tuple[int, str], PartInfo] = {(part.added, part.id): part.info for part in retired}
        self.added |= {(part.added, part.manifest.id): part.info for part in state.parts()}
        self._detached = {part.manifest.id: part.info for part in state.detached}
        self._detached |= {part.id: part.info for part in retired if part.noted > part.retired}
        set_aside = [
            RetiredPart(
                part.manifest.id, part.info, part.manifest.rows, part.manifest.bytes_on_disk, 0, part.detached,
                part.detached_ms,
            )
            for part in state.detached
        ]  # fmt: skip
        self.retired: dict[int, dict[str, RetiredPart]] = {}
        for part in retired + set_aside:
            self.retired.setdefault(part.retired, {})[part.id] = part

    def of(self, version: int, part_id: str) -> PartInfo | None:
        """The name of a part that came at this version; None if it never did, or is forgotten."""
        return self.added.get((version, part_id)) or self._detached.get(part_id)


def part_events(
    state: State, entries: Iterable[Entry], key_types: Sequence[DataType] = (), chunk: int = CHUNK_BYTES
) -> Iterator[dict[str, Any]]:
    """One row for each part that an entry added, merged, rewrote or removed, in the order of the log.

    `put_requests` write the objects of a part, in pieces of `chunk` bytes; one that parts share is told with the first.
    `entries` follow the oldest version that is kept; `state` is the newest one. Columns that are not known are
    missing: the type and the bytes of a removed part beyond its size, and how long anything took.
    """
    names = _Names(state)
    partitions = {part.info.partition_id: part.manifest.partition for part in state.parts()}
    for entry in entries:
        gone = names.retired.get(entry.version, {})
        rows = [row for op in entry.effective for row in _made(op, entry.version, names, gone, partitions, chunk)]
        rows += [
            {"event_type": REMOVED, "info": part.info, "rows": part.rows, "size_in_bytes": part.bytes_on_disk}
            for part in gone.values()
        ]
        for row in rows:
            info: PartInfo = row.pop("info")
            partition = partitions.get(info.partition_id)
            yield {
                "merge_reason": "RegularMerge" if row["event_type"] == MERGED else "NotAMerge",
                "part_name": str(info),
                "partition_id": info.partition_id,
                "partition": info.partition_id
                if partition is None
                else partition_text(bytes.fromhex(partition), key_types),
                "event_time_ms": entry.timestamp_ms,
                "version": entry.version,
                "author": entry.authors,
                **row,
            }


def _made(
    op: LogOp, version: int, names: _Names, gone: dict[str, RetiredPart], partitions: dict[str, str], chunk: int
) -> Iterator[dict[str, Any]]:
    """The events of the parts that an operation brought. Partitions that it tells of are added to `partitions`."""
    if isinstance(op, AddParts):
        for manifest, objects in written_objects(op):
            info = names.of(version, manifest.id)
            if info is not None:  # else the insert was a repetition, and added nothing
                partitions.setdefault(info.partition_id, manifest.partition)
                yield {
                    "event_type": NEW,
                    "info": info,
                    "kind": "attach" if op.detached else "insert",
                    **_of(manifest, put_requests(op, objects, chunk)),
                }
    elif isinstance(op, Publish):
        info = names.of(version, op.part.id)
        if info is not None:
            partitions.setdefault(info.partition_id, op.part.partition)
            sources = sorted((gone[id] for id in op.replaced if id in gone), key=lambda part: part.info.min_block)
            yield {
                "event_type": MUTATED if op.kind == "mutation" else MERGED,
                "info": info,
                "kind": op.kind,
                "merged_from": [str(part.info) for part in sources],
                "read_rows": sum(part.rows for part in sources),
                "mutation_ids": [f"mutation_{number}.txt" for number in op.mutations],
                **_of(op.part, put_requests(op, next(written_objects(op))[1], chunk)),
            }
    elif isinstance(op, MarkMutated):
        for part_id in op.ids:
            info, before = names.of(version, part_id), gone.pop(part_id, None)
            if info is not None and before is not None:
                yield {
                    "event_type": MUTATED,
                    "info": info,
                    "kind": "unchanged",
                    "merged_from": [str(before.info)],
                    "rows": 0,  # as in ClickHouse: none is written
                    "mutation_ids": [f"mutation_{number}.txt" for number in op.mutations],
                }


def _of(manifest: PartManifest, puts: int) -> dict[str, Any]:
    return {
        "put_requests": puts,
        "part_id": manifest.id,
        "part_type": manifest.part_type,
        "part_storage_type": "Packed" if manifest.storage == "packed" else "Full",
        "rows": manifest.rows,
        "size_in_bytes": manifest.bytes_on_disk,
        "bytes_uncompressed": manifest.bytes_uncompressed,
    }
