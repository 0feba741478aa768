"""Volatile parts in merging: which merges may stay on a node's disk at first, and which of them to upload. Pure.

A merge of small parts into a somewhat larger one is soon merged again. A node therefore commits only the intention (a
**volatile part**), builds the bytes on its own disk, merges them again there, and uploads a result once it is large,
or has rested, or the parts that it covers are many. Until then the sources stay in the store, so that a lost disk
loses work but no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.rules.modes import ENGINES
from mergelake.format.serializations.names import stream_file_name
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.jobs.merge.select import Candidate
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State, VolatilePart
from mergelake.log.model.volatile import inside, lacking, leaves, outermost, pending

_HASHED = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class LocalPart:
    """A volatile part whose bytes lie on this node's disk."""

    id: str
    """Id of the volatile part."""
    info: PartInfo
    manifest: PartManifest
    """Manifest of the bytes; its id is their directory."""


@dataclass(frozen=True, slots=True)
class OnDisk(ActivePart):
    """A volatile part as an element of a merge: as if it were active, with the size of its bytes on the disk."""


def volatile_allowed(schema: TableSchema) -> bool:
    """Whether regular merges of this table may be volatile: whether their result does not depend on their time.

    It would with an engine that rolls rows up by their age, as GraphiteMergeTree does; none of `ENGINES` is. In a table
    with a TTL nothing expires in such a merge: removed rows would return after the disk was lost. The result may depend
    on which parts are merged first, as in a CollapsingMergeTree with signs in an odd order: readers see only what is
    published.
    """
    return schema.engine in ENGINES


def fits_disk(limit: int, sizes: Sequence[int]) -> bool:
    """Whether a merge of sources of these sizes stays on a node's disk at first (`max_bytes_to_merge_volatile`).

    It does not if it is too large, or if a source is so large that it was uploaded: the result would be uploaded at
    once.
    """
    return sum(sizes) <= limit and max(sizes) * 2 < limit


def settled(part: Candidate, limit: int) -> bool:
    """Whether a part stays out of merges on a disk: one that a merge has written to the store, or a large one.

    A part of several blocks is the result of a merge. If a merge on a disk took it, it would be uploaded once more.
    """
    merged = part.info.min_block < part.info.max_block and not isinstance(part, OnDisk)
    return merged or not fits_disk(limit, [part.manifest.bytes_on_disk])


def build_task(directory: str, state: State, part: VolatilePart, local: Mapping[str, LocalPart]) -> MergeTask:
    """The merge that builds the bytes of a Live volatile part, from parts on this node's disk as far as possible.

    Its result is `local` if it belongs on a disk. If the bytes of a volatile source are not here, the active parts
    beneath it replace it: any grouping of merges is as good. It has no time, so nothing expires.
    """
    partition = part.info.partition_id
    within = [v for v in state.volatile.get(partition, ()) if v.id != part.id and inside(v.info, part.info)]
    parts = leaves(state.partitions.get(partition, ()), part.info)
    schema = state.schemas[part.recipe.schema_version]
    tiles = _tiles(parts, outermost(v for v in within if v.id in local), local)
    last = part.info.mutation  # those up to this one were known when it became Live
    sources = tuple(
        replace(tile, lacks=tuple(m for m in lacking(state.mutations, tile.info) if m.version <= last))
        for tile in tiles
    )
    limit = TableSettings(schema.settings).integer("max_bytes_to_merge_volatile")
    stays = fits_disk(limit, [source.manifest.bytes_on_disk for source in sources])
    return MergeTask(directory, schema, sources, part.info, part.recipe.kind, state.version, stays)


def _tiles(
    parts: Sequence[ActivePart], ready: Sequence[VolatilePart], local: Mapping[str, LocalPart]
) -> Iterator[MergeSource]:
    """The sources in block order: local volatile parts, and the active parts beside them."""
    kept = {local_part.info: local_part.manifest for local_part in local.values()}
    waiting = [*ready]
    for part in parts:
        if waiting and part.info.min_block > waiting[0].info.max_block:
            waiting.pop(0)
        if waiting and inside(part.info, waiting[0].info):
            if part.info.min_block == waiting[0].info.min_block:
                yield MergeSource(waiting[0].info, local[waiting[0].id].manifest, local=True)
            continue
        cached = kept.get(part.info)
        if cached is not None and same_content(cached, part.manifest):  # not so if a mutation was killed meanwhile
            yield MergeSource(part.info, cached, local=True)
        else:
            yield MergeSource(part.info, part.manifest)


def same_content(one: PartManifest, other: PartManifest) -> bool:
    """Whether two results of one merge hold the same rows, as far as their manifests tell.

    The uncompressed bytes of the columns are compared; if the granules differ, only the number of rows. Not those of
    LowCardinality columns: a part that was copied from others (`jobs.merge.concatenate`) has several dictionaries, as
    many as the parts that were merged first.
    """
    if one.rows != other.rows:
        return False
    comparable = (one.columns, one.part_type, one.marks) == (other.columns, other.part_type, other.marks)
    return not comparable or _plain_hashes(one) == _plain_hashes(other)


def _plain_hashes(part: PartManifest) -> dict[str, str]:
    """Hash of each data file, without those of LowCardinality columns, and without names that do not tell whose.

    Not those of projections: rows of equal keys may stand in another order there.
    """
    files = {
        file.name[:-4]: file
        for file in part.file_table().values()
        if file.name.endswith(".bin") and ".proj/" not in file.name
    }
    return {
        stream: file.uncompressed_hash
        for stream, file in files.items()
        # Dots in names of columns are escaped; a name that was too long is a hash.
        if not (stream.endswith(".dict") or stream_file_name(f"{stream}.dict") in files or _HASHED.fullmatch(stream))
    }


def choose_uploads(
    state: State,
    settings: TableSettings,
    ready: Mapping[str, LocalPart],
    due: Collection[str] = (),
    *,
    everything: bool = False,
) -> list[VolatilePart]:
    """Which of the `ready` top-level volatile parts to upload now.

    These are the ones that are `due` (ids, by `jobs.merge.budget`), those that have grown to half of
    `max_bytes_to_merge_volatile`, that a mutation waits for, or that merge what is in the store already; without a
    `write_amplification_target`, and with `everything`, all of them.
    """
    limit = settings.integer("max_bytes_to_merge_volatile")
    everything |= settings.number("write_amplification_target") == 0
    chosen: list[VolatilePart] = []
    for partition, live in state.volatile.items():
        parts = state.partitions.get(partition, ())
        chosen += (
            part
            for part in outermost(live)
            if part.id in ready
            and (
                everything
                or part.id in due
                or ready[part.id].manifest.bytes_on_disk * 2 >= limit
                or any(settled(leaf, limit) or pending(state.mutations, leaf.info) for leaf in leaves(parts, part.info))
            )
        )
    return chosen
