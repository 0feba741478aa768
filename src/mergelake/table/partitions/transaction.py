"""Commits over several tables: all of them have it, or none (`log.reading.transactions`, `docs/design/0025`).

The coordinator prepares the share of each table in the order in which it is given: that of the second may depend on the
exact state of the first. It waits for other transactions only in tables that come, by their directories, after all that
it has prepared; elsewhere it gives up at once and tries again. So no two wait for each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mergelake.core.base.errors import ConflictError, MergelakeError, UnavailableError
from mergelake.log.model.operations import Entry, Prepare, TableOp
from mergelake.log.model.state import State
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S, Instant
from mergelake.log.reading.transactions import Record, decide
from mergelake.table.handle.handle import TableHandle

Build: TypeAlias = Callable[[State], Sequence[TableOp]]


@dataclass(frozen=True, slots=True)
class Share:
    """What a transaction does to one table."""

    handle: TableHandle
    build: Build
    """Its operations, at least one, on the newest state; called again after each lost race."""


def commit_over(shares: Sequence[Share]) -> list[State]:
    """Commit to several tables of one store at once; returns the state of each as known here, with the transaction.

    One PUT for each table and one for the record. Raises the error of a rejected operation; ConflictError (ABORTED) if
    another process gave the transaction up, or was met in the wrong order: nothing happened, and trying again makes
    sense. UnavailableError if the outcome is not known.
    """
    first = shares[0].handle
    transaction, began = first.ids.new_id(), Instant.now(first.clock)
    base_versions = {share.handle.directory: share.handle.log.fresh().version for share in shares}
    entries: list[Entry] = []
    try:
        for at, share in enumerate(shares):
            entries.append(_prepared(share, transaction, base_versions, shares[:at]))
    except BaseException as failure:
        if entries or not isinstance(failure, MergelakeError) or isinstance(failure, UnavailableError):
            _give_up(shares, entries, transaction, base_versions)
        raise
    tables = {
        share.handle.directory: (base_versions[share.handle.directory], entry.version)
        for share, entry in zip(shares, entries, strict=True)
    }
    wanted = Record(True, tables, max(entry.timestamp_ms for entry in entries))
    standing = decide(first.store, transaction, wanted, first.clock, first.ids)
    if began.age_s(first.clock) > HEAD_FRESHNESS_S:
        _check_not_collected(shares, entries, transaction)
    states = [share.handle.log.decided(entry, standing) for share, entry in zip(shares, entries, strict=True)]
    if not standing.committed:
        raise ConflictError(
            "Another process waited for this transaction for too long, and gave it up", name="ABORTED", hint="Try again"
        )
    return states


def _prepared(share: Share, transaction: str, base_versions: dict[str, int], before: Sequence[Share]) -> Entry:
    directory = share.handle.directory
    others = tuple((name, version) for name, version in sorted(base_versions.items()) if name != directory)

    def build(state: State) -> Prepare:
        return Prepare(transaction, base_versions[directory], others, tuple(share.build(state)))

    in_order = all(each.handle.directory < directory for each in before)
    return share.handle.log.prepare(build, None if in_order else 0.0)


def _give_up(
    shares: Sequence[Share], entries: Sequence[Entry], transaction: str, base_versions: dict[str, int]
) -> None:
    """Decide against the transaction, so that nobody has to wait for it. If that fails, others do so later."""
    handle = shares[0].handle
    with contextlib.suppress(MergelakeError):
        wanted = Record(False, {name: (version, 0) for name, version in base_versions.items()})
        standing = decide(handle.store, transaction, wanted, handle.clock, handle.ids)
        for share, entry in zip(shares, entries, strict=False):
            share.handle.log.decided(entry, standing)


def _check_not_collected(shares: Sequence[Share], entries: Sequence[Entry], transaction: str) -> None:
    """Raise UnavailableError if the record may have been there before, and been collected, while this process slept.

    Then the history of at least one table has passed its entry (`jobs.gc.transactions`).
    """
    for share, entry in zip(shares, entries, strict=True):
        if share.handle.log.refresh().history > entry.version:
            message = f"It is not known whether transaction {transaction} was committed: this process stood still"
            raise UnavailableError(message, hint="Look at the history of its tables before trying again")
