"""Rewriting some columns of a Wide part: a new part that refers to the old one's objects for all other files.

Granules, order, primary index and default codec stay, so files of columns that did not change are the same bytes.
`columns.txt` and `checksums.txt` are written anew.

The table may have been altered since the part was written. Files of dropped columns are left out, and those of renamed
ones get other names, for the objects in which they lie have none. Columns that the part lacks it goes on to lack, but
for those that are written; columns with another type now are `converted`: they have to be written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from msgspec import structs

from mergelake.core.model.manifest import MASK_COLUMN, PartFile, PartManifest, encode_files
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import UINT8, DataType
from mergelake.format.codecs.hashes import FileDigest, digest
from mergelake.format.files.checksums import encode_checksums
from mergelake.format.files.columns_txt import encode_columns
from mergelake.format.files.partition import Partition
from mergelake.format.files.ttl_txt import TTL_FILE
from mergelake.format.indexes.skip_files import PACKED, index_stems
from mergelake.format.serializations.names import STREAM_NAME_MAX, escape_for_file_name, streams_by_column
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.parts.read.default_codec import part_codec
from mergelake.parts.read.listing import projection_names
from mergelake.parts.read.reader import ROW_EXISTS, PartReader
from mergelake.parts.write.indexing import BoundIndex
from mergelake.parts.write.part_spec import PartSpec, PartTarget, PartTtl
from mergelake.parts.write.projected import (
    kept_projections,
    projection_entries,
    projection_facts,
    projection_files,
    projection_folder,
)
from mergelake.parts.write.writer import UNLISTED, ColumnSink, PartWriter, digest_of, plain_bytes_of, table_rows

MASK = Column(MASK_COLUMN, ROW_EXISTS, UINT8, codec="ZSTD(1)")
"""The column that hides rows. Almost all of its values are 1: it is compressed whatever the table's codec is."""
REWRITTEN_WHOLE_BYTES = 256 << 10
"""Smaller parts are rewritten whole: another object would cost every reader a request."""


def can_rewrite_columns(
    manifest: PartManifest, reader: PartReader, schema: TableSchema, modern: bool, names: Collection[str]
) -> bool:
    """Whether the columns `names` of a part, those that are `converted` among them, can be written anew alone.

    Not if its files differ in form from those that would be written (`modern` is the profile), if its default codec is
    not known, or if it is Compact or small. If columns were added, dropped or renamed since, also not in the modern
    profile, where further files name columns, nor in a table with a Nested, whose columns share files, nor where names
    that are gone are in a projection or in the TTL.
    """
    if manifest.part_type != "Wide" or manifest.bytes_on_disk < REWRITTEN_WHOLE_BYTES or not manifest.rows:
        return False
    files = reader.files
    if manifest.projections and converted(manifest, schema):
        return False
    held = held_columns(manifest, reader, schema)
    present = [name for name in reader.layout.columns if name != ROW_EXISTS]
    as_it_is = [*held] == [*held.values()] == present and len(present) == len(schema.stored)
    if not as_it_is and (modern or not _can_reshape(held, reader, schema)):
        return False
    if PACKED in files and not all(index.is_of(manifest.schema_version) for index in schema.indices):
        return False
    if ("serialization.json" in files) is not modern or set(projection_names(files)) - manifest.projections.keys():
        return False
    if b"Sparse" in reader.small_files(["serialization.json"] if modern else []).get("serialization.json", b""):
        return False
    if part_codec(reader) is None:
        return False
    same = all(reader.layout.columns[old] == schema.column(new).type for old, new in held.items() if new not in names)
    marks = ".cmrk2" if modern else ".mrk2"
    return same and all(name.endswith(marks) for name in files if "mrk" in name.rpartition(".")[2])


def held_columns(manifest: PartManifest, reader: PartReader, schema: TableSchema) -> dict[str, str]:
    """The columns of the table that a part has, in its order: their names in the part -> those of today."""
    named = zip(manifest.columns, reader.layout.columns, strict=True)
    return {old: schema.by_id[id].name for id, old in named if id in schema.by_id}


