"""What a part is written from: where it goes (`PartTarget`), what is known before its rows (`PartSpec`), its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.clock import Clock
from mergelake.core.ids import IdSource
from mergelake.core.schema import TableSchema
from mergelake.core.settings import TableSettings
from mergelake.core.types import DataType
from mergelake.format.many import Encoded
from mergelake.format.partition import WHOLE_TABLE, Partition
from mergelake.parts.objects import PartObjects
from mergelake.store.protocol import Store


@dataclass(frozen=True, slots=True)
class PartTarget:
    """Where parts go, and by what rules: the same for all parts of an insert or a merge."""

    store: Store
    directory: str
    """Of the table."""
    schema: TableSchema
    settings: TableSettings
    """The schema's, or others for these parts."""
    key_types: Sequence[DataType]
    """Of the primary key's columns; empty for ORDER BY tuple()."""
    ids: IdSource
    clock: Clock
    objects: PartObjects | None = None
    """Where packed parts go that share objects."""


@dataclass(frozen=True, slots=True)
class PartSpec:
    """What is known of a part before its rows are written."""

    granules: int | NDArray[np.int64]
    """Rows of each granule, or one size for all (the last takes what is left)."""
    partition: Partition = WHOLE_TABLE
    minmax: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Extremes of the partition key's source columns (`format.extremes`); empty for a part without rows."""
    level: int = 0
    part_id: str | None = None
    """None: an id that nobody else has."""
    compact: bool = False
    """All columns in one file, held in memory until `finish` (`is_compact` says when)."""
    expected_rows: int | None = None
    """Of the part, if known: the last, shorter granule is then encoded with those before it."""
    listed: bytes | None = None
    """`columns.txt`, if it was made for another part."""


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows of one partition in the order of the sorting key, as they become a part."""

    block: pa.Table | pa.RecordBatch
    """Every stored column, in storage form."""
    primary: Sequence[pa.Array]
    """Values of the primary key's columns."""
    computed: Sequence[pa.Array] = ()
    """Values of the sorting key's expressions that are no columns; ClickHouse counts them in a granule's bytes."""
    partition_sources: Mapping[str, tuple[pa.Array, DataType]] = field(default_factory=dict)
    """Values and type of the columns and subcolumns that the partition key's expressions use: their extremes are kept
    (`encoded` has them already)."""
    encoded: Encoded | None = None
    """What was made with that of other parts (`format.many`): used if the part turns out to be one granule."""
