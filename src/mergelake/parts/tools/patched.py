"""A part with the changes of patch parts: for each row and column the value with the greatest version.

Rows are told by `_block_number` and `_block_offset`, whatever the patch part's format. ClickHouse merges part and patch
parts by the sorting key; here the patch parts' rows are in memory, and each batch of the part looks its rows up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.model.names import PartInfo
from mergelake.core.types import types as t
from mergelake.format.columns.reader import concatenate
from mergelake.parts.read.evolve import evolve
from mergelake.parts.read.reader import BATCH_ROWS, BLOCK_NUMBER, BLOCK_OFFSET, ROW_EXISTS, PartReader
from mergelake.parts.tools.patches import PART, VERSION, PatchPart, naming

Numbers = NDArray[np.uint64]
Places = NDArray[np.intp]


class PatchedPart:
    """A part and the patch parts that change it."""

    def __init__(
        self, reader: PartReader, info: PartInfo, row_ids: Sequence[str], patches: Sequence[PatchPart]
    ) -> None:
        """`row_ids` are the columns of the part that tell its rows; see `OpenedPart.row_ids`."""
        self._reader = reader
        self._info = info
        self._row_ids = tuple(row_ids)
        self._patches = tuple(patches)

    @property
    def live_rows(self) -> int:
        """Number of rows that `read` returns."""
        if not self._reader.masked and not any(ROW_EXISTS in patch.updated for patch in self._patches):
            return self._reader.manifest.rows
        return sum(batch.num_rows for batch in self.read([]))

    def read(self, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows, as `PartReader.read` gives them, with the patch parts' values and without the rows they delete."""
        changes = self._changes(columns)
        mask = [ROW_EXISTS] if self._reader.masked else []
        first = 0
        for batch in self._reader.read(
            list(dict.fromkeys([*columns, *self._row_ids, *mask])), batch_rows=batch_rows, with_deleted=True
        ):
            rows = batch.num_rows
            numbers, offsets = self._identities(batch, first)
            first += rows
            exists = batch.column(ROW_EXISTS) if mask else pa.array(np.ones(rows, np.uint8))
            arrays = {name: batch.column(name) for name in columns} | {ROW_EXISTS: exists}
            for change in changes:
                arrays |= change.applied(arrays, numbers, offsets)
            alive = pc.not_equal(arrays.pop(ROW_EXISTS), 0)
            if not columns:
                kept = int(pc.sum(alive).as_py() or 0)
                yield pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), kept, [None]))
                continue
            schema = pa.schema([batch.schema.field(name) for name in columns])
            yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema).filter(alive)

    def _identities(self, batch: pa.RecordBatch, first: int) -> tuple[Numbers, Numbers]:
        """Block and place in it of each row; `first` is the place of the first row in the part."""
        rows = batch.num_rows
        if BLOCK_NUMBER in self._row_ids:
            numbers = _numbers(batch.column(BLOCK_NUMBER))
        else:
            numbers = np.full(rows, self._info.min_block, np.uint64)
        if BLOCK_OFFSET in self._row_ids:
            return numbers, _numbers(batch.column(BLOCK_OFFSET))
        return numbers, np.arange(first, first + rows, dtype=np.uint64)

    def _changes(self, columns: Sequence[str]) -> list[Change]:
        """What the patch parts change in these columns: one for all columns that the same patch parts have."""
        types = {name: self._reader.columns[name].type for name in columns} | {ROW_EXISTS: t.UINT8}
        together: dict[tuple[int, ...], list[str]] = {}
        for name in types:
            if held := tuple(at for at, patch in enumerate(self._patches) if name in patch.updated):
                together.setdefault(held, []).append(name)
        rows = {at: self._rows(at, types) for at in {at for held in together for at in held}}
        return [latest([each for at in held for each in rows[at]], names) for held, names in together.items()]

    def _rows(self, at: int, types: Mapping[str, t.DataType]) -> list[PatchRows]:
        """The rows of a patch part that are newer than the part, batch by batch."""
        patch = self._patches[at]
        stored = patch.updated
        wanted = [name for name in types if name in stored]
        named = [PART] if patch.sources.of_rows else []
        out = []
        with naming(patch.name):
            for batch in patch.reader.read([*wanted, *named, BLOCK_NUMBER, BLOCK_OFFSET, VERSION]):
                newer = _numbers(batch.column(VERSION)) > self._info.data_version
                if named:
                    newer &= self._of_part(batch.column(PART))
                rows = batch.filter(pa.array(newer))
                numbers, offsets, versions = (
                    _numbers(rows.column(name)) for name in (BLOCK_NUMBER, BLOCK_OFFSET, VERSION)
                )
                values = {name: evolve(rows.column(name), stored[name], types[name]) for name in wanted}
                out.append(PatchRows(numbers, offsets, versions, values))
        return out

    def _of_part(self, names: pa.Array) -> NDArray[np.bool_]:
        """Which rows of a patch part were read from the part, or from one from which it was made."""
        plain = names.dictionary_encode() if not pa.types.is_dictionary(names.type) else names
        infos = [PartInfo.try_parse(bytes(name).decode(errors="replace")) for name in plain.dictionary.to_pylist()]
        covered = np.array([info is not None and self._info.covers(info) for info in infos], np.bool_)
        return np.asarray(covered[plain.indices.to_numpy(zero_copy_only=False)], np.bool_)


