"""Found by Spark through its name: makes `format("mergelake")` known to every session without registering."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from mergelake.api.spark.datasource import MergelakeDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from mergelake.core.types.types import AggregateFunction, DataType

__all__ = ["DefaultSource"]


class EmbeddedLater:
    """`query.embedded.states.EMBEDDED`, imported when it is needed: Spark imports this module for each step."""

    def merge(self, data_type: AggregateFunction, states: pa.Array, begins: NDArray[np.int64]) -> pa.Array:
        """The states of each group, merged."""
        from mergelake.query.embedded.states import EMBEDDED

        return EMBEDDED.merge(data_type, states, begins)

    def make(self, data_type: AggregateFunction, arguments: Sequence[pa.Array], begins: NDArray[np.int64]) -> pa.Array:
        """The states of the rows of each group."""
        from mergelake.query.embedded.states import EMBEDDED

        return EMBEDDED.make(data_type, arguments, begins)

    def finish(
        self, expression: str, states: Mapping[str, tuple[AggregateFunction, pa.Array]], result: DataType
    ) -> pa.Array:
        """The values of an expression over the results of states."""
        from mergelake.query.embedded.states import EMBEDDED

        return EMBEDDED.finish(expression, states, result)


class DefaultSource(MergelakeDataSource):
    """The source whose tasks have the aggregate functions of the embedded ClickHouse, where it is installed."""

    states = EmbeddedLater() if importlib.util.find_spec("chdb") is not None else None
