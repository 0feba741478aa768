"""Found by Spark through its name: makes `format("mergelake")` known to every session without registering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mergelake.spark.datasource import MergelakeDataSource

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from mergelake.core.types import AggregateFunction

__all__ = ["DefaultSource"]


def merge_states(data_type: AggregateFunction, states: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
    """`query.embedded.states.merge_states`, imported when it is needed: Spark imports this module for each step."""
    from mergelake.query.embedded import states as embedded

    return embedded.merge_states(data_type, states, begins)


class DefaultSource(MergelakeDataSource):
    """The source whose tasks merge aggregate states by the embedded ClickHouse."""

    states = staticmethod(merge_states)
