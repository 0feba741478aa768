"""Items of a plan cut into pieces of bounded size, and reading of the pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import is_nullable
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.read.filter import RowSelection
from mergelake.scan.read.plan import ScanItem, ScanPlan
from mergelake.scan.read.prewhere import FilterStep

PIECE_BYTES = 32 << 20
"""Approximate maximum of the decoded bytes of a piece, all columns of the part included."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some ranges of one item."""

    item: ScanItem
    ranges: tuple[MarkRange, ...]


def batch_schema(plan: ScanPlan) -> pa.Schema:
    """The Arrow schema of the batches that `read_items` yields."""
    types = all_types(plan.schema)
    return pa.schema([pa.field(n, storage_type(types[n]), nullable=is_nullable(types[n])) for n in plan.columns])


def cut_pieces(item: ScanItem, granules: int) -> Iterator[Piece]:
    """The item's ranges in pieces of at most `granules` granules, in order."""
    ranges: list[MarkRange] = []
    room = granules
    for begin, end in item.ranges:
        while begin < end:
            stop = min(end, begin + room)
            ranges.append((begin, stop))
            room -= stop - begin
            begin = stop
            if not room:
                yield Piece(item, tuple(ranges))
                ranges, room = [], granules
    if ranges:
        yield Piece(item, tuple(ranges))


def read_rows(
    pieces: Iterable[RowSelection], plan: ScanPlan, steps: Sequence[FilterStep], schema: pa.Schema
) -> list[pa.RecordBatch]:
    """The passing rows of each piece; pieces without any are omitted."""
    types = all_types(plan.schema)
    out = []
    for rows in pieces:
        for step in steps:
            rows.filter(step, types)
            if not rows.count:
                break
        if rows.count:
            out.append(rows.batch(plan.columns, schema))
    return out


def all_pieces(items: Sequence[ScanItem], limit: int | None) -> Iterator[Piece]:
    """The pieces of some items; smaller ones under a `limit`."""
    for item in items:
        manifest = item.manifest
        granule_bytes = max(1, manifest.bytes_uncompressed // max(1, manifest.marks))
        granules = max(1, PIECE_BYTES // granule_bytes)
        if limit is not None:
            granules = max(1, min(granules, 1 + limit * manifest.marks // max(1, manifest.rows)))
        yield from cut_pieces(item, granules)
