"""`serialization.json` and `columns_substreams.txt`: how newer ClickHouse says a part's columns lie.

`serialization.json` tells which columns are sparse and whether strings have a stream of lengths;
`columns_substreams.txt` gives the order of streams in the marks of a Compact part. We write neither (their
absence means the oldest form) and read both. What we do not know we refuse: a wrong guess is a wrong answer.

Source: ClickHouse, `SerializationInfo.cpp`, `ColumnsSubstreams.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.base.json_load import loads
from mergelake.core.base.text import unescape

_VERSION_MAX = 1
_SUBSTREAMS_HEADER = "columns substreams version: 1"


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """How one column (or tuple element) is stored."""

    sparse: bool = False
    """Whether only values that are not the default are stored."""
    nullable: bool = False
    """Whether a Nullable column may be sparse, its NULLs left out."""
    elements: tuple[ColumnKind, ...] = ()
    """Kinds of a tuple's elements in order; empty where all are ordinary."""

    @property
    def any_sparse(self) -> bool:
        """Whether the column or something in it is sparse."""
        return self.sparse or any(element.any_sparse for element in self.elements)


@dataclass(frozen=True, slots=True)
class SerializationInfo:
    """The part of `serialization.json` that a reader needs."""

    columns: Mapping[str, ColumnKind] = field(default_factory=dict)
    """Columns that are not listed are ordinary."""
    string_sizes: bool = False
    """Whether String columns (and strings in tuples) keep their lengths in a stream of their own."""
    string_sizes_nested: bool = False
    """Whether strings inside arrays, maps and nullables do so as well."""


def decode_serialization(data: bytes | None) -> SerializationInfo:
    """The info of the file's bytes; None (no such file) means all ordinary.

    Raises NOT_IMPLEMENTED for versions and kinds that we do not know, `CorruptDataError` for what is no JSON.
    """
    if data is None:
        return SerializationInfo()
    try:
        raw = loads(data)
        version = int(raw.get("version", 0))
        versions = {str(k): int(v) for k, v in raw.get("types_serialization_versions", {}).items()}
        nullable = versions.get("nullable", 0) == 1
        columns = {str(c["name"]): _kind(c, nullable) for c in raw.get("columns", ())}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as broken:
        raise CorruptDataError("serialization.json cannot be read", found=str(broken)) from None
    if version > _VERSION_MAX:
        raise _unknown(f"version {version} of serialization.json")
    for name, number in versions.items():
        if number and (name not in ("string", "nullable") or number != 1):
            raise _unknown(f"version {number} of the serialization of {name}")
    sizes = versions.get("string", 0) == 1
    nested = sizes and bool(raw.get("propagate_types_serialization_versions_to_nested_types", False))
    return SerializationInfo(columns, sizes, nested)


def _kind(raw: Mapping[str, Any], nullable: bool) -> ColumnKind:
    kind = str(raw.get("kind", "Default"))
    if kind not in ("Default", "Sparse"):
        raise _unknown(f"the serialization kind {kind}")
    elements = tuple(_kind(element, nullable) for element in raw.get("subcolumns", ()))
    return ColumnKind(kind == "Sparse", nullable, elements)


def _unknown(what: str) -> Exception:
    return error(
        "NOT_IMPLEMENTED", f"This part uses {what}", "Rewrite it with the settings that docs/clickhouse.md names"
    )


def decode_substreams(data: bytes) -> dict[str, tuple[str, ...]]:
    """Stream names by column, in the file's order. `CorruptDataError` for another format."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as broken:
        raise CorruptDataError("The list of substreams is not UTF-8", offset=broken.start) from None
    if lines[0] != _SUBSTREAMS_HEADER or len(lines) < 3 or lines[-1]:
        raise CorruptDataError(
            "Not a list of substreams", offset=0, expected=f"'{_SUBSTREAMS_HEADER}'", found=f"'{lines[0][:40]}'"
        )
    columns: dict[str, tuple[str, ...]] = {}
    rows = iter(lines[2:-1])
    for row in rows:
        count, _, rest = row.partition(" substreams for column ")
        if not (count.isdecimal() and len(count) < 7 and rest.startswith("`")):
            raise CorruptDataError("A line of the list of substreams cannot be read", found=row[:60])
        streams = tuple(next(rows, "") for _ in range(int(count)))
        if not all(stream.startswith("\t") for stream in streams):
            raise CorruptDataError("The list of substreams is cut", found=row[:60])
        columns[unescape(rest.rstrip(":"))] = tuple(stream[1:] for stream in streams)
    return columns
