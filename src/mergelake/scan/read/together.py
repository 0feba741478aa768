"""Reading whole small parts together (`parts.read.joined`), so that the cost depends on rows rather than on parts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby

from mergelake.parts.read.joined import JoinedReader, WholePart, fetch_whole_part, is_joinable
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.prune.request import VIRTUAL_COLUMNS
from mergelake.scan.read.filter import RowSelection
from mergelake.scan.read.pieces import Piece
from mergelake.scan.read.plan import ScanItem, ScanPlan
from mergelake.scan.read.run import ReadRun
from mergelake.scan.read.source import PartSource
from mergelake.scan.read.steps import plan_steps

ROWS_MAX = 65536
"""Maximum rows of parts that are read together: the rows of a batch."""
BYTES_MAX = 32 << 20
"""Maximum decoded bytes of parts that are read together."""
PARTS_MAX = 1024

Opened = tuple[ScanItem, PartSource, Sequence[MarkRange]]
"""A piece whose part is open."""


def can_join(plan: ScanPlan) -> bool:
    """Whether a read has no virtual columns, which depend on the part of a row."""
    names = {*plan.columns, *(name for step in plan_steps(plan) for name in step.columns)}
    return not any(name in VIRTUAL_COLUMNS and not plan.schema.has(name) for name in names)


def grouped(pieces: Iterable[Piece], plan: ScanPlan) -> Iterator[tuple[Piece, ...]]:
    """The pieces in order, in groups that can be read together; under a limit, of no more rows than that."""
    if not can_join(plan):
        yield from ((piece,) for piece in pieces)
        return
    rows_max = ROWS_MAX if plan.request.limit is None else min(ROWS_MAX, plan.request.limit)
    group: list[Piece] = []
    rows = size = 0
    for piece in pieces:
        manifest = piece.item.manifest
        alone = not _is_whole(piece.item, piece.ranges)
        full = rows + manifest.rows > rows_max or size + manifest.bytes_uncompressed > BYTES_MAX
        if group and (alone or full or len(group) == PARTS_MAX):
            yield tuple(group)
            group, rows, size = [], 0, 0
        if alone:
            yield (piece,)
            continue
        group.append(piece)
        rows, size = rows + manifest.rows, size + manifest.bytes_uncompressed
    if group:
        yield tuple(group)


def begin_rows(run: ReadRun, pieces: Sequence[Opened]) -> list[RowSelection]:
    """Row selections of the pieces, in order; consecutive small parts of equal structure share one."""
    out: list[RowSelection] = []
    fetched = ((piece, _fetched(run, *piece)) for piece in pieces)
    for structure, alike in groupby(fetched, _structure):
        members = list(alike)
        parts = [part for _, part in members if part is not None]
        if structure is not None and len(parts) > 1:
            first = members[0][0]
            source = PartSource(JoinedReader(parts), first[0].info, run.plan.schema, first[1].steps)
            out.append(RowSelection(source, [(0, len(parts))], run.stats))
        else:
            for part in parts:
                part.reader.hold(part.files)  # not fetched again
            out += [RowSelection(source, ranges, run.stats) for (_, source, ranges), _ in members]
    return out


def _structure(fetched: tuple[Opened, WholePart | None]) -> Hashable | None:
    """Equal for pieces that can be read as one part; None for one that is read alone."""
    (_, source, _), part = fetched
    structure = part.structure if part is not None else None
    return structure if structure is None or source.steps is None else (structure, source.steps.steps)


def _fetched(run: ReadRun, item: ScanItem, source: PartSource, ranges: Sequence[MarkRange]) -> WholePart | None:
    """The piece as a whole small part; from a far store only if it is in memory: else each part would cost a round."""
    here = source.reader.complete or not run.is_far
    return fetch_whole_part(source.reader) if here and _is_whole(item, ranges) else None


def _is_whole(item: ScanItem, ranges: Sequence[MarkRange]) -> bool:
    return is_joinable(item.manifest) and tuple(ranges) == ((0, item.manifest.marks),)
