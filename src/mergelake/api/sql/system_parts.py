"""`system.parts`, `system.parts_columns` and `system.data_skipping_indices`: from the log alone, no part is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mergelake.core.model.manifest import PartFile, PartManifest
from mergelake.core.types import types as t
from mergelake.core.types.single_value import read_value
from mergelake.engines.order.keys import key_tree
from mergelake.engines.projections.projections import table_projections
from mergelake.engines.ttl.ttl import TableTtl
from mergelake.expr.nodes import column_name
from mergelake.format.codecs.hashes import FileDigest
from mergelake.format.serializations.names import escape_for_file_name, stream_file_name
from mergelake.format.serializations.siphash import siphash128
from mergelake.jobs.merge.ttl import part_infos
from mergelake.parts.write.projected import kept_projections, projection_entries
from mergelake.parts.write.writer import UNLISTED, digest_of

if TYPE_CHECKING:
    from mergelake.api.python.table import Table

_MARKS = re.compile(r"\.c?mrk\d?$")
_INDEX = "skp_idx_"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of some files of a part."""

    data: int = 0
    """Of `.bin` and index files, on disk."""
    plain: int = 0
    """The same after decompression."""
    marks: int = 0

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(self.data + other.data, self.plain + other.plain, self.marks + other.marks)

    @property
    def all(self) -> int:
        """Data and marks on disk."""
        return self.data + self.marks


def sizes_of(file: PartFile) -> Sizes:
    """The bytes that one file contributes."""
    if _MARKS.search(file.name):
        return Sizes(marks=file.size)
    return Sizes(file.size, max(file.uncompressed_size, 0))


def _sum(files: Mapping[str, PartFile], wanted: Iterator[str]) -> Sizes:
    return sum((sizes_of(files[name]) for name in wanted), Sizes())


def part_facts(manifest: PartManifest) -> dict[str, Any]:
    """Columns of `system.parts` that are computed from the files of an active part."""
    files = manifest.file_table()
    indexes = _sum(files, (name for name in files if name.startswith(_INDEX)))
    columns = _sum(
        files,
        (n for n in files if not n.startswith(_INDEX) and (n.endswith(".bin") or _MARKS.search(n)) and "/" not in n),
    )
    key = next((files[name].size for name in ("primary.idx", "primary.cidx") if name in files), 0)
    listed = _listed(manifest, files)
    whole, plain, compressed = hashes_of(listed)
    return {
        "files": len(listed),
        "data_compressed_bytes": columns.data,
        "marks_bytes": columns.marks,
        "primary_key_size": key,
        "secondary_indices_compressed_bytes": indexes.data,
        "secondary_indices_uncompressed_bytes": indexes.plain,
        "secondary_indices_marks_bytes": indexes.marks,
        "hash_of_all_files": whole,
        "hash_of_uncompressed_files": plain,
        "uncompressed_hash_of_compressed_files": compressed,
    }


