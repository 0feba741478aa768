"""Building parts for a ClickHouse that somebody else runs: `write_part(rows, directory, "CREATE TABLE …")`.

The rows are converted, completed with defaults, split by partition and sorted as an INSERT into that table would do
it, and written as part directories in plain files. ClickHouse takes them with `ALTER TABLE … ATTACH PART`; nothing is
sorted or compressed there.

No table of ours is involved and nothing is committed: a part is whole once its `checksums.txt` is there, which is
written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mergelake.api.python.environment import state_functions
from mergelake.api.python.input import storage_batches
from mergelake.api.sql.parser import parse_one
from mergelake.api.sql.statements import CreateTable
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import error
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.format.files.partition import Partition
from mergelake.store.interface.protocol import Store
from mergelake.store.open import open_store
from mergelake.table.definition.define import check_schema
from mergelake.table.write.insert import insert_target, write_blocks


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A part directory that was written."""

    name: str
    """`<partition>_<n>_<n>_0`: what ATTACH PART takes."""
    path: str
    """Where it lies; `read_part` takes it."""
    partition_id: str
    rows: int
    bytes: int
    """Bytes of its files."""


def write_part(
    data: Any,
    directory_or_url: str,
    ddl: str | TableSchema,
    *,
    part_name: str | None = None,
    block: int | None = None,
    replace_existing: bool = False,
    block_rows: int | None = None,
    options: Mapping[str, str] | None = None,
    threads: int = 1,
) -> tuple[WrittenPart, ...]:
    """Write rows as ClickHouse part directories below `directory_or_url`, one for each partition and block of rows.

    Parameters
    ----------
    data
        What `Table.append` takes, except Spark DataFrames (their tasks call this function themselves).
    directory_or_url
        Any store; a table's own `detached` directory is as good as another.
    ddl
        The table's CREATE TABLE, as SHOW CREATE TABLE prints it; its name means nothing. Of the engine only the family
        matters: rows are sorted and never collapsed, which is what merges of any engine expect.
    part_name
        Name for the one part that comes out; BAD_ARGUMENTS if there would be two or its partition is another.
    block
        Number `n` of each partition's first part, the next ones count on. Without it the first that is free in the
        directory. Writers that work side by side need ranges of their own: a Spark task takes its partition's number.
    replace_existing
        Overwrite parts of these names: a task that runs again leaves one copy. Without it they are refused with
        DIRECTORY_ALREADY_EXISTS.
    block_rows
        Rows of a part at most (default: `max_insert_block_size`, about a million).
    options
        Options of the store, see `mergelake.store.open_store`.
    threads
        How many threads encode columns.

    Raises
    ------
    MergelakeError
        What `Table.append` raises for the data, after deleting what had been written, and what CREATE TABLE raises for
        a definition that is not supported.
    """
    schema = part_schema(ddl, block_rows)
    batches = storage_batches(data, schema)
    store = open_store(directory_or_url, options)
    names = _Names(store, part_name, block, replace_existing=replace_existing)
    target = insert_target(store, "", schema, RandomIds(), SystemClock())
    manifests = write_blocks(target, batches, threads=threads, name_part=names.name, states=state_functions())
    return tuple(_written(store, manifest) for manifest in manifests)


def part_schema(ddl: str | TableSchema, block_rows: int | None = None) -> TableSchema:
    """The schema of a table that only sorts its rows, with parts stored file by file."""
    if isinstance(ddl, TableSchema):
        schema = ddl
    else:
        statement = parse_one(ddl)
        if not isinstance(statement, CreateTable) or statement.schema is None:
            raise error(
                "BAD_ARGUMENTS",
                "The table's definition is not a CREATE TABLE with columns",
                "SHOW CREATE TABLE prints it",
            )
        schema = statement.schema
    if schema.engine.endswith("MergeTree"):
        schema = replace(schema, engine="MergeTree", engine_args=())
    settings: dict[str, str | int | float | bool] = {**schema.settings, "min_bytes_for_full_part_storage": 0}
    if block_rows is not None:
        settings["max_insert_block_size"] = block_rows
    return check_schema(replace(schema, settings=TableSettings(settings).as_text()))


class _Names:
    """Names for the parts of one call."""

    def __init__(self, store: Store, part_name: str | None, block: int | None, *, replace_existing: bool) -> None:
        self._store = store
        self._wanted = PartInfo.parse(part_name) if part_name is not None else None
        self._replace = replace_existing
        self._existing: dict[str, list[str]] = {}
        for meta in store.list(""):
            name, slash, _ = meta.key.partition("/")
            if slash:
                self._existing.setdefault(name, []).append(meta.key)
        infos = filter(None, map(PartInfo.try_parse, self._existing))
        self._first = block if block is not None else max((info.max_block for info in infos), default=0) + 1
        self._next: dict[str, int] = {}

    def name(self, partition: Partition, level: int) -> str:
        """The next part's name."""
        if self._wanted is not None:
            name = str(self._wanted)
            if self._next or self._wanted.partition_id != partition.id:
                raise error(
                    "BAD_ARGUMENTS",
                    f"The rows do not make the one part {name}: there are rows of partition '{partition.id}'",
                    "Leave part_name out, give rows of one partition, or raise block_rows",
                )
        else:
            number = self._next.get(partition.id, self._first)
            name = str(PartInfo(partition.id, number, number, level))
        self._next[partition.id] = self._next.get(partition.id, self._first) + 1
        keys = self._existing.get(name, [])
        if keys and not self._replace:
            raise error(
                "DIRECTORY_ALREADY_EXISTS",
                f"There is a part {name} in {self._store.url} already",
                "Give another block number, or replace_existing=True",
            )
        # checksums.txt goes first: without it, the files that are left are not taken for a whole part
        for key in sorted(keys, key=lambda key: not key.endswith("/checksums.txt")):
            self._store.delete([key])
        return name


def _written(store: Store, manifest: PartManifest) -> WrittenPart:
    path = f"{store.url.rstrip('/')}/{manifest.id}"
    return WrittenPart(manifest.id, path, manifest.partition_id, manifest.rows, manifest.bytes_on_disk)
