"""A part's manifest: the location of its files, and the metadata for pruning.

A part is an immutable set of files; a file is a list of extents; an extent is a range of one object. Manifests are in
the log, so pruning needs no request. The file table is held as compact JSON text and decoded on demand: a table of
10,000 parts holds ten thousand short strings, not a million objects. For a part from a segment of a checkpoint even the
text is read on demand.

Keys of extents are relative to the table's directory (`<part id>/files.packed`); a key that starts with
`/` is relative to the warehouse, for parts shared between tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import msgspec

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.base.json_load import typed

MASK_COLUMN = -1
"""Id of `_row_exists` among the columns of a part: the mask of a lightweight DELETE, no column of the table."""
_DECODER = json.JSONDecoder()
_FILES = msgspec.json.Decoder(tuple[list[str], list[list[Any]]])
_END = 1 << 63
_ONE_EXTENT = 8
"""Values in the row of a file that is one extent."""


class Extent(msgspec.Struct, frozen=True):
    """A range of bytes of one object."""

    key: str
    offset: int
    length: int


class PartFile(msgspec.Struct, frozen=True):
    """One file of a part, as `checksums.txt` describes it, and its location."""

    name: str
    size: int
    """Bytes on disk."""
    extents: tuple[Extent, ...]
    hash: str = ""
    """32 hex digits as stored: the file hash of the bytes on disk; empty for files outside `checksums.txt`."""
    uncompressed_size: int = -1
    """For files of compressed blocks: bytes after decompression; -1 for others."""
    uncompressed_hash: str = ""
    """For files of compressed blocks: the file hash of the decompressed stream."""


class FilePlace(Protocol):
    """Location of the text of a file table."""

    @property
    def part_id(self) -> str:
        """Id of the part with which it was stored."""
        ...

    @property
    def digest(self) -> bytes:
        """Digest of the text, like `FileTable.digest`."""
        ...

    @property
    def outside(self) -> tuple[str, ...]:
        """Keys of objects outside the directory of that part."""
        ...

    def text(self) -> str:
        """Read the text."""
        ...


class FileTable:
    """The files of a part, as the text of `encode_files`: in memory, or at a place from which it is read on demand.

    Tables are equal if their texts are; comparing makes no request. Pickles as text.
    """

    __slots__ = ("_text", "place")

    def __init__(self, text: str | None, place: FilePlace | None = None) -> None:
        self._text = text
        self.place = place
        """Stored location of the text, or None; may be set after it was written there."""

    @property
    def in_memory(self) -> bool:
        """Whether the text is available without a request."""
        return self._text is not None

    @property
    def text(self) -> str:
        """The JSON text; may take a request if it is not in memory."""
        if self._text is not None:
            return self._text
        assert self.place is not None
        return self.place.text()

    @property
    def digest(self) -> bytes:
        """Hash of the text, 8 bytes."""
        if self._text is None and self.place is not None:
            return self.place.digest
        return hashlib.blake2b(self.text.encode(), digest_size=8).digest()

    def object_keys(self) -> list[str]:
        """The distinct keys of the objects: the text begins `[[keys…],…`, so rows are not decoded."""
        return _object_keys(self.text)[0] if self.text else []

    def keys_outside(self, part_id: str) -> tuple[str, ...]:
        """Keys outside the directory of a part; without a request for the part with which the table was stored."""
        if self._text is None and self.place is not None and self.place.part_id == part_id:
            return self.place.outside
        return tuple(key for key in self.object_keys() if not key.startswith(f"{part_id}/"))

    def in_one_object(self) -> tuple[Extent, dict[str, tuple[int, int]]] | None:
        """The extent that holds all files, and each file's (start, end) in it.

        None if they are in several objects, or one is in several ranges.
        """
        keys, rows = file_rows(self.text)
        if len(keys) != 1 or any(len(row) != _ONE_EXTENT for row in rows):
            return None
        first = min(start for *_, start, _ in rows)
        files = {name: (start - first, start - first + length) for name, *_, start, length in rows}
        return Extent(keys[0], first, max(end for _, end in files.values())), files

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileTable):
            return NotImplemented
        if self._text is None or other._text is None:
            return self.digest == other.digest
        return self._text == other._text

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[FileTable], tuple[str]]:
        return FileTable, (self.text,)

    def __repr__(self) -> str:
        return f"FileTable({self._text!r})" if self._text is not None else f"FileTable(None, {self.place!r})"


def encode_files(files: Iterable[PartFile]) -> FileTable:
    """The file table as JSON text: the distinct object keys, then a row for each file."""
    keys: dict[str, int] = {}
    rows: list[list[Any]] = []
    for file in files:
        row: list[Any] = [file.name, file.size, file.hash]
        row += [file.uncompressed_size, file.uncompressed_hash]
        for extent in file.extents:
            row += [keys.setdefault(extent.key, len(keys)), extent.offset, extent.length]
        rows.append(row)
    return FileTable(json.dumps([list(keys), rows], separators=(",", ":")))


def file_rows(text: str) -> tuple[list[str], list[list[Any]]]:
    """Keys, and rows of (name, size, hash, plain size, plain hash, key, offset, length, …), of `encode_files`.

    The key of an extent is an index into the keys. Raises CorruptDataError for invalid text or negative numbers.
    """
    try:
        keys, rows = typed(_FILES, text)
        for name, size, _, plain_size, _, *places in rows:
            lowest, highest = min(size, plain_size + 1, *places), max(size, plain_size, *places)
            if lowest < 0 or highest >= _END or len(places) % 3 or max(places[::3], default=-1) >= len(keys):
                _refuse(f"{name} has sizes or places that cannot be: {(size, plain_size, *places)}")
    except (ValueError, TypeError) as cause:
        raise CorruptDataError("The file table of a part is not readable", found=str(cause)) from cause
    return keys, rows


def _refuse(message: str) -> None:
    raise ValueError(message)


def decode_files(text: str) -> dict[str, PartFile]:
    """Inverse of `encode_files`, by file name. Errors: those of `file_rows`."""
    keys, rows = file_rows(text)
    out: dict[str, PartFile] = {}
    for name, size, digest, plain_size, plain_hash, *places in rows:
        extents = tuple(Extent(keys[places[i]], places[i + 1], places[i + 2]) for i in range(0, len(places), 3))
        out[name] = PartFile(name, size, extents, digest, plain_size, plain_hash)
    return out


class ProjectionPart(NamedTuple):
    """What the manifest of a part knows of one of its projections, the files `<name>.proj/…` in the file table."""

    digest: str
    """Which definition it was written by (`BoundProjection.digest`)."""
    rows: int
    marks: int
    """Granules, without the final mark."""


@dataclass(frozen=True, slots=True)
class PartManifest:
    """A part before or after it has a name (block numbers come from its position in the log).

    Values (partition, minima, maxima, keys) are hex of ClickHouse's single-value binary form, concatenated
    as in `partition.dat`, `minmax_*.idx` and `primary.idx`.
    """

    id: str
    """32 hex digits, unique per attempt to write the part; also the directory of its objects."""
    partition_id: str
    rows: int
    files: FileTable
    """The file table."""
    partition: str = ""
    """Hex of `partition.dat`; empty without a partition key."""
    minmax: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Column name -> hex of its minimum and maximum: the columns that the partition key uses."""
    key_range: tuple[str, str] = ("", "")
    """Hex of the primary key of the first and of the last row."""
    marks: int = 0
    """Granules, without the final mark."""
    bytes_on_disk: int = 0
    """Sum of the sizes of all files."""
    bytes_uncompressed: int = 0
    """Bytes of all columns before compression."""
    columns: tuple[int, ...] = ()
    """Ids of the columns that the part holds."""
    schema_version: int = 1
    part_type: str = "Wide"
    """`Wide` or `Compact`."""
    storage: str = "full"
    """`packed` (one object) or `full` (an object a file)."""
    level: int = 0
    """Level of a new part: 0, or 1 if the insert was already merged."""
    created_ms: int = 0
    """Time by the clock of the writer; for ages, never for ordering."""
    base_version: int = 0
    """The newest version of the table that the writer knew when it chose the id; garbage collection relies on it."""
    volume: str = "default"
    ttl: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Element of the TTL (`engines.ttl.ttl`) -> when its rows expire (`core.model.ttl.TtlInfo.packed`)."""
    projections: Mapping[str, ProjectionPart] = field(default_factory=dict)
    """The projections that the part has, by name."""

    @property
    def masked(self) -> bool:
        """Whether a mask (`_row_exists`) may hide some of its rows."""
        return MASK_COLUMN in self.columns

    def file_table(self) -> dict[str, PartFile]:
        """Files by name. Each call decodes the table anew."""
        return decode_files(self.files.text)

    def object_keys(self) -> list[str]:
        """The distinct keys of its objects."""
        return self.files.object_keys()

    def keys_outside(self) -> tuple[str, ...]:
        """Keys of objects outside the directory of the part."""
        return self.files.keys_outside(self.id)


def _object_keys(files: str) -> tuple[list[str], int]:
    """The keys of a file table's text, and the offset of their end."""
    keys: tuple[list[str], int] = _DECODER.raw_decode(files, 1)
    return keys


def with_keys(manifest: PartManifest, keys: Mapping[str, str]) -> PartManifest:
    """The same part with object keys replaced by `keys`, old key -> new key."""
    text = manifest.files.text
    old, end = _object_keys(text)
    new = [keys.get(key, key) for key in old]
    if new == old:
        return manifest
    return replace(manifest, files=FileTable(f"[{json.dumps(new, separators=(',', ':'))}{text[end:]}"))
