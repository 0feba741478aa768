"""Description of any part directory: files, columns, codecs, granules and index rows.

A part does not store what its primary key is, but it can usually be inferred: `primary.idx` holds the key of the first
and of the last row, and the columns hold the same values. A sequence of columns whose values match is reported. If
several sequences match, or the key has expressions, no columns are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import CorruptDataError, MergelakeError
from mergelake.core.convert.text_write import to_text
from mergelake.core.model.names import PartInfo, patched_partition
from mergelake.core.types import types as t
from mergelake.expr.binder import bind
from mergelake.expr.nodes import ColumnRef
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.serializations.values import decode_values, encode_values
from mergelake.parts.read.fetch import verified
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.inspect_columns import ColumnFacts, column_facts
from mergelake.parts.tools.inspect_indexes import IndexFacts, ProjectionFacts, index_facts, projection_facts
from mergelake.parts.tools.patches import PatchPart, find_patches
from mergelake.parts.tools.verify import Problem, check_part, problem_of

_INFERRED_MAX = 100_000
"""Maximum number of steps of the search for the key."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file."""

    name: str
    size: int
    uncompressed_size: int
    """-1 for a file that is not compressed."""
    checksum: str
    """`listed` in checksums.txt, or `unlisted`."""


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The output of `mergelake part inspect`."""

    name: str
    location: str
    part_type: str
    mark_type: str
    rows: int
    marks: int
    final_mark: bool
    granule_rows: tuple[int, int]
    """Minimum and maximum of the rows of a granule."""
    size: int
    uncompressed_size: int
    partition_id: str
    partition: str
    """`partition.dat`, in hex."""
    minmax: dict[str, tuple[str, str]]
    key: tuple[str, ...]
    """Columns of the primary key, if they could be inferred."""
    first_key: tuple[str, ...]
    """Their values in the first row."""
    last_key: tuple[str, ...]
    default_codec: str
    files: tuple[FileFacts, ...] = ()
    columns: tuple[ColumnFacts, ...] = ()
    indexes: tuple[IndexFacts, ...] = ()
    projections: tuple[ProjectionFacts, ...] = ()
    deleted_rows: int = 0
    """Rows that a mask (`_row_exists`) deletes; `rows` counts them."""
    patches: tuple[str, ...] = ()
    """Names of the patch parts beside it that change its rows; nothing else here knows of them."""
    problems: tuple[str, ...] = field(default=())
    """Problems that the check reported."""

    @property
    def ratio(self) -> float:
        """Compression ratio: uncompressed bytes over bytes on disk."""
        data = sum(file.size for file in self.files if file.uncompressed_size >= 0 and file.name.endswith(".bin"))
        return self.uncompressed_size / data if data else 1.0


def inspect_part(reader: PartReader, name: str, *, check: str = "fast") -> PartFacts:
    """Inspect an opened part; `check` is `none`, `fast` (small files and marks) or `full` (all bytes)."""
    manifest, layout = reader.manifest, reader.layout
    listed = {file for file, part in reader.files.items() if part.hash}
    granules = reader.granule_rows
    problems: list[Problem] = [] if check == "none" else check_part(reader, deep=check == "full")
    key: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    try:
        if index := _index_bytes(reader):
            key, first, last = _key(reader, index)
    except MergelakeError as broken:
        problems.append(Problem(broken.what, getattr(broken, "object_key", "")))
    patches: list[PatchPart] = []
    try:
        if (info := PartInfo.try_parse(name)) and not patched_partition(info.partition_id):
            patches = find_patches(reader.store, reader.directory, info)
    except MergelakeError as broken:
        problems.append(problem_of(broken))
    codec = _text(reader, "default_compression_codec.txt")
    return PartFacts(
        name,
        f"{reader.store.url.rstrip('/')}/{name}",
        manifest.part_type,
        layout.mark_extension,
        manifest.rows,
        len(granules),
        _has_final_mark(reader),
        (int(granules.min()), int(granules.max())) if len(granules) else (0, 0),
        manifest.bytes_on_disk,
        manifest.bytes_uncompressed,
        manifest.partition_id,
        manifest.partition,
        {column: _extremes(reader, column, pair) for column, pair in manifest.minmax.items()},
        key,
        first,
        last,
        codec.removeprefix("CODEC(").removesuffix(")"),
        tuple(
            FileFacts(file.name, file.size, file.uncompressed_size, "listed" if file.name in listed else "unlisted")
            for _, file in sorted(reader.files.items())
        ),
        tuple(column_facts(reader)),
        tuple(index_facts(reader)),
        tuple(projection_facts(reader, name)),
        manifest.rows - reader.live_rows,
        tuple(patch.name for patch in patches),
        tuple(map(str, problems)),
    )


def _text(reader: PartReader, name: str) -> str:
    if name not in reader.files:
        return ""
    return reader.fetch_file(name).decode(errors="replace")


def _verified(reader: PartReader, name: str) -> bytes:
    return verified(reader.store, reader.directory, reader.files[name], reader.fetch_file(name))


def _has_final_mark(reader: PartReader) -> bool:
    layout = reader.layout
    name, kind = next(iter(layout.columns.items()))
    file = layout.mark_files(name, kind)[0]
    marks = layout.parse_marks(file, _verified(reader, file))
    return len(marks.rows) > marks.granules


def _extremes(reader: PartReader, column: str, pair: tuple[str, str]) -> tuple[str, str]:
    kind = bind(ColumnRef(column), reader.layout.columns).type
    values = decode_values(bytes.fromhex(pair[0] + pair[1]), [kind], 2)[0]
    low, high = _shown(values, kind)
    return low, high


def _shown(array: pa.Array, kind: t.DataType) -> list[str]:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    texts = to_text(plain, kind.inner if isinstance(kind, t.LowCardinality) else kind).to_pylist()
    return ["NULL" if x is None else x.decode(errors="replace") if isinstance(x, bytes) else x for x in texts]


# -- primary key -------------------------------------------------------------------------------


def _index_bytes(reader: PartReader) -> bytes:
    """The uncompressed bytes of the primary index; empty if there is none."""
    name = next((name for name in ("primary.idx", "primary.cidx") if name in reader.files), None)
    if name is None or not reader.manifest.rows:
        return b""
    raw = _verified(reader, name)
    return decode_compressed_blocks(raw) if name.endswith(".cidx") else raw


def _key(reader: PartReader, index: bytes) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Names of the key's columns, their values in the first row, and in the last.

    Empty if no key can be inferred; names are `?` if several keys of equal types match.
    """
    marks = len(reader.granule_rows)
    records = marks + int(_has_final_mark(reader))
    names = [name for name in reader.columns if reader.has_column(name) and _can_be_key(reader, name)]
    ends = {name: pair for name in names if (pair := _ends(reader, name, final=records > marks))}
    candidates = [key for key in _fitting(index, ends) if _spans(reader, index, key, records, ends)]
    if not candidates:
        return (), (), ()
    kinds = [[str(reader.columns[name].type) for name in key] for key in candidates]
    if any(each != kinds[0] for each in kinds):
        return (), (), ()
    values = decode_values(index, [reader.columns[name].type for name in candidates[0]], records)
    shown = [_shown(array, reader.columns[name].type) for array, name in zip(values, candidates[0], strict=True)]
    names_known = candidates[0] if len(candidates) == 1 else tuple("?" for _ in candidates[0])
    return names_known, tuple(column[0] for column in shown), tuple(column[-1] for column in shown)


