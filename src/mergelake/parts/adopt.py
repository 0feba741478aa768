"""Opening a part directory that ClickHouse wrote as a part of ours.

The files stay in place: the manifest's extents are whole objects in that directory. Wide and Compact parts with any
kind of marks are supported. `PartReader` leaves out rows deleted by a mask (`_row_exists`); projections are kept with
the part but not used. Patch parts are refused: ignoring them would give wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError, error
from mergelake.core.manifest import Extent, PartFile, PartManifest, encode_files
from mergelake.core.names import PartInfo
from mergelake.core.schema import Column
from mergelake.core.types import DataType
from mergelake.expr.binder import bind
from mergelake.expr.nodes import ColumnRef
from mergelake.format.checksums import decode_checksums
from mergelake.format.columns_txt import decode_columns
from mergelake.format.hashes import FileDigest
from mergelake.format.layout import detect_layout
from mergelake.format.names import escape_for_file_name, stream_file_name
from mergelake.format.siphash import siphash128
from mergelake.format.values import decode_prefix
from mergelake.parts.fetch import verified
from mergelake.parts.listing import projection_names
from mergelake.parts.reader import ROW_EXISTS
from mergelake.store.protocol import ObjectMeta, Store

_SMALL = ("columns.txt", "count.txt", "checksums.txt", "serialization.json", "columns_substreams.txt", "partition.dat")


_DIGITS_MAX = 19
"""Maximum number of digits of a row count."""


@dataclass(frozen=True, slots=True)
class OpenedPart:
    """A part directory, ready for `PartReader(store, opened.directory, opened.manifest, opened.columns)`."""

    manifest: PartManifest
    columns: dict[str, Column]
    """Columns in the order of `columns.txt`; ids count from 0."""
    directory: str
    """Directory of the part in the store."""
    projections: tuple[str, ...] = ()
    """Names of the part's projections. Their files are in the manifest, but are not read."""


_STRANGE_MAX = 1000
"""Maximum number of foreign objects in a listing: a mistaken path, like `/`, may have a whole disk below it."""


def open_directory(store: Store, prefix: str, *, granularity: int = 8192) -> OpenedPart:
    """Open the part directory at `prefix`, by one listing and a read of its small files.

    `granularity` is the table's `index_granularity`, needed only for `.mrk` parts. Raises NO_SUCH_DATA_PART if nothing
    is there, `CorruptDataError` for files that are missing or of another size than `checksums.txt` says,
    NOT_IMPLEMENTED for patch parts.
    """
    prefix = prefix.rstrip("/")
    directory, _, name = prefix.rpartition("/")
    files = _files(store, prefix)
    if not files:
        raise NotFoundError(f"There is no part in {store.url} at '{prefix}'", name="NO_SUCH_DATA_PART")
    if name.startswith("patch-") or "source_parts.dat" in files:
        raise error("NOT_IMPLEMENTED", f"{prefix} is a patch part", "Run OPTIMIZE in ClickHouse first")
    small = {file: store.get(files[file].key) for file in _SMALL if file in files}
    columns = _columns(small, prefix)
    sums = _checksums(small, files)
    table = {file: _part_file(file, meta, name, sums.get(file)) for file, meta in sorted(files.items())}

    def whole(file: str) -> bytes:
        return verified(store, directory, table[file], store.get(files[file].key))

    for file, data in small.items():
        verified(store, directory, table[file], data)
    rows = _rows(small, prefix)
    layout = detect_layout(files, small, columns, granularity=granularity, rows=rows)
    first, kind = next(iter(columns.items()))
    mark_file = layout.mark_files(first, kind)[0]
    marks = layout.parse_marks(mark_file, whole(mark_file))
    info = PartInfo.try_parse(name)
    manifest = PartManifest(
        id=siphash128(f"{store.url}\n{prefix}\n".encode() + small.get("checksums.txt", b"")).hex(),
        partition_id=info.partition_id if info else "all",
        rows=rows,
        files=encode_files(table.values()),
        partition=small.get("partition.dat", b"").hex(),
        minmax=_minmax(whole, files, columns),
        marks=marks.granules,
        bytes_on_disk=sum(file.size for file in table.values()),
        bytes_uncompressed=sum(
            f.uncompressed_size for f in table.values() if f.name.endswith(".bin") and f.uncompressed_size > 0
        ),
        columns=tuple(range(len(columns))),
        part_type="Compact" if layout.compact else "Wide",
        level=info.level if info else 0,
        created_ms=max(meta.modified_ms for meta in files.values()),
    )
    # The mask of deleted rows is not a column of the table: `PartReader` applies it.
    opened = {column: Column(i, column, columns[column]) for i, column in enumerate(columns) if column != ROW_EXISTS}
    return OpenedPart(manifest, opened, directory, projection_names(files))


