"""Merges of small parts in many partitions, executed together.

A merge of its own costs some hundred calls for each source and column, however few rows there are. Here the sources of
all merges are read as one part (`parts.read.joined`), sorted by (merge, sorting key), and the results are encoded
together, as the parts of an insert into many partitions are (`table.write.pieces`). The sort is stable, so equal keys
stay in the order of their parts, as in any merge. Each result has an object of its own, as only inserts may commit
objects that several parts share (`log.model.conflict`).

What cannot be done so is left to `jobs.merge.execute`: see `is_simple`, and `WholePart.structure` for what is known
once the sources are read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mergelake.core.base.cancel import check
from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, NotFoundError, UnsupportedError
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.order.keys import table_keys
from mergelake.engines.projections.projections import table_projections
from mergelake.engines.rules.modes import collapse_block, working_mode
from mergelake.engines.ttl.ttl import has_ttl
from mergelake.format.files.partition import Partition
from mergelake.jobs.merge.plan import MergeTask
from mergelake.parts.read.default_codec import CODEC_FILE, default_codec
from mergelake.parts.read.joined import JoinedReader, WholePart, fetch_whole_parts, is_joinable
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.objects import PartObjects
from mergelake.store.interface.protocol import Store
from mergelake.table.write.insert import insert_target
from mergelake.table.write.pieces import Piece, in_order, write_pieces

TASKS_MAX = 256
"""Merges that are executed together: as many as share an entry of the log (`log.commit.group`)."""
ROWS_MAX = 1 << 18
"""Maximum rows of merges that are executed together."""
BYTES_MAX = 32 << 20
"""Maximum bytes of their sources before compression."""


def is_simple(task: MergeTask) -> bool:
    """Whether a merge may be executed together with others: small sources with all columns and with nothing to apply,
    of an engine that judges a key by its rows alone.

    Not so are the Collapsing engines and ReplacingMergeTree with is_deleted, nor aggregate states that need ClickHouse.
    """
    schema, settings = task.schema, TableSettings(task.schema.settings)
    columns = tuple(column.id for column in schema.stored)
    size = task.plain_bytes
    return (
        judges_rows_alone(schema)
        and (schema.engine == "MergeTree" or not schema.projections)
        and not has_ttl(schema)
        and not task.local
        and task.deduplicate is None
        and not task.cleanup
        and task.rows <= min(settings.integer("index_granularity"), ROWS_MAX)
        and size <= BYTES_MAX
        # The size that decides about codec and storage is counted a little differently for new rows.
        and default_codec(settings, 2 * size) == default_codec(settings)
        and 2 * size < settings.integer("min_bytes_for_full_part_storage")
        and all(
            is_joinable(source.manifest)
            and source.manifest.columns == columns
            and source.manifest.schema_version == schema.version
            and not source.lacks
            and not source.local
            for source in task.sources
        )
    )


def judges_rows_alone(schema: TableSchema) -> bool:
    """Whether the rows of a key alone decide what merges make of them and of projections, without ClickHouse."""
    try:
        mode = working_mode(schema, None)
    except UnsupportedError:
        return False
    if any(projection.foreign for projection in table_projections(schema)):
        return False
    return mode is None or not (mode.splits or mode.tombstone or mode.sign)


def groups(tasks: Sequence[MergeTask]) -> Iterator[list[MergeTask]]:
    """The tasks in order, in groups whose sources fit into memory together."""
    group: list[MergeTask] = []
    rows = size = 0
    for task in tasks:
        full = rows + task.rows > ROWS_MAX or size + task.plain_bytes > BYTES_MAX
        if group and (full or len(group) == TASKS_MAX):
            yield group
            group, rows, size = [], 0, 0
        group.append(task)
        rows, size = rows + task.rows, size + task.plain_bytes
    if group:
        yield group


def execute_together(
    store: Store, tasks: Sequence[MergeTask], ids: IdSource, clock: Clock
) -> list[PartManifest | None]:
    """Write the results of simple tasks of one table; nothing is committed.

    None for tasks that turn out not to be simple, or to have a damaged source. A failure deletes the written objects.
    Raises `UnavailableError`, QUERY_WAS_CANCELLED.
    """
    done: list[PartManifest | None] = [None] * len(tasks)
    if not tasks:
        return done
    schema, directory = tasks[0].schema, tasks[0].directory
    columns = {column.name: column for column in schema.stored}
    written = {name: column.type for name, column in columns.items()}
    sources = [source.manifest for task in tasks for source in task.sources]
    readers = [PartReader(store, directory, manifest, columns, written=written) for manifest in sources]
    try:
        fetched = iter(fetch_whole_parts(readers))
    except (CorruptDataError, NotFoundError):
        return done
    alike: dict[Hashable, dict[int, list[WholePart]]] = {}
    codec = f"CODEC({default_codec(TableSettings(schema.settings))})".encode()
    for at, task in enumerate(tasks):
        parts = [next(fetched) for _ in task.sources]
        whole = [part for part in parts if part is not None and part.files.get(CODEC_FILE) == codec]
        structures = {part.structure for part in whole}
        if len(whole) == len(parts) and len(structures) == 1 and None not in structures:
            alike.setdefault(structures.pop(), {})[at] = whole
    for members in alike.values():
        check()
        try:
            batches = list(JoinedReader([part for parts in members.values() for part in parts]).read(list(columns)))
        except CorruptDataError:
            continue
        rows = pa.Table.from_batches(batches)
        for at, manifest in _written(store, {at: tasks[at] for at in members}, rows, ids, clock):
            done[at] = manifest
    return done


def _written(
    store: Store, tasks: Mapping[int, MergeTask], rows: pa.Table, ids: IdSource, clock: Clock
) -> list[tuple[int, PartManifest]]:
    """The parts of the tasks, whose rows follow each other; none for one all of whose rows are removed."""
    first = next(iter(tasks.values()))
    schema = first.schema
    keys, target = table_keys(schema), insert_target(store, first.directory, schema, ids, clock)
    mode = working_mode(schema, None)
    counts = [task.rows for task in tasks.values()]
    ordered = in_order(rows, keys, np.repeat(np.arange(len(tasks), dtype=np.int64), counts))
    ends = np.cumsum(counts).tolist()
    pieces: dict[int, Piece] = {}
    for (at, task), count, end in zip(tasks.items(), counts, ends, strict=True):
        source = task.sources[0].manifest
        partition = Partition(source.partition_id, bytes.fromhex(source.partition))
        block = pa.table(collapse_block(ordered.slice(end - count, count), schema, keys, mode))
        if block.num_rows:
            # Ids are drawn before threads upload: the call waits for its turn with them.
            pieces[at] = Piece(block, partition, task.result.level, ids.new_id(), task.base_version)
    objects = PartObjects(store, target.directory, ids, share_max=0, object_max=0)
    try:
        made = list(write_pieces(replace(target, objects=objects), keys, list(pieces.values())))
        return list(zip(pieces, objects.finish(made), strict=True))
    except BaseException:
        objects.abort()
        raise
