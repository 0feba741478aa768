"""`merge_schema`: what of a table's schema has to change for data that is appended."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mergelake.api.python.input import names_of, with_types
from mergelake.table.definition.evolution import Evolution
from mergelake.table.handle.handle import TableHandle


def evolved_for(handle: TableHandle, data: Any) -> tuple[Any, Evolution | None]:
    """The data, which is read again, and the change of the newest schema that it needs.

    Types of data that has none, such as lists of numbers, make no column wider.
    """
    if type(data).__module__.startswith("pyspark."):
        from mergelake.api.spark.write import evolved_for as evolved_for_frame, require_frame

        require_frame(data, "append")
        return data, evolved_for_frame(handle, data.schema)
    state = handle.refresh()
    if hasattr(data, "__arrow_c_stream__") and type(data).__module__.partition(".")[0] != "pandas":
        if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_stream(data)
        data, types = with_types(data, list(data.schema.names))
        return data, Evolution.of(state, types)
    data, new = with_types(data, [name for name in names_of(data) if not state.schema.has(name)])
    return data, Evolution.of(state, new)