@dataclass(frozen=True, slots=True)
class PatchRows:
    """Some rows of a patch part."""

    numbers: Numbers
    offsets: Numbers
    versions: Numbers
    values: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Change:
    """The newest values of some columns, for rows in the order of their identities."""

    blocks: Numbers
    """The block numbers, each once."""
    offsets: Numbers
    """The places in blocks, each once."""
    keys: Places
    """Place in `blocks` times the number of `offsets`, plus place in `offsets`, for each row: ascending."""
    piece: Places
    """Which of the `pieces` has the values of each row."""
    row: Places
    """At which place."""
    pieces: Sequence[Mapping[str, pa.Array]]
    names: Sequence[str]

    def applied(self, arrays: Mapping[str, pa.Array], numbers: Numbers, offsets: Numbers) -> dict[str, pa.Array]:
        """The columns `names` out of `arrays`, with the new values of those rows that are changed."""
        places, found = self._find(numbers, offsets)
        if not len(places):
            return {}
        order = np.argsort(self.piece[found], kind="stable")
        places, found = places[order], found[order]
        pieces, starts = np.unique(self.piece[found], return_index=True)
        parts = list(zip(pieces.tolist(), np.split(self.row[found], starts[1:]), strict=True))
        out = {}
        for name in self.names:
            new = concatenate([self.pieces[piece][name].take(pa.array(rows)) for piece, rows in parts])
            out[name] = scattered(arrays[name], new, places)
        return out

    def _find(self, numbers: Numbers, offsets: Numbers) -> tuple[Places, Places]:
        """The places of changed rows among those with these identities, and for each its row here."""
        block, known_block = _places(self.blocks, numbers)
        offset, known_offset = _places(self.offsets, offsets)
        places = np.flatnonzero(known_block & known_offset)
        row, known = _places(self.keys, block[places] * len(self.offsets) + offset[places])
        return places[known], row[known]


def latest(parts: Sequence[PatchRows], names: Sequence[str]) -> Change:
    """The rows of patch parts as changes of the columns `names`; of several for one row the newest."""
    numbers, offsets, versions = (
        np.concatenate([getattr(part, field) for part in parts]) for field in ("numbers", "offsets", "versions")
    )
    order = np.lexsort((versions, offsets, numbers))
    numbers, offsets = numbers[order], offsets[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (numbers[1:] != numbers[:-1]) | (offsets[1:] != offsets[:-1])
    kept = order[last]
    blocks, block = np.unique(numbers[last], return_inverse=True)
    places, place = np.unique(offsets[last], return_inverse=True)
    sizes = [len(part.numbers) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    piece = np.repeat(np.arange(len(parts)), sizes)[kept]
    return Change(
        blocks,
        places,
        block.astype(np.intp) * len(places) + place,
        piece,
        kept - starts[piece],
        [part.values for part in parts],
        names,
    )


def scattered(old: pa.Array, new: pa.Array, places: Places) -> pa.Array:
    """`old` with the values at `places` replaced by `new`, both of one storage type."""
    take = np.arange(len(old), dtype=np.int64)
    take[places] = len(old) + np.arange(len(new))
    return concatenate([old, new]).take(pa.array(take))


def _places(ascending: NDArray[np.generic], wanted: NDArray[np.generic]) -> tuple[Places, NDArray[np.bool_]]:
    """The place of each of `wanted` in an array of distinct values (0 for those that are not there); which are."""
    if not len(ascending):
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    known = ascending[at] == wanted
    return np.where(known, at, 0), known


def _numbers(array: pa.Array) -> Numbers:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.uint64)