def moments(manifest: PartManifest, types: Mapping[str, t.DataType]) -> dict[str, int]:
    """`min_date` to `max_time`: the bounds of the partition key's only Date, or else of its only DateTime.

    Source: ClickHouse, `MergeTreeData::checkPartitionKeyAndInitMinMax`.
    """
    for names, ends, kinds in (
        ("min_date", "max_date", (t.Date,)),
        ("min_time", "max_time", (t.DateTime, t.DateTime64)),
    ):
        candidates = [column for column in manifest.minmax if isinstance(types.get(column), kinds)]
        if len(candidates) == 1:
            kind = types[candidates[0]]
            ticks = 10**kind.precision if isinstance(kind, t.DateTime64) else 1
            low, high = (int(read_value(bytes.fromhex(text), 0, kind)[0]) for text in manifest.minmax[candidates[0]])
            return {names: low // ticks, ends: high // ticks}
        if candidates:
            break
    return {}


def expiry_moments(manifest: PartManifest, ttl: TableTtl) -> dict[str, int]:
    """`delete_ttl_info_min` and `…_max`: when the rows of a part expire by the TTL of the table without WHERE."""
    info = part_infos(manifest, ttl).get(ttl.rows.key) if ttl.rows is not None else None
    return {} if info is None else {"delete_ttl_info_min": info.min, "delete_ttl_info_max": info.max}


def _listed(manifest: PartManifest, files: Mapping[str, PartFile]) -> dict[str, FileDigest]:
    """What `checksums.txt` lists: a projection is one entry."""
    own = {n: digest_of(file) for n, file in files.items() if file.hash and n not in UNLISTED and "/" not in n}
    return {**own, **projection_entries(kept_projections(manifest, files.values()))}


def hashes_of(listed: Mapping[str, FileDigest]) -> tuple[str, str, str]:
    """Hashes of all files, of the uncompressed ones, and of the plain bytes of the compressed ones: 32 hex digits each.

    Source: ClickHouse, `MinimalisticDataPartChecksums::computeTotalChecksums`.
    """
    texts = [b"", b"", b""]
    for name in sorted(listed):
        file, encoded = listed[name], name.encode(errors="surrogateescape")
        named = len(encoded).to_bytes(8, "little") + encoded
        texts[0] += named + bytes.fromhex(file.hash)
        if file.uncompressed_size < 0:
            texts[1] += named + bytes.fromhex(file.hash)
        else:
            texts[2] += named + bytes.fromhex(file.uncompressed_hash)
    whole, plain, compressed = (siphash128(text)[::-1].hex() for text in texts)
    return whole, plain, compressed


def part_columns(table: Table) -> Iterator[dict[str, Any]]:
    """One row for each column of each active part, `name` being the part's; the mask of a DELETE is one.

    Columns of a Compact part share one file, so their sizes are 0.
    """
    state = table.handle.log.state
    for part in state.parts():
        files = part.manifest.file_table()
        held = set(part.manifest.columns)
        taken: set[str] = set()
        by_stem: dict[str, list[str]] = {}
        for name in files:
            by_stem.setdefault(_first_stem(name), []).append(name)
        columns = state.schemas[part.manifest.schema_version].columns
        if part.manifest.masked:
            from mergelake.parts.write.rewrite import MASK

            columns = (*columns, MASK)
        for position, column in enumerate(columns, 1):
            if column.id not in held:
                continue
            near = by_stem.get(_first_stem(escape_for_file_name(column.name)), ())
            own = {name for name in near if _belongs(name, column.name)} - taken
            taken |= own
            sizes = _sum(files, iter(own))
            yield {
                "name": part.name,
                "column": column.name,
                "type": str(column.type),
                "column_position": position,
                "default_kind": column.default_kind,
                "default_expression": column.default,
                "column_bytes_on_disk": sizes.all,
                "column_data_compressed_bytes": sizes.data,
                "column_data_uncompressed_bytes": sizes.plain,
                "column_marks_bytes": sizes.marks,
            }


def _first_stem(name: str) -> str:
    """A file's name up to the first dot, written or escaped: all files of a column share it with the column."""
    return name.partition(".")[0].partition("%2E")[0]


def _belongs(file: str, column: str) -> bool:
    """Whether a file of a Wide part holds data or marks of the column, or sizes that it shares with other columns."""
    if not (file.endswith(".bin") or _MARKS.search(file)) or "/" in file:
        return False
    stem = escape_for_file_name(column)
    group = column.partition(".")[0]
    shared = group != column and file.startswith(f"{escape_for_file_name(group)}.size")
    return shared or file.startswith((f"{stem}.", f"{stem}%2E", f"{stream_file_name(stem)}."))


def index_rows(table: Table) -> Iterator[dict[str, Any]]:
    """One row for each skip index of the table, sizes summed over its active parts."""
    parts = [(part.manifest.schema_version, part.manifest.file_table()) for part in table.handle.log.state.parts()]
    for index in table.schema.indices:
        stem = f"{_INDEX}{escape_for_file_name(index.name)}."
        files = [held for version, held in parts if index.is_of(version)]
        sizes = sum((_sum(held, (n for n in held if n.startswith(stem))) for held in files), Sizes())
        yield {
            "name": index.name,
            "type": index.type.partition("(")[0],
            "type_full": index.type,
            "expr": index.expression,
            "creation": "Explicit",
            "granularity": index.granularity,
            "data_compressed_bytes": sizes.data,
            "data_uncompressed_bytes": sizes.plain,
            "marks_bytes": sizes.marks,
        }


def projection_rows(table: Table) -> Iterator[dict[str, Any]]:
    """One row for each projection of the table."""
    for projection in table_projections(table.schema):
        keys = projection.schema.order_by
        yield {
            "name": projection.name,
            "type": "Aggregate" if projection.aggregate else "Normal",
            "sorting_key": [column_name(key_tree(key, projection.schema.names)) for key in keys],
            "query": projection.query,
            "settings": [],
        }
