"""A partial statement in another process, whose ClickHouse reads its share of the parts by itself.

The shares are the same for each statement on a version, so a worker that lives on has its share attached already. What
ClickHouse does not take there is scanned, as everywhere.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4  # noqa: TID251  a name within this process

import pyarrow as pa

from mergelake.core.errors import MergelakeError
from mergelake.core.schema import TableSchema
from mergelake.log.state import ActivePart
from mergelake.parts.cache import of_tasks
from mergelake.query.attach import attached
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.attach.part_set import PartSet
from mergelake.query.embedded import engine
from mergelake.query.spread.broadcast import Broadcast
from mergelake.store.spec import StoreSpec

TABLE = "_mergelake.\ue003"
"""Stands in a partial statement for the table that the task attaches."""
CONDITION = "\ue005"
"""Stands there for what holds for the rows of its share."""
FOLDER = "\ue006"
"""Stands there for the folder that it writes into."""
TASKS_A_CORE = 2
"""Shares for each task that runs at a time: some are read faster than others."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some parts of a table for one task, and its pieces of a scan of them."""

    parts: tuple[ActivePart, ...]
    items: tuple[Any, ...]
    condition: str = "1"
    """What else holds for its rows; stands in the place of `CONDITION`."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A statement that gives a task's part of the answer, as Native."""

    sql: str
    settings: Mapping[str, str]
    given: Broadcast
    """The other tables that it reads."""
    folder: str = ""
    """Where it writes what it gives, if it does."""

    def text(self) -> str:
        """The statement for the ClickHouse of this process, but for what it spreads."""
        sql = self.given.placed(self.sql)
        if self.folder:
            made = Path(self.folder) / uuid4().hex
            made.mkdir()
            sql = sql.replace(FOLDER, str(made))
        return sql

    def take_back(self) -> None:
        """Remove what it has written."""
        for made in Path(self.folder).iterdir() if self.folder else ():
            shutil.rmtree(made)


@dataclass(frozen=True, slots=True)
class ScannedTask:
    """What a task runs over a scan: picklable, harmless to repeat."""

    read: Callable[[Any], Iterator[pa.RecordBatch]]
    schema: pa.Schema
    object_name: str
    """`Python(object_name)` reads the scan."""
    partial: Partial

    def __call__(self, item: Any) -> tuple[list[bytes], int, int]:
        """(partial answers as Native, rows scanned, their bytes) of one item."""
        seen = [0, 0]

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in self.read(item):
                seen[0] += batch.num_rows
                seen[1] += batch.nbytes
                yield batch

        reader = pa.RecordBatchReader.from_batches(self.schema, counted())
        answer = engine.run(
            self.partial.text(), {self.object_name: reader}, output="Native", settings=self.partial.settings
        )
        return [answer.data.to_pybytes()], seen[0], seen[1]

    def writing(self, folder: str) -> ScannedTask:
        """The same where the statement writes into a folder."""
        return replace(self, partial=replace(self.partial, folder=folder))


@dataclass(frozen=True, slots=True)
class AttachedTask:
    """What a task runs: picklable, harmless to repeat."""

    spec: StoreSpec
    directory: str
    schema: TableSchema
    partial: Partial
    """Over `TABLE`."""
    scanned: ScannedTask | None
    """The same over a scan; None where a scan of the share is something else."""

    def __call__(self, share: Share) -> tuple[list[bytes], int, int] | None:
        """(partial answers as Native, rows read, their bytes) of a share; None if it is not attached, nor scanned."""
        parts = PartSet(self.spec.open(), self.directory, self.schema, share.parts, of_tasks())
        try:
            with attached.SETS.using(parts, exact=True) as reading:
                ((name, _),) = reading.tables
                sql = self.partial.text().replace(TABLE, name).replace(CONDITION, share.condition)
                answer = engine.run(sql, output="Native", settings=self.partial.settings)
            return [answer.data.to_pybytes()], answer.rows_read, answer.bytes_read
        except NotAttachedError:
            pass
        except MergelakeError as failure:
            if failure.name.lower() not in attached.DAMAGE:
                raise
        self.partial.take_back()
        if self.scanned is None:
            return None
        answers = [self.scanned(item) for item in share.items]
        found = [data for each, _, _ in answers for data in each]
        return found, sum(r for _, r, _ in answers), sum(b for _, _, b in answers)

    def writing(self, folder: str) -> AttachedTask:
        """The same where the statement writes into a folder."""
        scanned = None if self.scanned is None else self.scanned.writing(folder)
        return replace(self, partial=replace(self.partial, folder=folder), scanned=scanned)


def shares(parts: Sequence[ActivePart], items: Sequence[tuple[Any, ...]], count: int) -> list[Share]:
    """At most `count` shares of about the same number of bytes; `items` are pieces of a scan, whose parts they name.

    The same for the same parts, whatever the items.
    """
    heap = [(0, at) for at in range(min(count, len(parts)))]
    chosen: dict[str, int] = {}
    for part in sorted(parts, key=lambda part: (-part.manifest.bytes_on_disk, part.manifest.id)):
        size, at = heapq.heappop(heap)
        chosen[part.manifest.id] = at
        heapq.heappush(heap, (size + part.manifest.bytes_on_disk, at))
    found: list[tuple[list[ActivePart], list[Any]]] = [([], []) for _ in heap]
    for part in parts:
        found[chosen[part.manifest.id]][0].append(part)
    for item in items:
        found[chosen[item[0].manifest.id]][1].append(item)
    return [Share(tuple(some), tuple(pieces)) for some, pieces in found if pieces]