def _files(store: Store, prefix: str) -> dict[str, ObjectMeta]:
    """The files of a part and its projections. Raises NO_SUCH_DATA_PART for a directory with too many other files."""
    files: dict[str, ObjectMeta] = {}
    strange = 0
    for meta in store.list(prefix):
        file = meta.key[len(prefix) + 1 :] if prefix else meta.key
        if "/" not in file or ".proj/" in file:
            files[file] = meta
            continue
        strange += 1
        if strange > _STRANGE_MAX:
            message = f"What is in {store.url} at '{prefix}' is no part: it has directories with many files"
            raise NotFoundError(message, name="NO_SUCH_DATA_PART")
    return files


def _columns(small: Mapping[str, bytes], prefix: str) -> dict[str, DataType]:
    if "columns.txt" not in small:
        raise CorruptDataError("The part has no columns.txt", name="NO_FILE_IN_DATA_PART", object_key=prefix)
    return decode_columns(small["columns.txt"])


def _rows(small: Mapping[str, bytes], prefix: str) -> int:
    text = small.get("count.txt", b"").strip()
    if not text.isdigit() or len(text) > _DIGITS_MAX:
        raise CorruptDataError(
            "The part has no row count", object_key=f"{prefix}/count.txt", expected="a number", found=repr(text[:20])
        )
    return int(text)


def _checksums(small: Mapping[str, bytes], files: Mapping[str, ObjectMeta]) -> dict[str, FileDigest]:
    """The part's checksums (none without `checksums.txt`), after comparing them with the sizes of its files."""
    if "checksums.txt" not in small:
        return {}
    try:
        sums = decode_checksums(small["checksums.txt"])
    except CorruptDataError as problem:
        problem.object_key = problem.object_key or files["checksums.txt"].key
        raise
    for file, digest in sums.items():
        if file.endswith(".proj"):
            continue
        size = files[file].size if file in files else None
        if size != digest.size:
            raise CorruptDataError(
                "A file of the part is missing" if size is None else "A file of the part has another size",
                name="BAD_SIZE_OF_FILE_IN_DATA_PART",
                object_key=files["checksums.txt"].key.rpartition("/")[0] + "/" + file,
                offset=min(size or 0, digest.size),
                expected=f"{digest.size} bytes",
                found="no file" if size is None else f"{size} bytes",
            )
    return sums


def _part_file(file: str, meta: ObjectMeta, name: str, digest: FileDigest | None) -> PartFile:
    extents = (Extent(f"{name}/{file}" if name else file, 0, meta.size),)
    if digest is None:
        return PartFile(file, meta.size, extents)
    return PartFile(file, meta.size, extents, digest.hash, digest.uncompressed_size, digest.uncompressed_hash)


def _minmax(
    whole: Callable[[str], bytes], files: Mapping[str, ObjectMeta], columns: Mapping[str, DataType]
) -> dict[str, tuple[str, str]]:
    """Minima and maxima by column or subcolumn, as the `minmax_*.idx` files are named."""
    kinds = {f"minmax_{stream_file_name(escape_for_file_name(name))}.idx": (name, columns[name]) for name in columns}
    out: dict[str, tuple[str, str]] = {}
    for file in files:
        if not (file.startswith("minmax_") and file.endswith(".idx")):
            continue
        name, kind = kinds.get(file) or _subcolumn(unquote(file[7:-4], errors="surrogateescape"), columns)
        if kind is not None:
            data = whole(file)
            _, middle = decode_prefix(data, [kind], 1)
            out[name] = (data[:middle].hex(), data[middle:].hex())
    return out


def _subcolumn(name: str, columns: Mapping[str, DataType]) -> tuple[str, DataType | None]:
    """A subcolumn and its type; None for an unknown subcolumn."""
    try:
        return name, bind(ColumnRef(name), columns).type
    except MergelakeError:
        return name, None
