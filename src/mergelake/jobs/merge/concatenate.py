"""Merges whose sources follow one another by the key: their files are copied, no row is decoded.

A table that is filled in the order of its key has such merges. `plan_concatenation` decides it by the manifests alone:

- all rows of each source come before those of the next, by the keys of first and last rows, as the merge itself would
  order them; where keys are equal at a seam, only if the primary key is the whole sorting key;
- nothing changes a row: a plain MergeTree, without mutations, masks, DEDUPLICATE;
- the sources have the files that a part has which is written now: same columns and indexes, same forms; where the
  default codec of the result is another one, blocks are compressed anew, as they are cut;
- the last granule of each source is short, and stays so: at most `_MARKS_MAX` times the marks of an ordinary merge.
  Granules of skip indexes that span several must not cross a seam.

The result has the rows of the ordinary merge, in the same order. Files are written as by that, one object each or all
packed in one. `parts.write.copied` does the copying.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.order.keys import TableKeys, table_keys
from mergelake.engines.order.merging import merge_runs
from mergelake.format.codecs.codec import CODEC_LZ4, Codec
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.codecs.hashes import file_hash
from mergelake.format.files.granules import granule_size
from mergelake.format.files.profile import Profile
from mergelake.format.files.ttl_txt import TTL_FILE
from mergelake.format.indexes.skip_files import is_index_file
from mergelake.format.serializations.values import decode_values
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.jobs.merge.projections import projection_work
from mergelake.jobs.merge.result import THREAD_BYTES, Meter, side_by_side
from mergelake.jobs.merge.ttl import plan_expiry
from mergelake.parts.read.ahead import hold_packed, open_parts
from mergelake.parts.read.default_codec import CODEC_FILE, CODEC_LARGE, default_codec
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.assemble import can_assemble
from mergelake.parts.write.copied import CopiedStream, StreamCopier, copied_streams
from mergelake.parts.write.indexing import table_indexes
from mergelake.parts.write.objects import shared_size
from mergelake.parts.write.part_spec import NO_TTL, PartTtl, TakenFiles
from mergelake.parts.write.writer import PartWriter, is_compact

_MARKS_MAX = 1.25
_FAR_STREAMS = 4
"""Streams that are copied at once from a far store, where most of the time is spent waiting."""


@dataclass(frozen=True, slots=True)
class Concatenation:
    """How a merge is executed by copying."""

    sources: tuple[MergeSource, ...]
    """Those with rows, in the order of their rows."""
    streams: tuple[CopiedStream, ...]
    """With those of dictionaries within them."""
    codec: Codec
    """The default codec of the result."""
    anew: tuple[frozenset[str], ...]
    """For each source the data files whose blocks are compressed anew, by another codec."""
    ttl: PartTtl = NO_TTL
    """When the rows of the result expire."""
    absent: frozenset[str] = frozenset()
    """Columns that no source has, nor the result."""


def plan_concatenation(task: MergeTask) -> Concatenation | None:
    """How the merge is executed by copying; None if it has to be executed in the ordinary way. Pure."""
    settings = TableSettings(task.schema.settings)
    filled = [source for source in task.sources if source.manifest.rows]
    schema = _schema_of_sources(task) if filled else None
    if (
        schema is None
        or schema.engine != "MergeTree"
        or task.kind == "mutation"
        or task.deduplicate is not None
        or task.split is not None
        or not all(_is_whole(source, schema) for source in filled)
        or not can_assemble(schema)
        or not settings.integer("index_granularity_bytes")
        or is_compact(settings, task.rows, task.plain_bytes)
        or any(work.task is None for work in projection_work(task))
    ):
        return None
    expiry = plan_expiry(task)
    if expiry is not None and (expiry.removes or expiry.computes or expiry.gone):
        return None
    if sum(source.manifest.marks for source in filled) > _MARKS_MAX * _ordinary_marks(task, settings):
        return None
    ordered = _in_order(filled, table_keys(task.schema))
    if ordered is None:
        return None
    codecs = _source_codecs(task, settings)
    if codecs is None:
        return None
    codec = (expiry.codec if expiry is not None else None) or _merged_codec(task, settings, codecs.values())
    streams = copied_streams(schema, codec)
    single = [each for stream in streams for each in stream.streams]
    profile = Profile(settings.text("part_profile") == "modern")
    if not all(_has_form(source.manifest, single, profile) for source in ordered):
        return None
    if any(source.manifest.marks % stream.granularity for source in ordered[:-1] for stream in streams):
        return None
    anew = {old: _recoded(schema, old, single) for old in set(codecs.values())}
    each_anew = tuple(anew[codecs[source.manifest.id]] for source in ordered)
    ttl = expiry.part_ttl(expiry.old) if expiry is not None else NO_TTL
    absent = frozenset(column.name for column in task.schema.stored) - {column.name for column in schema.stored}
    return Concatenation(tuple(ordered), tuple(streams), codec, each_anew, ttl, absent)


def _schema_of_sources(task: MergeTask) -> TableSchema | None:
    """The table with the columns that the sources have; None if the others are not those that they all lack.

    Such columns have no expression for their default, nor a skip index, which would have to be computed.
    """
    schema, held = task.schema, {*task.sources[0].manifest.columns}
    absent = {column.name for column in schema.stored if column.id not in held}
    if not absent:
        return schema
    indexed = {name for index in table_indexes(schema) for name in index.columns}
    if any({*source.manifest.columns} != held or source.lacks for source in task.sources) or absent & indexed:
        return None
    if any(schema.column(name).default for name in absent) or schema.projections:
        return None
    return replace(schema, columns=tuple(column for column in schema.columns if column.name not in absent))


def _is_whole(source: MergeSource, schema: TableSchema) -> bool:
    """Whether all rows of a source go into the result as they are, in files that were written for it."""
    part = source.manifest
    return (
        not source.lacks
        and part.part_type == "Wide"
        and part.schema_version == schema.version
        and part.columns == tuple(column.id for column in schema.stored)
        # A mutated part refers to files of an older one, which may have the codecs of an older schema.
        and all(shared_size(key) is not None for key in part.keys_outside())
    )


def _ordinary_marks(task: MergeTask, settings: TableSettings) -> int:
    """Granules of the result of an ordinary merge."""
    limits = settings.integer("index_granularity"), settings.integer("index_granularity_bytes")
    return -(-task.rows // granule_size(task.rows, task.plain_bytes, *limits))


def _in_order(sources: Sequence[MergeSource], keys: TableKeys) -> list[MergeSource] | None:
    """The sources in the order of their rows; None if rows of one lie between those of another, or may do so."""
    if not keys.sorting:
        return list(sources)
    types, descending = [key.type for key in keys.primary], keys.descending[: keys.primary_length]
    ends = [end for source in sources for end in source.manifest.key_range]
    if not all(ends):
        return None
    rows = decode_values(bytes.fromhex("".join(ends)), types, len(ends))
    runs = [iter([[array.slice(2 * at, 2) for array in rows]]) for at in range(len(sources))]
    steps = list(merge_runs(runs, types, descending))
    order, repeats = (np.concatenate([getattr(step, name) for step in steps]) for name in ("runs", "repeats"))
    if (order[::2] != order[1::2]).any():
        return None
    if len(keys.sorting) > len(types) and repeats[2::2].any():
        return None  # the rest of the sorting key decides
    return [sources[at] for at in order[::2].tolist()]


def _source_codecs(task: MergeTask, settings: TableSettings) -> dict[str, Codec] | None:
    """The default codec of each source, by id; None if one has none of those that are written now."""
    known = {
        file_hash(f"CODEC({codec})".encode()): codec for codec in (CODEC_LZ4, CODEC_LARGE, default_codec(settings))
    }
    found: dict[str, Codec] = {}
    for source in task.sources:
        file = source.manifest.file_table().get(CODEC_FILE)
        if file is None or file.hash not in known:
            return None
        found[source.manifest.id] = known[file.hash]
    return found


def _merged_codec(task: MergeTask, settings: TableSettings, sources: Collection[Codec]) -> Codec:
    """As `default_codec.merged_codec`."""
    size = task.plain_bytes
    if settings.text("default_compression_codec") or size >= settings.integer("min_bytes_for_zstd"):
        return default_codec(settings, size)
    return CODEC_LARGE if CODEC_LARGE in sources else CODEC_LZ4


def _recoded(schema: TableSchema, old: Codec, streams: Sequence[CopiedStream]) -> frozenset[str]:
    """Data files that have another codec than in `streams` in a part with the default codec `old`."""
    before = {each.data: each.codec for stream in copied_streams(schema, old) for each in stream.streams}
    return frozenset(stream.data for stream in streams if before[stream.data] != stream.codec)


def _has_form(part: PartManifest, streams: Sequence[CopiedStream], profile: Profile) -> bool:
    """Whether a part consists of the files that a part has which is written now."""
    files = {name: file for name, file in part.file_table().items() if ".proj/" not in name}
    wanted = {name for stream in streams for name in (stream.data, stream.marks)}
    found = {n for n in files if n.endswith((".bin", profile.mark_extension)) or is_index_file(n)}
    others = {"checksums.txt", "columns.txt", "count.txt", "partition.dat", CODEC_FILE, TTL_FILE, profile.primary_index}
    if profile.serialization is not None:
        others.add("serialization.json")
    rest = {name for name in files.keys() - found if not name.startswith("minmax_")}
    form = files.get("serialization.json")
    return (
        found == wanted
        and rest <= others
        and (not part.key_range[1] or profile.primary_index in files)
        and (None if form is None else form.hash) == (profile.serialization and file_hash(profile.serialization))
        and all(
            max(files[stream.marks].size * (not profile.modern), files[stream.marks].uncompressed_size)
            == stream.mark_bytes(part.marks)
            for stream in streams
        )
    )


def concatenate(
    writer: PartWriter, found: Concatenation, sources: Sequence[PartReader], meter: Meter, threads: int
) -> None:
    """Write the columns, indexes and keys of the result; `sources` are readers of `found.sources`.

    Raises CorruptDataError for a damaged source.
    """
    budget = writer.target.settings.integer("merge_max_chunk_bytes")
    far = [source for source in sources if is_remote(source.store)]
    held = hold_packed(far, budget)
    waiting = [source for source in far if not source.complete]
    # The small files of packed parts are fetched together.
    open_parts([source for source in waiting if source.manifest.storage == "packed"], [])
    sizes = {
        stream.data: sum(source.files[each.data].size for source in sources for each in stream.streams)
        for stream in found.streams
    }
    if waiting:
        threads = max(threads, _FAR_STREAMS)
    elif sum(sizes.values()) < THREAD_BYTES * len(sizes):
        threads = 1
    copier = StreamCopier(writer, sources, found.anew, max(budget - held, budget // 4) // threads, meter.add)
    streams = sorted(found.streams, key=lambda stream: -sizes[stream.data])
    if threads == 1:
        for stream in streams:
            copier.copy(stream)
    else:
        side_by_side(threads, [partial(copier.copy, stream) for stream in streams])
    rows, marks = (sum(getattr(source.manifest, name) for source in sources) for name in ("rows", "marks"))
    key_range = (sources[0].manifest.key_range[0], sources[-1].manifest.key_range[1])
    writer.take_files(TakenFiles(rows, marks, (), _primary_index(writer, copier, sources), key_range))


def _primary_index(writer: PartWriter, copier: StreamCopier, sources: Sequence[PartReader]) -> bytes:
    """The primary keys at all marks and of the last row."""
    if not writer.target.key_types:
        return b""
    name, pieces = writer.profile.primary_index, []
    for source, body in zip(sources, copier.small_files(name), strict=True):
        plain = decode_compressed_blocks(body) if name.endswith(".cidx") else body
        last = bytes.fromhex(source.manifest.key_range[1])
        if not plain.endswith(last):
            raise CorruptDataError(f"{name} of part {source.manifest.id} does not end with the key of its last row")
        pieces.append(plain if source is sources[-1] else plain[: len(plain) - len(last)])
    return b"".join(pieces)