def _can_be_key(reader: PartReader, name: str) -> bool:
    kind = t.inner_type(reader.columns[name].type)
    return not isinstance(kind, (t.Array, *t.UNORDERED))


def _ends(reader: PartReader, name: str, *, final: bool) -> tuple[bytes, bytes] | None:
    """A column's value at the first mark and at the last (`final`: in the last row), encoded as in the index.

    None for a column that cannot be read there.
    """
    marks = len(reader.granule_rows)
    kind = reader.columns[name].type
    try:
        heads = [batch for batch in reader.read([name], [(0, 1)]) if batch.num_rows]
        batches = [batch for batch in reader.read([name], [(marks - 1, marks)]) if batch.num_rows]
    except MergelakeError:
        return None
    if not heads or not batches:  # all rows of the granule are deleted
        return None
    first = heads[0].column(0).slice(0, 1)
    last = batches[-1].column(0).slice(batches[-1].num_rows - 1) if final else batches[0].column(0).slice(0, 1)
    return encode_values([first], [kind]), encode_values([last], [kind])


def _fitting(index: bytes, ends: dict[str, tuple[bytes, bytes]]) -> list[tuple[str, ...]]:
    """Sequences of distinct columns whose first values are a prefix, and whose last values are a suffix, of the index.

    Empty if the search exceeds `_INFERRED_MAX` steps: a part of the sequences would not show that there are others.
    """
    by_first: dict[bytes, list[str]] = {}
    for name, (low, _) in ends.items():
        if low:
            by_first.setdefault(low, []).append(name)
    lengths = sorted({len(low) for low in by_first})
    keys: list[tuple[str, ...]] = []
    prefixes: list[tuple[tuple[str, ...], int, bytes]] = [((), 0, b"")]
    steps = 0
    while prefixes:
        key, at, last = prefixes.pop()
        for length in lengths:
            if at + length > len(index):
                break
            for name in by_first.get(index[at : at + length], ()):
                steps += 1
                if steps > _INFERRED_MAX:
                    return []
                if name in key:
                    continue
                longer, tail = (*key, name), last + ends[name][1]
                if index.endswith(tail):
                    keys.append(longer)
                prefixes.append((longer, at + length, tail))
    return keys


def _spans(
    reader: PartReader, index: bytes, key: Sequence[str], records: int, ends: dict[str, tuple[bytes, bytes]]
) -> bool:
    """Whether the index decodes to exactly `records` keys of these columns, with the expected first and last one."""
    kinds = [reader.columns[name].type for name in key]
    try:
        arrays = decode_values(index, kinds, records)
    except (CorruptDataError, ValueError):
        return False
    rows = np.array([0, records - 1])
    picked = [array.take(pa.array(rows)) for array in arrays]
    low = encode_values([array.slice(0, 1) for array in picked], kinds)
    high = encode_values([array.slice(1, 1) for array in picked], kinds)
    return low == b"".join(ends[n][0] for n in key) and high == b"".join(ends[n][1] for n in key)
