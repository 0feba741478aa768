"""Inputs of writing a part: destination (`PartTarget`), properties (`PartSpec`) and rows (`SortedRows`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.clock import Clock
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import PartFile
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.core.types.types import DataType
from mergelake.format.codecs.codec import Codec
from mergelake.format.columns.many import Encoded
from mergelake.format.files.partition import WHOLE_TABLE, Partition
from mergelake.parts.write.objects import PartObjects
from mergelake.store.interface.protocol import Store


@dataclass(frozen=True, slots=True)
class PartTarget:
    """Destination and settings, common to all parts of an insert or a merge."""

    store: Store
    directory: str
    """Directory of the table."""
    schema: TableSchema
    settings: TableSettings
    """Settings of the schema, or others for these parts."""
    key_types: Sequence[DataType]
    """Types of the primary key's columns; empty for ORDER BY tuple()."""
    ids: IdSource
    clock: Clock
    objects: PartObjects | None = None
    """Stores packed parts that share objects."""


@dataclass(frozen=True, slots=True)
class PartTtl:
    """When the rows of a part expire."""

    infos: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """As in `PartManifest`."""
    file: bytes = b""
    """The contents of `ttl.txt`; empty: there is no such file."""


NO_TTL = PartTtl()


@dataclass(frozen=True, slots=True)
class PartSpec:
    """Properties of a part that are known before its rows are written."""

    granules: int | NDArray[np.int64]
    """Rows of each granule, or one number for all but the last."""
    partition: Partition = WHOLE_TABLE
    minmax: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Extremes of the partition key's source columns (`format.files.extremes`); empty for a part without rows."""
    level: int = 0
    part_id: str | None = None
    """Id of the part; None for a new one."""
    compact: bool = False
    """Write all columns into one file, held in memory until `finish` (see `is_compact`)."""
    continues: bool = False
    """Whether it is a slice of another part, of whose streams its files are pieces (`parts.write.assemble`)."""
    expected_rows: int | None = None
    """Rows of the part, if known: then the last, shorter granule is encoded together with those before it."""
    listed: bytes | None = None
    """Contents of `columns.txt`, if they were encoded for another part."""
    codec: Codec | None = None
    """Default codec of the part (`parts.read.default_codec`); None: that of a small one."""
    ttl: PartTtl = NO_TTL
    without: frozenset[str] = frozenset()
    """Columns that are not written: readers compute their defaults."""


@dataclass(frozen=True, slots=True)
class TakenFiles:
    """The columns and indexes of a Wide part whose files exist as bytes already."""

    rows: int
    marks: int
    """Granules, without the final mark."""
    files: Sequence[PartFile]
    """Data and mark files of all columns and indexes, if they are stored; empty if `write_bytes` wrote them."""
    primary: bytes
    """The primary index, not compressed; empty without a primary key."""
    key_range: tuple[str, str]
    """As in `PartManifest`."""


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows of one partition in the order of the sorting key."""

    block: pa.Table | pa.RecordBatch
    """Every stored column, in storage form."""
    primary: Sequence[pa.Array]
    """Values of the primary key's columns."""
    computed: Sequence[pa.Array] = ()
    """Values of the sorting key's expressions that are not columns; ClickHouse counts them in a granule's bytes."""
    partition_sources: Mapping[str, tuple[pa.Array, DataType]] = field(default_factory=dict)
    """Values and types of the columns and subcolumns that the partition key's expressions use: their extremes are
    stored in the manifest (`encoded` includes them)."""
    ttl: PartTtl = NO_TTL
    encoded: Encoded | None = None
    """Columns encoded together with those of other parts (`format.columns.many`): used if the part is one granule."""
    projections: Sequence[ProjectionRows] = ()
    """The projections of the part."""


@dataclass(frozen=True, slots=True)
class ProjectionRows:
    """The rows of a projection of a part."""

    name: str
    digest: str
    """As in `ProjectionPart`."""
    schema: TableSchema
    """Schema of the projection."""
    key_types: Sequence[DataType]
    """Types of its primary key's columns."""
    rows: SortedRows
