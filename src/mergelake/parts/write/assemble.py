"""Assembles a Wide part from slices: parts with the rows of consecutive ranges of its key, in order.

A data file is a sequence of compressed blocks, and each slice begins one, so a file of the part is made of the extents
of the slices' files, without copying. Marks are written anew, moved by the bytes before their slice, and the final mark
of all slices but the last is left out; so is the last key in their primary indexes. Slices are written without what
stands once at the start of a stream (`PartSpec.continues`): here a block with it comes first.

`checksums.txt` needs hashes of whole files, which follow from all bytes in order. So every data file is read once, one
stream after the other: `assemble_stream` may run anywhere, for each stream alone, and again with the same result.
Nothing but marks and small files is written.

A slice has a dictionary of its own for a LowCardinality column, at the end of its piece of the stream; its marks lie
before it as long as some granule may need it, and behind it for others: in sequence, the next dictionary that a reader
meets is always the one that the next index with the flag for a new dictionary means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.manifest import Extent, PartFile, PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.core.types import types as t
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks, encode_compressed_blocks
from mergelake.format.codecs.hashes import FileHash
from mergelake.format.files.marks import encode_marks, mark_records
from mergelake.format.files.profile import Profile
from mergelake.format.indexes.skip_files import is_index_file
from mergelake.format.serializations.lowcardinality import VERSION, low_cardinality_within
from mergelake.format.serializations.names import stream_file_name
from mergelake.format.serializations.tree import build_serialization
from mergelake.parts.read.fetch import FileRange, fetch, fetch_whole
from mergelake.parts.read.layout import object_key
from mergelake.parts.write.indexing import table_indexes
from mergelake.parts.write.part_spec import PartSpec, PartTarget, TakenFiles
from mergelake.parts.write.writer import PartWriter
from mergelake.store.interface.protocol import Store

_CHUNK = 8 << 20
"""Bytes of a data file that are read by one request."""
_BLOCK_SIZE_AT = 17
"""Place in a compressed block of its size, u32, which leaves out the 16 bytes of the checksum before it."""
_ALIGNMENT_MAX = 256


@dataclass(frozen=True, slots=True)
class SliceStream:
    """One stream of the part that is assembled, as a piece of work."""

    part_id: str
    """Id of the part."""
    directory: str
    data: str
    """Name of the data file, in the slices and the part."""
    marks: str
    pieces: tuple[tuple[PartFile, PartFile], ...]
    """Data and mark file of each slice that has rows."""
    modern: bool
    """The profile."""
    indexes: tuple[PartFile, ...] = ()
    """Of a stream of dictionaries, before which a version comes: for each slice the mark file of their indexes."""

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(data.size + marks.size for data, marks in self.pieces)


def can_assemble(schema: TableSchema) -> bool:
    """Whether parts of the table can be written in slices.

    Not where a stream says at its start what all rows have (the types in a Dynamic or JSON column, the mode of a
    Variant), and not with skip indexes whose granules of so many marks hardly fit a slice.
    """
    kinds = (kind for column in schema.stored for kind in t.parts(column.type))
    return not any(isinstance(kind, (t.Variant, t.Dynamic, t.Json)) for kind in kinds) and (
        alignment(schema) <= _ALIGNMENT_MAX
    )


def alignment(schema: TableSchema) -> int:
    """Marks of each slice but the last must be a multiple of this, as granules of skip indexes span several."""
    return lcm(*(index.granularity for index in table_indexes(schema)))


def is_aligned(schema: TableSchema, slices: Sequence[PartManifest]) -> bool:
    """Whether the slices have such numbers of marks: tiny ones may not."""
    filled = [piece for piece in slices if piece.rows]
    return not any(piece.marks % alignment(schema) for piece in filled[:-1])


def slice_streams(
    directory: str, part_id: str, schema: TableSchema, slices: Sequence[PartManifest]
) -> list[SliceStream]:
    """The work of assembling slices, the largest stream first; none if no slice has rows."""
    tables = [piece.file_table() for piece in slices if piece.rows]
    if not tables:
        return []
    profile = Profile(TableSettings(schema.settings).text("part_profile") == "modern")
    extension, dictionaries = profile.mark_extension, _dictionary_files(schema, profile)
    streams = []
    for name in tables[0]:
        if name.endswith(".bin") or is_index_file(name):
            marks = name[: name.rindex(".")] + extension
            pieces = tuple((table[name], table[marks]) for table in tables)
            indexes: tuple[PartFile, ...] = ()
            if name in dictionaries:
                indexes = tuple(table[dictionaries[name] + extension] for table in tables)
            streams.append(SliceStream(part_id, directory, name, marks, pieces, profile.modern, indexes))
    return sorted(streams, key=lambda stream: -stream.size)


def _dictionary_files(schema: TableSchema, profile: Profile) -> dict[str, str]:
    """Data files of dictionaries, and the names without extension of the files of their indexes."""
    nodes = (build_serialization(column.name, column.type, profile.form) for column in schema.stored)
    found = (each for node in nodes for each in low_cardinality_within(node))
    return {f"{stream_file_name(each.dictionary)}.bin": stream_file_name(each.stream) for each in found}


def assemble_stream(store: Store, stream: SliceStream) -> tuple[PartFile, PartFile]:
    """The data and the mark file of a stream; stores the marks. Raises CorruptDataError for damaged slices."""
    prefix = b""
    if stream.indexes:
        prefix = encode_compressed_blocks(VERSION.to_bytes(8, "little"), parse_codec("NONE"))
    packed, plain = FileHash(), FileHash()
    extents: list[Extent] = []
    tables = []
    if prefix:
        extents.append(_stored(store, stream, f"{stream.data}.start", prefix))
        packed.update(prefix)
        plain.update(decode_compressed_blocks(prefix))
    for at, (data, marks) in enumerate(stream.pieces):
        table = _marks(store, stream, marks).copy()
        table[:, 0] += packed.size
        if stream.indexes:
            # A reader that starts where no index follows in this slice must find the dictionary of the next one.
            places = _marks(store, stream, stream.indexes[at])[:, :2]
            table[(places == places[-1]).all(axis=1), :2] = packed.size + data.size, 0
        tables.append(table if at + 1 == len(stream.pieces) else table[table[:, 2] > 0])
        before = plain.size
        for chunk in _chunks(store, stream.directory, data):
            packed.update(chunk)
            plain.update(decode_compressed_blocks(chunk))
        if plain.size - before != data.uncompressed_size:
            where = object_key(stream.directory, data.extents[0])
            found = f"{plain.size - before} bytes"
            raise CorruptDataError(
                "A slice has other plain bytes than its manifest says",
                object_key=where,
                expected=f"{data.uncompressed_size} bytes",
                found=found,
            )
        extents += [extent for extent in data.extents if extent.length]
    extents = extents or list(stream.pieces[0][0].extents)
    body, digest = Profile(stream.modern).pack(encode_marks(np.concatenate(tables).view(np.uint64)))
    place = _stored(store, stream, stream.marks, body)
    return (
        PartFile(stream.data, packed.size, tuple(extents), packed.hexdigest(), plain.size, plain.hexdigest()),
        PartFile(stream.marks, digest.size, (place,), digest.hash, digest.uncompressed_size, digest.uncompressed_hash),
    )


def _marks(store: Store, stream: SliceStream, file: PartFile) -> NDArray[np.int64]:
    (body,) = fetch_whole(store, stream.directory, {file.name: file}, [file.name])
    return mark_records(file.name, body)[0]


def _stored(store: Store, stream: SliceStream, name: str, body: bytes) -> Extent:
    extent = Extent(f"{stream.part_id}/{name}", 0, len(body))
    store.put(object_key(stream.directory, extent), body)
    return extent


def _chunks(store: Store, directory: str, file: PartFile) -> Iterator[memoryview]:
    """The bytes of a data file, in pieces of whole compressed blocks."""
    rest = b""
    for start in range(0, file.size, _CHUNK):
        wanted = FileRange(file.name, start, min(start + _CHUNK, file.size))
        (body,) = fetch(store, directory, {file.name: file}, [wanted])
        view = memoryview(rest + bytes(body) if rest else body).cast("B")
        end = _last_end(view)
        if end:
            yield view[:end]
        rest = bytes(view[end:])
    if rest:
        raise CorruptDataError(f"The last compressed block of {file.name} of a slice is cut short")


def _last_end(view: memoryview) -> int:
    """Where the last whole compressed block ends."""
    at = 0
    while at + _BLOCK_SIZE_AT + 4 <= len(view):
        end = at + 16 + int.from_bytes(view[at + _BLOCK_SIZE_AT : at + _BLOCK_SIZE_AT + 4], "little")
        if end > len(view) or end == at + 16:
            break
        at = end
    return at


def assemble_part(
    target: PartTarget,
    spec: PartSpec,
    slices: Sequence[PartManifest],
    files: Collection[PartFile],
    projections: Callable[[PartWriter], None],
) -> PartManifest:
    """Store the small files and return the manifest of the part with id `spec.part_id`.

    `files` are those of `assemble_stream`, of all `slice_streams`. `projections` writes the projections of the part.
    """
    writer = PartWriter(target, spec)
    filled = [piece for piece in slices if piece.rows]
    try:
        if filled:
            marks = sum(piece.marks for piece in filled)
            key_range = (filled[0].key_range[0], filled[-1].key_range[1])
            primary = _primary(target, filled, writer.profile.primary_index)
            writer.take_files(TakenFiles(sum(p.rows for p in filled), marks, tuple(files), primary, key_range))
            projections(writer)
        else:
            for column in target.schema.stored:
                writer.write_column(column.name, ())
        return replace(writer.finish(), base_version=min(piece.base_version for piece in slices))
    except BaseException:
        writer.abort()
        raise


def _primary(target: PartTarget, filled: Sequence[PartManifest], name: str) -> bytes:
    if not target.key_types:
        return b""
    pieces = []
    for piece in filled:
        files: Mapping[str, PartFile] = {name: piece.file_table()[name]}
        (body,) = fetch_whole(target.store, target.directory, files, [name])
        plain = decode_compressed_blocks(body) if name.endswith(".cidx") else bytes(body)
        last = len(piece.key_range[1]) // 2
        pieces.append(plain if piece is filled[-1] else plain[: len(plain) - last])
    return b"".join(pieces)
