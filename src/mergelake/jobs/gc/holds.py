"""Checks which tables still refer to directories of this one.

A clone holds directories of the tables whose objects it refers to *before* its own first entry, and refers to fewer of
them as it is merged and its history is cut. A table gets further ones only by a transaction in which this table takes
part. So a hold may be released as soon as the holder's state reaches none of these directories, unless there was such a
transaction since the state of this table that was read before (`RoundPlan.ops`). A holder that does not exist may be a
clone under way: after a grace period its first log position is taken, so that it can never begin.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from mergelake.core.base.errors import MergelakeError, NotFoundError
from mergelake.jobs.gc.plan import Holds
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import CreateTable, DropTable
from mergelake.log.model.retention import foreign
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine
from mergelake.table.handle.handle import OpenTable, TableHandle

_logger = logging.getLogger("mergelake.gc")


@dataclass(frozen=True, slots=True)
class Holders:
    """The tables that hold directories here."""

    released: Holds
    """The holds, as read, of tables that reach nothing here, and never will again."""
    absent: tuple[str, ...]
    """Tables that do not exist (yet)."""


def look_at_holders(
    handle: TableHandle, state: State, missed: Collection[str], dry_run: bool, open_table: OpenTable
) -> Holders:
    """Open every holder: 3 GETs each. `missed` are holders that did not exist a grace period ago."""
    released: dict[str, tuple[str, ...]] = {}
    absent = []
    for holder, held in state.holds.items():
        try:
            reaches = refers_to(open_table(holder).log.state, handle.directory)
        except NotFoundError:
            if holder in missed and (dry_run or _buried(handle, holder)):
                released[holder] = held
            else:
                absent.append(holder)
        except MergelakeError as problem:
            _logger.warning("table %s cannot be opened, and keeps what it holds: %s", holder, problem)
        else:
            if not reaches:
                released[holder] = held
    return Holders(released, tuple(absent))


def refers_to(state: State, table: str) -> bool:
    """Whether a state needs objects of another table."""
    return any(owner == table for owner, _ in foreign(state))


def _buried(handle: TableHandle, holder: str) -> bool:
    """Commit a dropped table in place of one that never began; False if it has begun, or the outcome is unknown."""
    log = Log(
        handle.store,
        f"{holder}/_log",
        TableMachine(),
        clock=handle.clock,
        ids=handle.ids,
        author=handle.log.author,
        backends=handle.log.backends,
    )
    schema = next(iter(handle.log.state.schemas.values()))
    try:
        return log.commit(lambda state: () if state.version else (CreateTable(schema), DropTable())).entry is not None
    except MergelakeError as problem:
        _logger.warning("table %s never began, and keeps what it holds for now: %s", holder, problem)
        return False
