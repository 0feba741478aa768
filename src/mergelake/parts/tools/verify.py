"""All checks of a part that are possible without its table, for `mergelake check` and `CHECK TABLE`.

In order: the file table against `checksums.txt`; every file's size and hash; row counts and granules against the marks;
every column decoded (which verifies the checksum of each block); the order of the primary index; the extremes of the
partition's columns; then the same of each projection. All problems are collected, not only the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import (
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnavailableError,
)
from mergelake.core.model.schema import Column
from mergelake.core.types import types as t
from mergelake.format.codecs.hashes import FileHash
from mergelake.format.files.checksums import decode_checksums
from mergelake.format.files.columns_txt import decode_columns
from mergelake.format.files.extremes import extremes, merge_extremes, order_keys
from mergelake.format.files.partition import partitions_of
from mergelake.format.serializations.tree import is_readable
from mergelake.format.serializations.values import decode_values, plain_type
from mergelake.parts.read.fetch import FileRange, fetch, fetch_whole
from mergelake.parts.read.layout import locate
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.projected import kept_projections, projection_entries, projection_folder, projection_manifest
from mergelake.parts.write.writer import UNLISTED

_CHUNK = 8 << 20
_NOT_THE_PART = ("S3_ERROR", "CANNOT_OPEN_FILE", "NETWORK_ERROR")
"""Names of errors of the store, not of the part."""
_ALWAYS_UNLISTED = UNLISTED | {"columns_substreams.txt", "metadata_version.txt", "invalidated_system_columns.txt"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a part."""

    message: str
    file: str = ""
    """File of the part, or empty if the problem is in no particular file."""
    object_key: str = ""
    """Object that holds the file's first bad byte."""
    offset: int = -1
    """Offset in that object, or -1."""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        where = f" in {self.object_key}" if self.object_key else ""
        at = f" at offset {self.offset}" if self.offset >= 0 else ""
        seen = f": expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        return f"{self.message}{where}{at}{seen}"


def check_part(
    reader: PartReader,
    *,
    key_types: Sequence[t.DataType] = (),
    key_descending: Sequence[bool] = (),
    partition_types: Sequence[t.DataType] = (),
    deep: bool = True,
) -> list[Problem]:
    """Check a part; an empty list means that it has no problems.

    Errors of a store that does not answer or denies access are raised. `key_types` and `key_descending` describe the
    primary key, `partition_types` the partition key; without them their checks are omitted. `deep` reads all data;
    without it only small files and marks are read.
    """
    checks: list[Callable[[], Iterator[Problem]]] = [
        lambda: _listed(reader),
        lambda: _counts(reader),
        lambda: _primary(reader, key_types, key_descending),
        lambda: _partition(reader, partition_types),
    ]
    if deep:
        checks[1:1] = [lambda: _hashes(reader)]
        checks += [lambda: _columns(reader), lambda: _minmax(reader)]
    checks.append(lambda: _projections(reader, deep=deep))
    problems: list[Problem] = []
    for check in checks:
        try:
            problems += check()
        except MergelakeError as broken:
            if isinstance(broken, UnavailableError) or (
                isinstance(broken, InvalidInputError) and broken.name in _NOT_THE_PART
            ):
                raise
            problems.append(problem_of(broken))
    return list(dict.fromkeys(problems))


def problem_of(broken: MergelakeError) -> Problem:
    """An error of reading a part as a problem of it."""
    if isinstance(broken, CorruptDataError):
        return Problem(broken.what, "", broken.object_key, broken.offset, broken.expected, broken.found)
    return Problem(broken.what)


def _at(reader: PartReader, name: str, message: str, expected: object, actual: object, offset: int = 0) -> Problem:
    key, place = locate(reader.directory, reader.files[name], offset)
    return Problem(f"{message} (file {name})", name, key, place, str(expected), str(actual))