def converted(manifest: PartManifest, schema: TableSchema) -> frozenset[str]:
    """The columns of a part whose type has changed since."""
    held = (schema.by_id[id] for id in manifest.columns if id in schema.by_id)
    return frozenset(column.name for column in held if column.changed_since(manifest.schema_version))


def _can_reshape(held: Mapping[str, str], reader: PartReader, schema: TableSchema) -> bool:
    """Whether a part with these columns (`held_columns`), of an altered table, keeps its files under other names."""
    types = {**schema.types, **reader.layout.columns}
    if any(shared_sizes_stream(name, kind) for name, kind in types.items()):
        return False
    streams = streams_by_column(reader.files, reader.layout.columns)
    if any(not stream.startswith(escape_for_file_name(name)) for name, own in streams.items() for stream in own):
        return False
    known = {f"{stream}.bin" for own in streams.values() for stream in own}
    others = [name for name in reader.files.keys() - known if name.endswith(".bin") and "/" not in name]
    if not all(name.startswith("skp_idx_") for name in others):
        return False  # their names were too long
    renamed = [_renamed(stream, old, new) for old, new in held.items() if old != new for stream in streams[old]]
    if any(len(stream) > STREAM_NAME_MAX for stream in renamed):
        return False
    keeps_names = all(held.get(name) == name or name == ROW_EXISTS for name in streams)
    return keeps_names or not (TTL_FILE in reader.files or reader.manifest.projections)


def _renamed(stream: str, old: str, new: str) -> str:
    """The stream of a column by its new name."""
    return escape_for_file_name(new) + stream.removeprefix(escape_for_file_name(old))


