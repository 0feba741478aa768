"""The public objects without SQL: a `Warehouse` holds databases of `Table`s in one bucket or directory.

=============  ==================================================================
`warehouse`    `Warehouse`: open, create, drop, rename, exchange, list
`table`        `Table`: append, snapshot, truncate, drop partitions, inspect
`input`        data of users (Arrow, pandas, polars, dicts) -> storage form
`inspect`      parts and history as Arrow tables
=============  ==================================================================
"""

from mergelake.api.python.table import Table
from mergelake.api.python.warehouse import Warehouse

__all__ = ["Table", "Warehouse"]