def _listed(reader: PartReader) -> Iterator[Problem]:
    """The manifest's file table and `checksums.txt` are equal."""
    files = reader.files
    if "checksums.txt" not in files:
        yield Problem("The part has no checksums.txt")
        return
    sums = decode_checksums(reader.fetch_file("checksums.txt"))
    projections = projection_entries(kept_projections(reader.manifest, files.values()))
    for name, digest in sums.items():
        if name.endswith(".proj"):
            if not any(file.startswith(f"{name}/") for file in files):
                yield Problem("A projection of checksums.txt is missing", name, expected="its files", found="none")
            elif projections.get(name, digest) != digest:
                yield _at(reader, "checksums.txt", f"{name} is not what its files are", projections[name], digest)
            continue
        file = files.get(name)
        if file is None:
            yield Problem("A file of checksums.txt is missing", name, expected=f"{digest.size} bytes", found="no file")
        elif file.size != digest.size:
            yield _at(reader, name, "A file has another size than checksums.txt says", digest.size, file.size)
        elif file.hash and file.hash != digest.hash:
            yield _at(reader, name, "Manifest and checksums.txt have different hashes", digest.hash, file.hash)
    for name in files.keys() - sums.keys() - _ALWAYS_UNLISTED:
        if f"{name.partition('.proj/')[0]}.proj" in sums:
            continue  # `checksums.txt` lists a projection as one entry
        yield _at(reader, name, "A file is not in checksums.txt", "an entry", "none")


def _hashes(reader: PartReader) -> Iterator[Problem]:
    """Every file can be read and has its hash."""
    for name, file in sorted(reader.files.items()):
        chain = FileHash()
        try:
            for start in range(0, file.size, _CHUNK):
                part = FileRange(name, start, min(start + _CHUNK, file.size))
                chain.update(fetch(reader.store, reader.directory, reader.files, [part])[0])
        except (CorruptDataError, NotFoundError) as broken:
            yield problem_of(broken)  # names the object once, not each file in it
            continue
        if file.hash and chain.hexdigest() != file.hash:
            yield _at(reader, name, "The hash of a file does not match", file.hash, chain.hexdigest())


def _counts(reader: PartReader) -> Iterator[Problem]:
    """Rows and columns of the small files, the marks and the manifest agree."""
    manifest = reader.manifest
    if "count.txt" in reader.files and (text := reader.fetch_file("count.txt")) != str(manifest.rows).encode():
        yield _at(reader, "count.txt", "The row count differs from the manifest's", manifest.rows, repr(text[:20]))
    columns = decode_columns(reader.fetch_file("columns.txt"))
    if len(columns) != len(manifest.columns):
        yield _at(reader, "columns.txt", "The columns differ from the manifest's", len(manifest.columns), len(columns))
        return
    rows = reader.granule_rows
    if len(rows) != manifest.marks:
        yield Problem("The marks differ from the manifest's", expected=str(manifest.marks), found=str(len(rows)))
    reader.warm([name for name, kind in _present(reader).items() if is_readable(kind)])


def _present(reader: PartReader) -> dict[str, t.DataType]:
    """The columns that the part has, and those of the system."""
    own = {name: column.type for name, column in reader.columns.items() if reader.has_column(name)}
    return own | {name: reader.layout.columns[name] for name in reader.system_columns}


def _columns(reader: PartReader) -> Iterator[Problem]:
    """Every column decodes to the part's number of rows; of unsupported columns only hashes are checked."""
    alive = reader.live_rows
    everything = [(0, len(reader.granule_rows))]  # an explicit range, so that the marks of each column are used
    for name, kind in _present(reader).items():
        if not is_readable(kind):
            continue
        try:
            rows = sum(batch.num_rows for batch in reader.read([name], everything))
        except MergelakeError as broken:
            yield problem_of(broken)
            continue
        if rows != alive:
            yield Problem(f"Column {name} has other rows than the part", "", "", -1, str(alive), str(rows))