class ColumnRewriter:
    """Writes the changed columns and indexes of one part; `finish` returns the manifest of the new one."""

    def __init__(self, target: PartTarget, old: PartManifest, reader: PartReader) -> None:
        self._old, self._reader = old, reader
        partition = Partition(old.partition_id, bytes.fromhex(old.partition))
        codec = part_codec(reader)  # not the table's: one file says it for the columns that stay, too
        spec = PartSpec(np.asarray(reader.granule_rows, np.int64), partition, expected_rows=old.rows, codec=codec)
        self._writer = PartWriter(target, spec)
        self._held = held_columns(old, reader, target.schema)
        self._streams = streams_by_column(reader.files, reader.layout.columns)
        dropped = [name for name in self._streams if name not in self._held and name != ROW_EXISTS]
        self._replaced = {file for name in dropped for file in self._files_of(name)}
        self._added: list[str] = []
        """Columns that the part lacked."""
        self._has_mask = old.masked

    @property
    def indexes(self) -> tuple[BoundIndex, ...]:
        """The table's skip indexes."""
        return self._writer.indexes

    @property
    def part(self) -> PartWriter:
        """The writer of the new files, for projections: each is left out or written anew."""
        return self._writer

    def leave_out_projection(self, name: str) -> None:
        """Do not keep a projection of the old part."""
        folder = projection_folder(name)
        self._replaced |= {file for file in self._reader.files if file.startswith(folder)}

    def write_column(self, name: str, arrays: Iterable[pa.Array]) -> None:
        """Write a column anew, from arrays of all of its rows."""
        before = next((old for old, new in self._held.items() if new == name), None)
        if before is None:
            self._added.append(name)
        else:
            self._replaced |= self._files_of(before)
        self._writer.write_column(name, arrays)

    def write_mask(self, arrays: Iterable[pa.Array]) -> None:
        """Write the mask: 0 for rows that are deleted, else 1."""
        if self._has_mask:
            self._replaced |= self._files_of(ROW_EXISTS)
        self._has_mask = True
        sink = ColumnSink(self._writer, MASK)
        for array in arrays:
            sink.append(array)
        sink.finish()

    def _files_of(self, name: str) -> set[str]:
        """The files of a column by its name in the part."""
        ends = (".bin", self._writer.profile.mark_extension)
        return {f"{stream}{end}" for stream in self._streams[name] for end in ends}

    def _kept(self, gone: Collection[str]) -> Iterator[PartFile]:
        """The files of the old part without those that are gone, under the names of today."""
        names = {
            f"{stream}{end}": f"{_renamed(stream, old, new)}{end}"
            for old, new in self._held.items()
            if old != new
            for stream in self._streams[old]
            for end in (".bin", self._writer.profile.mark_extension)
        }
        for name, file in self._old.file_table().items():
            if name not in gone:
                yield structs.replace(file, name=names[name]) if name in names else file

    def write_index(self, index: BoundIndex, blocks: Iterable[pa.RecordBatch]) -> None:
        """Write a skip index anew, from blocks with its columns of all rows."""
        self.drop_index(index.name)
        sink = self._writer.index(index)
        for block in blocks:
            sink.append(block)
        sink.finish()

    def drop_index(self, name: str) -> None:
        """Leave out the files of a skip index."""
        starts = tuple(f"{stem}." for stem in index_stems(name))
        self._replaced |= {file for file in self._reader.files if file.startswith(starts)}

    def finish(self, ttl: PartTtl | None = None) -> PartManifest:
        """Store what was written, and the list of all files; `ttl`: when its rows expire, if that is found anew."""
        writer, old, schema = self._writer, self._old, self._writer.target.schema
        if ttl is not None:
            self._replaced.add(TTL_FILE)
        gone = self._replaced | set(stale_index_files(old, schema)) | {"checksums.txt", "columns.txt"}
        kept = {file.name: file for file in self._kept(gone)}
        columns = [schema.column(name) for name in (*self._held.values(), *self._added)]
        columns += [MASK] if self._has_mask else []
        types = {column.name: column.type for column in columns}
        written = dict(writer.digests)
        small = {"columns.txt": encode_columns(types)}
        if ttl is not None and ttl.file:
            small[TTL_FILE] = ttl.file
        written |= {name: digest(data) for name, data in small.items()}
        listed: Mapping[str, FileDigest] = {
            **{n: digest_of(file) for n, file in kept.items() if n not in UNLISTED},
            **{n: file_digest for n, file_digest in written.items() if n not in UNLISTED},
        }
        projections = {**kept_projections(old, kept.values()), **writer.projections}
        listed = {name: each for name, each in listed.items() if ".proj/" not in name}
        small["checksums.txt"] = encode_checksums({**listed, **projection_entries(projections)})
        written["checksums.txt"] = FileDigest(len(small["checksums.txt"]), "")
        places = writer.store_files(small)
        new = table_rows(written | projection_files(writer.projections), places)
        table = sorted([*kept.values(), *new], key=lambda file: file.name)
        return replace(
            old,
            id=writer.part_id,
            files=encode_files(table),
            bytes_on_disk=sum(file.size for file in table),
            bytes_uncompressed=plain_bytes_of(table),
            columns=tuple(column.id for column in columns),
            schema_version=schema.version,
            storage="full",
            created_ms=writer.created_ms,
            projections=projection_facts(projections),
            ttl=old.ttl if ttl is None else ttl.infos,
        )

    def abort(self) -> None:
        """Delete what was stored."""
        self._writer.abort()


def stale_index_files(part: PartManifest, schema: TableSchema) -> list[str]:
    """Files of indexes that the table has no more, or that are others now."""
    own = [f"{stem}." for i in schema.indices if i.is_of(part.schema_version) for stem in index_stems(i.name)]
    mine = tuple(own)
    return [n for n in part.file_table() if n.startswith("skp_idx_") and n != PACKED and not n.startswith(mine)]


def _column_types(schema: TableSchema, *, masked: bool) -> dict[str, DataType]:
    types = {column.name: column.type for column in schema.stored}
    return {**types, ROW_EXISTS: UINT8} if masked else types
