"""Small parts read as one.

Opening a part and decoding its columns costs some hundred calls, however few rows it has. Streams of a column of Wide
parts can be concatenated, like those of granules. So parts with the same files become one synthetic part, in which each
part is a granule, and each column is decoded by one call. Columns with streams that have a prefix before the values
(JSON, nested dictionaries, …) are decoded part by part from the bytes in memory.

Errors do not name the object with the bad bytes: on `CorruptDataError` the caller reads the parts one by one.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.core.types.types import DataType, LowCardinality, Tuple
from mergelake.format.columns.reader import ColumnReader, concatenate
from mergelake.format.files.layout import Layout
from mergelake.parts.read.ahead import SMALL_BYTES
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.flight import begin
from mergelake.parts.read.layout import object_key
from mergelake.parts.read.reader import ROW_EXISTS, PartReader
from mergelake.parts.read.steps import MarkRange, ReadStep
from mergelake.parts.read.window import ReadWindow
from mergelake.store.interface.protocol import Buffer

_FORM = "serialization.json"
_COUNTS = re.compile(rb'"num_(?:defaults|rows)":\d+')
_SPARSE = b"Sparse"


def is_joinable(manifest: PartManifest) -> bool:
    """Whether a part is small enough to be read with others, if their `WholePart.structure` is equal."""
    return (
        manifest.storage == "packed"
        and manifest.part_type == "Wide"
        and manifest.bytes_on_disk <= SMALL_BYTES
        and manifest.rows > 0
    )


@dataclass(frozen=True, slots=True)
class WholePart:
    """A small part, all of whose bytes are in memory."""

    reader: PartReader
    files: Mapping[str, Buffer]

    @property
    def structure(self) -> Hashable | None:
        """Equal for parts that can be read as one; None for a part that cannot be joined."""
        reader, form = self.reader, bytes(self.files.get(_FORM, b""))
        if reader.written is None or f"{ROW_EXISTS}.bin" in self.files or _SPARSE in form:
            return None
        return reader.manifest.schema_version, reader.manifest.columns, tuple(self.files), _COUNTS.sub(b"", form)


def fetch_whole_parts(readers: Sequence[PartReader]) -> list[WholePart | None]:
    """The bytes of parts of one store in one round, by one request for neighbours in an object.

    None for a part that is not in one piece of an object.
    """
    places = [reader.manifest.files.in_one_object() for reader in readers]
    wanted: dict[str, list[int]] = {}
    for at, (reader, place) in enumerate(zip(readers, places, strict=True)):
        if place is not None:
            wanted.setdefault(object_key(reader.directory, place[0]), []).append(at)
    out: list[WholePart | None] = [None] * len(readers)

    def fetch(key: str) -> list[Buffer]:
        extents = [place[0] for at in wanted[key] if (place := places[at]) is not None]
        return readers[0].store.get_ranges(key, [(extent.offset, extent.length) for extent in extents])

    for key, bodies in zip(wanted, begin(readers[0].store, fetch, list(wanted))(), strict=True):
        for at, body in zip(wanted[key], bodies, strict=True):
            if (place := places[at]) is not None:
                view = memoryview(body)
                out[at] = WholePart(readers[at], {name: view[start:end] for name, (start, end) in place[1].items()})
    return out


def fetch_whole_part(reader: PartReader) -> WholePart | None:
    """A part's bytes, by one request unless they are in memory; None if they are not in one object."""
    if reader.complete:
        return WholePart(reader, reader.held_files)
    places = reader.manifest.files.in_one_object()
    if places is None:
        return None
    extent, files = places
    body = memoryview(reader.store.get_range(object_key(reader.directory, extent), extent.offset, extent.length))
    return WholePart(reader, {name: body[start:end] for name, (start, end) in files.items()})


class JoinedReader(PartReader):
    """Parts of equal `structure` as one part, each of them a granule."""

    has_index = False

    def __init__(self, parts: Sequence[WholePart]) -> None:
        first = parts[0].reader
        rows = np.array([part.reader.manifest.rows for part in parts], np.int64)
        manifest = replace(first.manifest, rows=int(rows.sum()), marks=len(parts))
        super().__init__(first.store, first.directory, manifest, first.columns, PartCache(), written=first.written)
        self._parts, self._rows = parts, rows

    @property
    def granule_rows(self) -> NDArray[np.int64]:
        """Rows of each part."""
        return self._rows

    @property
    def complete(self) -> bool:
        """Always: all bytes are in memory."""
        return True

    def read(
        self,
        columns: Sequence[str],
        ranges: Sequence[MarkRange] | None = None,
        *,
        batch_rows: int = 0,
        threads: int | None = None,
        ahead: ReadWindow | None = None,
        with_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """All rows of the parts in the ranges, as one batch."""
        if ranges is not None and list(ranges) != [(0, len(self._parts))]:
            some = [part for begin, end in ranges for part in self._parts[begin:end]]
            yield from JoinedReader(some).read(columns)
            return
        together = [name for name in columns if self._is_joined(name)]
        batch = next(super().read(together, batch_rows=self.manifest.rows))
        arrays = {name: batch.column(name) for name in together}
        apart = [name for name in columns if name not in arrays]
        if apart:
            pieces = [piece for part in self._parts for piece in _read_alone(part, apart)]
            arrays |= {name: concatenate([piece.column(name) for piece in pieces]) for name in apart}
        yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], list(columns))

    def _is_joined(self, name: str) -> bool:
        stored = self.layout_name(name)
        return stored is None or self._needs_no_marks(self.layout.columns[stored])

    def _needs_no_marks(self, kind: DataType) -> bool:
        """Also true for dictionaries, one per part, unless they are inside of arrays or maps."""
        if isinstance(kind, Tuple):
            return all(map(self._needs_no_marks, kind.elements))
        return isinstance(kind, LowCardinality) or super()._needs_no_marks(kind)

    def _load_layout(self) -> tuple[Layout, int]:
        layout, size = super()._load_layout()
        return replace(layout, joined=True), size

    def _load_files(self) -> tuple[dict[str, PartFile], int]:
        names = self._parts[0].files
        return {name: PartFile(name, sum(len(part.files[name]) for part in self._parts), ()) for name in names}, 0

    def _fetch(
        self, readers: Mapping[str, ColumnReader], steps: Sequence[ReadStep], under: ReadWindow | None
    ) -> ReadWindow:
        return _Streams(self._parts)

    def small_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """The small files of the first part, which stand for those of all."""
        self._parts[0].reader.hold(self._parts[0].files)
        return self._parts[0].reader.small_files(names)


class _Streams(ReadWindow):
    """Streams of the parts, concatenated on demand."""

    def __init__(self, parts: Sequence[WholePart]) -> None:
        super().__init__((), ())
        self._parts = parts

    def get(self, name: str, start: int, end: int) -> memoryview:
        """Bytes of a stream of all parts."""
        return memoryview(b"".join([part.files[name] for part in self._parts]))[start:end]


def _read_alone(part: WholePart, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    part.reader.hold(part.files)
    return part.reader.read(columns, batch_rows=part.reader.manifest.rows)
