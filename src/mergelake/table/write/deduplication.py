"""Deduplication of inserts: by token or by rows, as a whole or part by part."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.model.manifest import PartManifest
from mergelake.engines.order.keys import whole_column
from mergelake.log.model.operations import AddParts
from mergelake.log.model.retention import refers
from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle

_SEPARATOR = "\x1f"
"""Separates the names of an insert and of its parts; does not occur in tokens."""


@dataclass(frozen=True, slots=True)
class InsertIdentity:
    """How a repetition of an insert is recognized; not at all, if neither token nor hash is given."""

    token: str = ""
    """Names the insert: a second commit with it is a duplicate, regardless of its rows."""
    by_part: bool = False
    """The token names each part of the insert, by partition and order: parts that are not remembered are added, as
    ClickHouse does for each block and partition."""
    rows_hash: str = ""
    """`RowHash`, for tables with a `non_replicated_deduplication_window`; remembered for each partition."""

    def additions(self, parts: Sequence[PartManifest]) -> list[AddParts]:
        """One operation for each group of parts that is remembered together; all go into one entry."""
        if not (self.rows_hash or (self.token and self.by_part)):
            return [_addition(parts, self.token)]
        groups: dict[str, list[PartManifest]] = {}
        counts: Counter[str] = Counter()
        for part in parts:
            name = part.partition_id
            if self.token:
                counts[name] += 1
                name = f"{counts[name]}{_SEPARATOR}{name}"
            groups.setdefault(name, []).append(part)
        if self.token:
            return [_addition(group, f"{self.token}{_SEPARATOR}{name}") for name, group in groups.items()]
        return [_addition(group, "", f"{self.rows_hash}{_SEPARATOR}{name}") for name, group in groups.items()]


NO_IDENTITY = InsertIdentity()


def _addition(parts: Sequence[PartManifest], token: str, rows_hash: str = "") -> AddParts:
    """AddParts of these parts; the shared directories that they refer to are begun by it."""
    begun = sorted({name for part in parts for name in refers(part)})
    return AddParts(tuple(parts), token, rows_hash, begun=tuple(begun))


def remembered(state: State, token: str, rows_hash: str = "") -> int | None:
    """The version of this insert, if it is remembered; None if it is new."""
    insert = state.insert_of(token, rows_hash)
    return insert.version if insert else None


def known_token(handle: TableHandle, token: str | None) -> State | None:
    """The state of the table if an insert with this token is remembered; None if it is new.

    BAD_ARGUMENTS if it is no token. Refreshes if it seems to be remembered: another process may have dropped its rows.
    """
    if token is not None and not (isinstance(token, str) and token):
        hint = "Give each load a token of its own as text, or none"
        raise error("BAD_ARGUMENTS", f"{token!r} is no token of an insert", hint)
    if not token or remembered(handle.log.state, token) is None:
        return None
    state = handle.refresh()
    return state if remembered(state, token) is not None else None


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
                if pa.types.is_dictionary(column.type):  # equal values may have different dictionaries
                    column = column.cast(column.type.value_type)
                digest.update(pa.record_batch([whole_column(pa.table({name: column}), name)], names=[name]).serialize())
            yield block

    def hexdigest(self) -> str:
        """32 hex digits; complete once all blocks have passed."""
        digest = hashlib.blake2b(str(self._rows).encode(), digest_size=16)
        for name in sorted(self._columns):
            digest.update(repr(name).encode() + self._columns[name].digest())
        return digest.hexdigest()
