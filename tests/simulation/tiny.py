"""Parts so small that a thousand histories fit into a minute, and real enough to be lost.

A part is one object, or a range of one that it shares: JSON, a list of rows. A row is a number, never given twice, and
the updates that it has seen. A merge is concatenation; a mutation appends its number to rows, or takes rows away:
`UPDATE <n>` (all rows), `UPDATE <n> <k> <r>` (those whose number is r modulo k), or `DELETE <k> <r>`.

In a table whose engine collapses rows, a merge keeps of each key only the row with the highest rank, and so does a read
(FINAL): key and rank of a row follow from its number (`collapsed`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from mergelake.core.model.manifest import Extent, PartFile, PartManifest, encode_files
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.hashes import file_hash
from mergelake.log.model.state import PendingMutation
from mergelake.store.interface.protocol import Store

Row: TypeAlias = tuple[int, tuple[int, ...]]
Rows: TypeAlias = tuple[Row, ...]
Place: TypeAlias = tuple[str, int, int]
"""Key, offset and length of the rows of a part."""
Bodies: TypeAlias = dict[tuple[str, int], Rows]
"""The rows that were written at a key and an offset."""

DIRECTORY = "t"
PARTITIONS = ("a", "b")
KEYS = 4
"""How many keys the rows of a table that collapses have, in each partition."""
SCHEMA = TableSchema((Column(0, "k", parse_type("Int64")),), order_by=("k",), primary_key=("k",))


def encode(rows: Rows) -> bytes:
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(data: bytes) -> Rows:
    return tuple((row, tuple(seen)) for row, seen in json.loads(data))


def changed(rows: Iterable[Row], commands: str) -> Rows:
    """Rows after one mutation."""
    verb, *words = commands.split()
    numbers = [*map(int, words)]
    if verb == "UPDATE":
        name, k, r = numbers if len(numbers) == 3 else (*numbers, 1, 0)
        return tuple((row, (*seen, name) if row % k == r else seen) for row, seen in rows)
    k, r = numbers
    return tuple((row, seen) for row, seen in rows if row % k != r)


def drops_rows(commands: str) -> bool:
    """Whether a mutation takes rows away."""
    return commands.startswith("DELETE")


def mutated(rows: Rows, lacks: Iterable[PendingMutation]) -> Rows:
    """Rows after the mutations that they lack."""
    for mutation in lacks:
        rows = changed(rows, mutation.commands)
    return rows


def collapsed(rows: Rows, engine: str) -> Rows:
    """What an engine leaves of rows that meet in a merge: of each key the row of the highest rank, or the last one."""
    return tuple(merged(rows, engine).values())


def merged(rows: Rows, engine: str) -> dict[int, Row]:
    """The same with their places among the rows."""
    if engine == "MergeTree":
        return dict(enumerate(rows))
    best: dict[int, tuple[int, int]] = {}
    for at, (number, _) in enumerate(rows):
        best[number % KEYS] = max(best.get(number % KEYS, (-1, -1)), (number * 5 // KEYS % 3, at))
    return {at: rows[at] for at in sorted(at for _, at in best.values())}


class TinyRows:
    """What a model has to know of rows (see `RowKind`)."""

    def changed(self, rows: Iterable[Row], commands: str) -> Rows:
        return changed(rows, commands)

    def merged(self, rows: Rows, engine: str) -> dict[int, Row]:
        return merged(rows, engine)

    def in_order(self, rows: Iterable[Row]) -> Rows:
        """Their order counts."""
        return tuple(rows)


def manifest_of(
    part_id: str, partition_id: str, rows: Rows, base_version: int, key: str | None = None, offset: int = 0
) -> PartManifest:
    """What the log says of a part with these rows, in an object of its own or at an offset of another."""
    data = encode(rows)
    size = len(data)
    key = key or f"{part_id}/files.packed"
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    file = PartFile("data.bin", size, (Extent(key, offset, size),), file_hash(data), size, digest)
    return PartManifest(
        part_id,
        partition_id,
        len(rows),
        encode_files([file]),
        marks=1,
        bytes_on_disk=size,
        columns=(0,),
        base_version=base_version,
    )


def write(store: Store, directory: str, part_id: str, partition_id: str, rows: Rows, base_version: int) -> PartManifest:
    """Write a part, by multipart upload now and then."""
    data = encode(rows)
    key = f"{directory}/{part_id}/files.packed"
    if len(data) % 3:
        store.put(key, data)
    else:
        store.put_large(key, [data[:5], data[5:]])
    return manifest_of(part_id, partition_id, rows, base_version)


def sharing(
    shared_id: str, parts: Sequence[tuple[str, str, Rows]], base_version: int
) -> tuple[bytes, list[PartManifest]]:
    """The object that parts (id, partition, rows) share, and what the log says of them."""
    bodies = [encode(rows) for _, _, rows in parts]
    key = f"{shared_id}/{sum(map(len, bodies))}.packed"
    offsets = accumulate(map(len, bodies[:-1]), initial=0)
    return b"".join(bodies), [
        manifest_of(*part, base_version, key, offset) for part, offset in zip(parts, offsets, strict=True)
    ]


def places_of(directory: str, part: PartManifest) -> list[Place]:
    """Where a part lies, its objects as keys of the bucket."""
    return [
        (extent.key[1:] if extent.key.startswith("/") else f"{directory}/{extent.key}", extent.offset, extent.length)
        for file in part.file_table().values()
        for extent in file.extents
    ]


def keys_of(directory: str, part: PartManifest) -> list[str]:
    """The objects of a part, as keys of the bucket."""
    return [key for key, _, _ in places_of(directory, part)]
