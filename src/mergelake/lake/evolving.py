"""`merge_schema`: what of a table's schema has to change for data that is appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mergelake.core.types import DataType
from mergelake.lake.input import names_of, with_types
from mergelake.table.alter.evolution import Evolution, commands_for
from mergelake.table.handle import TableHandle


def evolved_for(handle: TableHandle, data: Any) -> tuple[Any, Evolution | None]:
    """The data, which is read again, and the change of the newest schema that it needs.

    Types of data that has none, such as lists of numbers, make no column wider.
    """
    schema = handle.refresh().schema
    if hasattr(data, "__arrow_c_stream__") and type(data).__module__.partition(".")[0] != "pandas":
        if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_stream(data)
        data, types = with_types(data, list(data.schema.names))
        return data, _evolution(handle, types)
    data, new = with_types(data, [name for name in names_of(data) if not schema.has(name)])
    return data, _evolution(handle, new)


def evolved_for_frame(handle: TableHandle, frame: Any) -> Evolution | None:
    """The change of the newest schema that a Spark DataFrame needs."""
    from mergelake.core.inferred import inferred_types
    from mergelake.spark.types import frame_schema
    from mergelake.spark.write import require_frame

    require_frame(frame, "append")
    handle.refresh()
    return _evolution(handle, inferred_types(frame_schema(frame)))


def _evolution(handle: TableHandle, types: Mapping[str, DataType]) -> Evolution | None:
    state = handle.log.state
    new = {name: kind for name, kind in types.items() if not state.schema.has(name)}
    given = {name: kind for name, kind in types.items() if state.schema.has(name)}
    return Evolution.of(state, commands_for(state.schema, new, given))
