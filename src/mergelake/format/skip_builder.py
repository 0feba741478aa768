"""From rows to granules of a skip index: values in, bytes out, memory bounded by one granule's distinct values.

An index granule covers GRANULARITY granules of the part and may be larger than what comes at once. Each kind of index
therefore has a *summary* of the rows of an open granule which can be put before the next rows as if it were rows:
extremes for minmax, distinct values for set, distinct hashes for bloom_filter. `tokenbf_v1` and `ngrambf_v1` go on
adding bits to the open filter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
"""Row numbers, ascending."""


class GranuleBuilder(ABC):
    """Builds the granules of one index."""

    def __init__(self, granularity: int) -> None:
        self._granularity = granularity
        self._done = 0  # granules of the part in the open index granule

    def feed(self, arrays: Sequence[pa.Array], cuts: Rows) -> tuple[bytes, Rows]:
        """Take rows; returns the bytes of the index granules that they complete, and where each ends in them.

        `arrays` hold each expression's values in storage form. `cuts` are the rows at which granules of the part end;
        rows after the last cut belong to one that goes on.
        """
        step = self._granularity
        ends = np.ascontiguousarray(cuts[step - 1 - self._done :: step])
        self._done = (self._done + len(cuts)) % step
        return self._take(arrays, cuts, ends)

    def finish(self) -> tuple[bytes, Rows]:
        """The last granule, if it is open."""
        if not self._done and not self._is_open():
            return b"", np.zeros(0, np.int64)
        return self._close()

    @abstractmethod
    def _take(self, arrays: Sequence[pa.Array], cuts: Rows, ends: Rows) -> tuple[bytes, Rows]:
        """`feed`, with the rows at which index granules end."""

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether rows wait for their granule to end."""

    @abstractmethod
    def _close(self) -> tuple[bytes, Rows]:
        """End the open granule."""


def segments(ends: Rows, rows: int) -> tuple[Rows, bool]:
    """Ends of whole granules, and of the open rest if there is one; and whether there is."""
    rest = rows > (int(ends[-1]) if len(ends) else 0)
    return (np.append(ends, rows) if rest else ends), rest
