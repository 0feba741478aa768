"""Tables of the oracle, and their parts as directories."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mergelake.core.types.types import DataType
from mergelake.parts.read.listing import plain_files

CLASSIC = (
    "min_bytes_for_wide_part=0, min_bytes_for_full_part_storage=0, serialization_info_version='basic', "
    "string_serialization_version='single_stream', propagate_types_serialization_versions_to_nested_types=0, "
    "ratio_of_defaults_for_sparse_serialization=1, compress_marks=0, compress_primary_key=0, "
    "write_marks_for_substreams_in_compact_parts=0, packed_skip_index_max_bytes=0, auto_statistics_types='', "
    "compute_exact_num_defaults_for_sparse_columns=0, allow_nullable_key=1"
)
"""Settings with which ClickHouse writes parts in the profile in which we write."""


def create(
    oracle: Any,
    name: str,
    types: Mapping[str, DataType],
    *,
    order_by: str,
    partition_by: Sequence[str] = (),
    settings: str = CLASSIC,
    codec: str = "",
) -> None:
    """Make an empty MergeTree table."""
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    columns = ", ".join(f"`{column}` {kind}{codec and f' CODEC({codec})'}" for column, kind in types.items())
    partition = f"PARTITION BY ({', '.join(partition_by)})" if partition_by else ""
    oracle.query(
        f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree {partition} ORDER BY {order_by} SETTINGS {settings}"
    )


def part_paths(oracle: Any, name: str) -> dict[str, Path]:
    """Directories of the active parts by name."""
    text = str(
        oracle.query(
            f"SELECT name, path FROM system.parts WHERE database = currentDatabase() AND table = '{name}' AND active",
            "TSV",
        )
    )
    return {line.split("\t")[0]: Path(line.split("\t")[1]) for line in text.splitlines()}


def data_path(oracle: Any, name: str) -> Path:
    """The table's directory."""
    sql = (
        f"SELECT arrayElement(data_paths, 1) FROM system.tables WHERE database = currentDatabase() AND name = '{name}'"
    )
    return Path(str(oracle.query(sql, "TSV")).strip())


def attach(oracle: Any, name: str, part: str, store: Any, directory: str, manifest: Any) -> Path:
    """Lay a part of ours out in `detached` and attach it; returns the copy that was laid out."""
    target = data_path(oracle, name) / "detached" / part
    target.mkdir(parents=True)
    for file, chunks in plain_files(store, directory, manifest):
        (target / file).parent.mkdir(exist_ok=True)  # a projection has a directory of its own
        (target / file).write_bytes(b"".join(map(bytes, chunks)))
    kept = target.parent.parent.parent / f"kept_{part}_{name}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(target, kept)
    oracle.query(f"ALTER TABLE {name} ATTACH PART '{part}'")
    return kept
