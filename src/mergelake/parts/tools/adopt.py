"""Opening a part directory that ClickHouse wrote as a part of ours.

The files stay in place: the manifest's extents are whole objects in that directory. Wide and Compact parts with any
kind of marks are supported. `PartReader` leaves out rows deleted by a mask (`_row_exists`); projections are kept with
the part but not used. What patch parts change in a part is applied by `patched`; here they are parts as any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.model.manifest import Extent, PartFile, PartManifest, encode_files
from mergelake.core.model.names import PartInfo, patched_partition
from mergelake.core.model.schema import Column
from mergelake.core.types.types import DataType
from mergelake.expr.binder import bind
from mergelake.expr.nodes import ColumnRef
from mergelake.format.codecs.hashes import FileDigest
from mergelake.format.files.checksums import decode_checksums
from mergelake.format.files.columns_txt import decode_columns
from mergelake.format.files.layout import Layout, detect_layout
from mergelake.format.files.source_parts import SOURCE_PARTS, SourceParts, decode_source_parts
from mergelake.format.files.ttl_txt import TTL_FILE, TtlFile, decode_ttl
from mergelake.format.serializations.names import escape_for_file_name, stream_file_name
from mergelake.format.serializations.serialization_json import decode_substreams
from mergelake.format.serializations.siphash import siphash128
from mergelake.format.serializations.tree import is_readable
from mergelake.format.serializations.values import decode_prefix
from mergelake.parts.read.fetch import verified
from mergelake.parts.read.listing import projection_names
from mergelake.parts.read.reader import BLOCK_NUMBER, BLOCK_OFFSET, SYSTEM_COLUMNS
from mergelake.store.interface.protocol import ObjectMeta, Store

_INVALIDATED = "invalidated_system_columns.txt"
"""Names of columns that ClickHouse no longer reads, a line each, since it gave the part another block number."""
_SUBSTREAMS = "columns_substreams.txt"
_SMALL = (
    "columns.txt",
    "count.txt",
    "checksums.txt",
    "serialization.json",
    _SUBSTREAMS,
    "partition.dat",
    SOURCE_PARTS,
    _INVALIDATED,
    TTL_FILE,
)

_DIGITS_MAX = 19
"""Maximum number of digits of a row count."""


NO_TIMES = TtlFile()


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
    row_ids: tuple[str, ...] = ()
    """Which of `_block_number` and `_block_offset` the part tells. For others the block is the part's first, and the
    place in it that in the part."""
    sources: SourceParts | None = None
    """The parts that this one changes, if it is a patch part."""
    ttl: TtlFile = NO_TIMES
    """When its rows expire."""


_STRANGE_MAX = 1000
"""Maximum number of foreign objects in a listing: a mistaken path, like `/`, may have a whole disk below it."""


def open_directory(
    store: Store, prefix: str, *, granularity: int = 8192, listed: Mapping[str, ObjectMeta] | None = None
) -> OpenedPart:
    """Open the part directory at `prefix`, by one listing and a read of its small files.

    `granularity` is the table's `index_granularity`, needed only for `.mrk` parts. `listed` are the directory's files
    by name, if they are known. Raises NO_SUCH_DATA_PART if nothing is there, `CorruptDataError` for files that are
    missing or of another size than `checksums.txt` says.
    """
    prefix = prefix.rstrip("/")
    directory, _, name = prefix.rpartition("/")
    files = _files(store, prefix) if listed is None else listed
    if not files:
        raise NotFoundError(f"There is no part in {store.url} at '{prefix}'", name="NO_SUCH_DATA_PART")
    info = PartInfo.try_parse(name)
    if info and patched_partition(info.partition_id):
        _check_whole(files, prefix)
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
    sources = _sources(small, prefix)
    if sources is not None:
        _check_columns(layout, small, prefix)
    hidden = SYSTEM_COLUMNS if sources is None else ()
    opened = {column: Column(i, column, columns[column]) for i, column in enumerate(columns) if column not in hidden}
    invalidated = small.get(_INVALIDATED, b"").decode(errors="replace").split("\n") if sources is None else []
    row_ids = tuple(id for id in (BLOCK_NUMBER, BLOCK_OFFSET) if id in columns and id not in invalidated)
    return OpenedPart(manifest, opened, directory, projection_names(files), row_ids, sources, _ttl(small, prefix))


def _check_whole(files: Mapping[str, ObjectMeta], prefix: str) -> None:
    """Raise NO_FILE_IN_DATA_PART for a patch part of which not even these files are there."""
    for name in (SOURCE_PARTS, "checksums.txt"):
        if name not in files:
            raise CorruptDataError(
                f"The patch part has no {name}", name="NO_FILE_IN_DATA_PART", object_key=f"{prefix}/{name}"
            )


def _check_columns(layout: Layout, small: Mapping[str, bytes], prefix: str) -> None:
    """Raise `CorruptDataError` if the columns of a patch part are not those of its other files.

    `columns.txt` has no checksum. A wrong name in it would hide what the patch part changes.
    """
    known = decode_substreams(small[_SUBSTREAMS]) if _SUBSTREAMS in small else layout.columns
    try:
        if set(known) == set(layout.columns):
            for name, kind in layout.columns.items():
                if is_readable(kind):
                    layout.data_files(name, kind)
            return
    except CorruptDataError as missing:
        missing.object_key = f"{prefix}/columns.txt"
        raise
    raise CorruptDataError(
        "The columns of the patch part are not those of its other files",
        object_key=f"{prefix}/columns.txt",
        expected=", ".join(known),
        found=", ".join(layout.columns),
    )


def _sources(small: Mapping[str, bytes], prefix: str) -> SourceParts | None:
    if SOURCE_PARTS not in small:
        return None
    try:
        return decode_source_parts(small[SOURCE_PARTS])
    except CorruptDataError as problem:
        problem.object_key = f"{prefix}/{SOURCE_PARTS}"
        raise


def _ttl(small: Mapping[str, bytes], prefix: str) -> TtlFile:
    try:
        return decode_ttl(small.get(TTL_FILE, b""))
    except CorruptDataError as problem:
        problem.object_key = f"{prefix}/{TTL_FILE}"
        raise


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
