"""Rewriting some columns of a Wide part: a new part that refers to the old one's objects for all other files.

Granules, order, primary index and default codec stay, so files of columns that did not change are the same bytes.
`columns.txt` and `checksums.txt` are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mergelake.core.manifest import MASK_COLUMN, PartManifest, encode_files
from mergelake.core.schema import Column, TableSchema
from mergelake.core.types import UINT8, DataType
from mergelake.format.checksums import encode_checksums
from mergelake.format.columns_txt import encode_columns
from mergelake.format.hashes import FileDigest, digest
from mergelake.format.names import streams_by_column
from mergelake.format.partition import Partition
from mergelake.format.skip_files import PACKED, index_stems
from mergelake.format.ttl_txt import TTL_FILE
from mergelake.parts.default_codec import part_codec
from mergelake.parts.indexing import BoundIndex
from mergelake.parts.listing import projection_names
from mergelake.parts.part_spec import PartSpec, PartTarget, PartTtl
from mergelake.parts.projected import (
    kept_projections,
    projection_entries,
    projection_facts,
    projection_files,
    projection_folder,
)
from mergelake.parts.reader import ROW_EXISTS, PartReader
from mergelake.parts.writer import UNLISTED, ColumnSink, PartWriter, digest_of, plain_bytes_of, table_rows

MASK = Column(MASK_COLUMN, ROW_EXISTS, UINT8, codec="ZSTD(1)")
"""The column that hides rows. Almost all of its values are 1: it is compressed whatever the table's codec is."""
REWRITTEN_WHOLE_BYTES = 256 << 10
"""Smaller parts are rewritten whole: another object would cost every reader a request."""


def can_rewrite_columns(manifest: PartManifest, reader: PartReader, schema: TableSchema, modern: bool) -> bool:
    """Whether single columns of a part can be replaced.

    Not if its files differ in form from those that would be written (`modern` is the profile), if it lacks columns of
    the table, if its default codec is not known, or if it is Compact or small.
    """
    if manifest.part_type != "Wide" or manifest.bytes_on_disk < REWRITTEN_WHOLE_BYTES or not manifest.rows:
        return False
    mask = (MASK_COLUMN,) if manifest.masked else ()
    if manifest.columns != (*(column.id for column in schema.stored), *mask):
        return False
    if any(column.changed_since(manifest.schema_version) for column in schema.stored):
        return False
    files = reader.files
    if PACKED in files and not all(index.is_of(manifest.schema_version) for index in schema.indices):
        return False
    if ("serialization.json" in files) is not modern or set(projection_names(files)) - manifest.projections.keys():
        return False
    if b"Sparse" in reader.small_files(["serialization.json"] if modern else []).get("serialization.json", b""):
        return False
    if part_codec(reader) is None:
        return False
    same = _column_types(schema, masked=manifest.masked) == dict(reader.layout.columns)
    marks = ".cmrk2" if modern else ".mrk2"
    return same and all(name.endswith(marks) for name in files if "mrk" in name.rpartition(".")[2])


class ColumnRewriter:
    """Writes the changed columns and indexes of one part; `finish` returns the manifest of the new one."""

    def __init__(self, target: PartTarget, old: PartManifest, reader: PartReader) -> None:
        self._old, self._reader = old, reader
        partition = Partition(old.partition_id, bytes.fromhex(old.partition))
        codec = part_codec(reader)  # not the table's: one file says it for the columns that stay, too
        spec = PartSpec(np.asarray(reader.granule_rows, np.int64), partition, expected_rows=old.rows, codec=codec)
        self._writer = PartWriter(target, spec)
        self._replaced: set[str] = set()
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
        self._replace(name)
        self._writer.write_column(name, arrays)

    def write_mask(self, arrays: Iterable[pa.Array]) -> None:
        """Write the mask: 0 for rows that are deleted, else 1."""
        if self._has_mask:
            self._replace(ROW_EXISTS)
        self._has_mask = True
        sink = ColumnSink(self._writer, MASK)
        for array in arrays:
            sink.append(array)
        sink.finish()

    def _replace(self, name: str) -> None:
        ends = (".bin", self._writer.profile.mark_extension)
        streams = streams_by_column(self._reader.files, [name])[name]
        self._replaced |= {f"{stream}{end}" for stream in streams for end in ends}

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
        writer, old = self._writer, self._old
        if ttl is not None:
            self._replaced.add(TTL_FILE)
        gone = self._replaced | set(stale_index_files(old, writer.target.schema)) | {"checksums.txt", "columns.txt"}
        kept = {name: file for name, file in old.file_table().items() if name not in gone}
        types = _column_types(writer.target.schema, masked=self._has_mask)
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
            columns=(*old.columns, MASK_COLUMN) if self._has_mask and not old.masked else old.columns,
            schema_version=writer.target.schema.version,
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
