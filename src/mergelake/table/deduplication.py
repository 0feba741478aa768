"""When an insert repeats one that the table remembers: by its token, by its rows, whole or part by part."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mergelake.core.manifest import PartManifest
from mergelake.log.operations import AddParts
from mergelake.log.retention import refers
from mergelake.log.state import State
from mergelake.order.keys import whole_column

_SEPARATOR = "\x1f"
"""Between the names of an insert and of its parts: what no caller's token holds."""


@dataclass(frozen=True, slots=True)
class InsertIdentity:
    """By what a repetition of an insert is known; by nothing, unless one of these is given."""

    token: str = ""
    """Names the insert: a second commit with it is a duplicate, whatever its rows."""
    by_part: bool = False
    """The token names each part of the insert, by partition and their order there: a part that is not remembered is
    added, as ClickHouse does for each block and partition."""
    rows_hash: str = ""
    """`RowHash`, for tables with a `non_replicated_deduplication_window`; remembered for each partition."""

    def additions(self, parts: Sequence[PartManifest]) -> list[AddParts]:
        """One operation for what is remembered, and so added or left out, together; all go into one entry."""
        if not (self.rows_hash or (self.token and self.by_part)):
            return [_addition(parts, self.token)]
        groups: dict[str, list[PartManifest]] = {}
        seen: Counter[str] = Counter()
        for part in parts:
            name = part.partition_id
            if self.token:
                seen[name] += 1
                name = f"{seen[name]}{_SEPARATOR}{name}"
            groups.setdefault(name, []).append(part)
        if self.token:
            return [_addition(group, f"{self.token}{_SEPARATOR}{name}") for name, group in groups.items()]
        return [_addition(group, "", f"{self.rows_hash}{_SEPARATOR}{name}") for name, group in groups.items()]


NO_IDENTITY = InsertIdentity()


def _addition(parts: Sequence[PartManifest], token: str, rows_hash: str = "") -> AddParts:
    """Whatever the parts of an insert share, it has begun."""
    begun = sorted({name for part in parts for name in refers(part)})
    return AddParts(tuple(parts), token, rows_hash, begun=tuple(begun))


def remembered(state: State, token: str, rows_hash: str = "") -> int | None:
    """The version that holds this insert already; None if it is new."""
    insert = state.insert_of(token, rows_hash)
    return insert.version if insert else None


class RowHash:
    """The identity of an insert without a token: its rows in order, as sent, before defaults and partitions.

    The order of columns does not matter. As in ClickHouse, the same rows in another order are another insert.
    """

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}
        self._rows = 0

    def over(self, blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Pass blocks through, hashing them."""
        for block in blocks:
            self._rows += block.num_rows
            for name in block.column_names:
                digest = self._columns.setdefault(name, hashlib.blake2b(digest_size=16))
                column = block.column(name)
                if pa.types.is_dictionary(column.type):  # the same values may have other dictionaries
                    column = column.cast(column.type.value_type)
                digest.update(pa.record_batch([whole_column(pa.table({name: column}), name)], names=[name]).serialize())
            yield block

    def hexdigest(self) -> str:
        """32 hex digits; complete once all blocks have passed."""
        whole = hashlib.blake2b(str(self._rows).encode(), digest_size=16)
        for name in sorted(self._columns):
            whole.update(repr(name).encode() + self._columns[name].digest())
        return whole.hexdigest()
