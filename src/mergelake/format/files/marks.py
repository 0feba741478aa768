"""Mark files: where each granule of each stream starts.

A record of a Wide part is u64 offset of the compressed block, u64 offset in its plain bytes and, unless granules have a
fixed size (`.mrk`, `.cmrk`), u64 rows. Compact parts (`.mrk3`, `.mrk4` and their `c` forms) have one pair for each
column or substream, then the rows. Names with a `c` hold the same records compressed. The last record has no rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.kernels.kernels_compressed_blocks import PLAIN_MAX
from mergelake.format.kernels.memory import Bytes, region

ROWS_MAX = 1 << 40
"""Most rows of a granule that are believed."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one mark file."""

    offset: NDArray[np.int64]
    """(marks, streams): start of the compressed block in the data file."""
    skip: NDArray[np.int64]
    """(marks, streams): bytes to skip in its plain bytes."""
    rows: NDArray[np.int64]
    """(marks,): rows of the granule; 0 in the final mark, if there is one."""

    @property
    def granules(self) -> int:
        """Granules: marks without the final one."""
        return len(self.rows) - int(len(self.rows) > 0 and self.rows[-1] == 0)

    @property
    def granule_rows(self) -> NDArray[np.int64]:
        """Rows of each granule, the final mark left out."""
        granules = self.granules
        return self.rows if granules == len(self.rows) else self.rows[:granules]


def mark_records(name: str, data: Bytes, streams: int = 1) -> tuple[NDArray[np.int64], bool]:
    """The records in the file `name`, a row for each, and whether they have no row count.

    `streams` is the number of pairs in a record. Raises CorruptDataError for a length that cannot be.
    """
    extension = name.rsplit(".", 1)[-1]
    plain = decode_compressed_blocks(data) if extension.startswith("c") else region(data).tobytes()
    fixed = extension in {"mrk", "cmrk"}
    words = 2 * streams + (0 if fixed else 1)
    if len(plain) % (8 * words):
        raise CorruptDataError(f"The length of the marks, {len(plain)}, is not a multiple of {8 * words}", offset=0)
    return np.frombuffer(plain, np.int64).reshape(-1, words), fixed


def parse_marks(name: str, data: Bytes, *, streams: int = 1, granularity: int = 8192, rows: int | None = None) -> Marks:
    """The marks in the file `name`, whose extension says how they lie.

    `streams`: pairs in a record of a Compact part. `granularity` and `rows` (of the part): for `.mrk` and `.cmrk` only,
    whose records have no row count. Raises CorruptDataError for a length or numbers that cannot be.
    """
    table, fixed = mark_records(name, data, streams)
    if fixed:
        count = np.full(len(table), granularity, np.int64)
        if rows is not None and len(count):
            count[-1] = rows - granularity * (len(count) - 1)
    else:
        count = table[:, -1].copy()
    offset, skip = table[:, 0 : 2 * streams : 2].copy(), table[:, 1 : 2 * streams : 2].copy()
    impossible = (offset < 0).any(axis=1) | (skip < 0).any(axis=1) | (skip > PLAIN_MAX).any(axis=1)
    impossible |= (count < 0) | (count > ROWS_MAX)
    impossible[:-1] |= count[:-1] == 0
    if impossible.any():
        at = table.itemsize * table.shape[1] * int(np.argmax(impossible))
        raise CorruptDataError("A mark has impossible numbers", offset=at)
    return Marks(offset, skip, count)


def start_marks(granule_rows: NDArray[np.int64]) -> Marks:
    """Marks that tell no more than where a stream begins, for one that is read to its end anyway."""
    zeros = np.zeros((len(granule_rows), 1), np.int64)
    return Marks(zeros, zeros, granule_rows)


def encode_marks(marks: NDArray[np.uint64]) -> bytes:
    """Records of `.mrk2`: (n, 3) u64 of offset of the compressed block, offset in its plain bytes, rows."""
    return np.ascontiguousarray(marks, np.uint64).tobytes()
