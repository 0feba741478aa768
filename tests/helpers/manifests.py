"""Part manifests without parts, and logs without tables: for tests of what never looks at bytes."""

from __future__ import annotations

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.manifest import Extent, PartFile, PartManifest, encode_files
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import CreateTable
from mergelake.log.storage.machine import TableMachine

SCHEMA = TableSchema((Column(0, "k", parse_type("Int64")),), order_by=("k",), primary_key=("k",))


def schema_with(**settings):
    return SCHEMA.with_settings({name: str(value) for name, value in settings.items()})


def manifest(part_id, partition_id="all", rows=10, files=2, **fields):
    """A manifest with `files` files in one object."""
    name = part_id if isinstance(part_id, str) else f"{part_id:032x}"
    key = f"{name}/files.packed"
    table = [
        PartFile(f"c{n}.bin", 1000, (Extent(key, n * 1000, 1000),), f"{n:032x}", 4000, f"{n + 1:032x}")
        for n in range(files)
    ]
    values = {"marks": 1, "bytes_on_disk": 1000 * files, "columns": (0,), **fields}
    return PartManifest(name, partition_id, rows, encode_files(table), **values)


def open_log(store, prefix="t/_log", seed=0, clock=None, **options):
    """A table's log as one more process would open it."""
    options = {"clock": clock or ManualClock(), "ids": SeededIds(seed), "author": f"writer {seed}", **options}
    return Log.open(store, prefix, TableMachine(), **options)


def new_log(store, schema=SCHEMA, **options):
    """A log with its first entry."""
    log = open_log(store, **options)
    log.commit(lambda _: [CreateTable(schema)])
    return log