def _projections(reader: PartReader, *, deep: bool) -> Iterator[Problem]:
    """The problems of each projection, which is a part of its own."""
    for name in reader.manifest.projections:
        (text,) = fetch_whole(reader.store, reader.directory, reader.files, [f"{projection_folder(name)}columns.txt"])
        columns = {
            column: Column(at, column, kind) for at, (column, kind) in enumerate(decode_columns(bytes(text)).items())
        }
        manifest = projection_manifest(reader.manifest, name, columns.values())
        inner = PartReader(reader.store, reader.directory, manifest, columns)
        for problem in check_part(inner, deep=deep):
            yield replace(problem, message=f"Projection {name}: {problem.message}")


def _primary(reader: PartReader, types: Sequence[t.DataType], descending: Sequence[bool]) -> Iterator[Problem]:
    """The primary index is ascending (descending where the key is)."""
    index = reader.primary_index(types)
    if not index:
        return
    name = "primary.idx" if "primary.idx" in reader.files else "primary.cidx"
    backward = [*descending, *[False] * (len(types) - len(descending))][: len(types)]
    before = np.zeros(len(index[0]) - 1, bool)  # decided by an earlier column: the mark comes before the next one
    wrong = np.zeros_like(before)
    columns = [
        (piece, kind, back)
        for whole, outer, back in zip(index, types, backward, strict=True)
        for piece, kind in _comparable(whole, outer)
    ]
    for array, kind, back in columns:
        ranks = pc.rank(order_keys(array, plain_type(kind)), tiebreaker="dense").to_numpy().astype(np.int64)
        steps = -np.diff(ranks) if back else np.diff(ranks)
        wrong |= ~before & (steps < 0)
        before |= steps > 0
    for mark in np.flatnonzero(wrong)[:1]:
        yield _at(
            reader, name, f"The primary index is not in order at mark {mark + 1}", "an ascending key", "a smaller one"
        )


def _comparable(array: pa.Array, kind: t.DataType) -> Iterator[tuple[pa.Array, t.DataType]]:
    """A column, or the elements of a tuple, which compare one after the other."""
    if isinstance(kind, t.Tuple):
        for number, element in enumerate(kind.elements):
            yield from _comparable(array.field(number), element)
    else:
        yield from () if pa.types.is_null(array.type) else [(array, kind)]  # like `k * NULL`, all values are equal


def _partition(reader: PartReader, types: Sequence[t.DataType]) -> Iterator[Problem]:
    """`partition.dat` equals the manifest's partition value and gives the partition id."""
    manifest = reader.manifest
    if "partition.dat" not in reader.files:
        if manifest.partition or types:
            yield Problem("The part has no partition.dat", "partition.dat")
        return
    data = reader.fetch_file("partition.dat")
    if data.hex() != manifest.partition:
        yield _at(reader, "partition.dat", "The partition differs from the manifest's", manifest.partition, data.hex())
    if types:
        (partition,) = partitions_of(decode_values(data, types, 1), types)
        if partition.id != manifest.partition_id:
            yield _at(reader, "partition.dat", "The partition has another id", manifest.partition_id, partition.id)


def _minmax(reader: PartReader) -> Iterator[Problem]:
    """All values lie within the extremes of the manifest, which may be wider after merges."""
    names = {reader.layout_name(name): name for name in _present(reader)}
    for stored, (low, high) in reader.manifest.minmax.items():
        if stored not in names or not reader.manifest.rows:
            continue
        kind = reader.layout.columns[stored]
        if isinstance(plain_type(kind), (t.Array, t.Map, t.Tuple)):
            continue  # these types are not ordered here
        recorded = (bytes.fromhex(low), bytes.fromhex(high))
        seen = [extremes(batch.column(0), kind) for batch in reader.read([names[stored]])]
        if merge_extremes([recorded, *seen], kind) != recorded:
            actual = merge_extremes(seen, kind)
            yield Problem(
                f"Values of column {stored} lie outside of its minimum and maximum",
                expected=f"{low} to {high}",
                found=f"{actual[0].hex()} to {actual[1].hex()}",
            )
