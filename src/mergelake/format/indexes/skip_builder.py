"""From rows to granules of a skip index: values in, bytes out, memory bounded by one granule's distinct values.

An index granule covers GRANULARITY granules of the part and may be larger than what comes at once. Each kind of index
therefore has a *summary* of the rows of an open granule which can be put before the next rows as if it were rows:
extremes for minmax, distinct values for set, distinct hashes for bloom_filter. `tokenbf_v1` and `ngrambf_v1` go on
adding bits to the open filter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
"""Row numbers, ascending."""
S = TypeVar("S")
"""The summary of the rows of an open granule."""


class GranuleBuilder(ABC, Generic[S]):
    """Builds the granules of one index."""

    def __init__(self, granularity: int) -> None:
        self._granularity = granularity
        self._done = 0  # granules of the part in the open index granule
        self._open: S | None = None
        """None where no rows wait for their granule to end."""

    def feed(self, arrays: Sequence[pa.Array], cuts: Rows) -> tuple[bytes, Rows]:
        """Take rows; returns the bytes of the index granules that they complete, and where each ends in them.

        `arrays` hold each expression's values in storage form. `cuts` are the rows at which granules of the part end;
        rows after the last cut belong to one that goes on.
        """
        step = self._granularity
        ends = np.ascontiguousarray(cuts[step - 1 - self._done :: step])
        self._done = (self._done + len(cuts)) % step
        return self._take(arrays, cuts, ends) if len(arrays[0]) else (b"", np.zeros(0, np.int64))

    def finish(self) -> tuple[bytes, Rows]:
        """The last granule, if it is open."""
        summary, self._open = self._open, None
        return (b"", np.zeros(0, np.int64)) if summary is None else self._encode_open(summary)

    @abstractmethod
    def _take(self, arrays: Sequence[pa.Array], cuts: Rows, ends: Rows) -> tuple[bytes, Rows]:
        """`feed` of at least one row; `ends` are the rows at which index granules end. Replaces `_open`."""

    @abstractmethod
    def _encode_open(self, summary: S) -> tuple[bytes, Rows]:
        """The bytes of the granule with this summary, and their number as the only end."""


def segments(ends: Rows, rows: int) -> tuple[Rows, bool]:
    """Ends of whole granules, and of the open one if rows follow them; and whether they do."""
    goes_on = rows > (int(ends[-1]) if len(ends) else 0)
    return (np.append(ends, rows) if goes_on else ends), goes_on
