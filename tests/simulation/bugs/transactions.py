"""Mistakes about transactions over several tables."""

from __future__ import annotations

import dataclasses
from unittest import mock

from mergelake.api.python import joint
from mergelake.jobs.gc import transactions as collected
from mergelake.log.model import fold
from mergelake.log.model.operations import Decision
from mergelake.log.reading import transactions
from mergelake.log.reading.transactions import Decisions, Record
from mergelake.table.partitions import carry, exchange_parts, transaction
from tests.simulation import movers
from tests.simulation.bugs.registry import bug


@bug
def a_decision_is_ignored():
    """Whatever was decided, the entry counts."""
    real = Record.seen_from

    def careless(self, table, version):
        return dataclasses.replace(real(self, table, version), committed=True)

    return mock.patch.object(Record, "seen_from", careless)


@bug
def an_entry_that_is_not_decided_counts():
    """Who meets an entry without a record takes it for committed."""
    real = Decisions.complete

    def careless(self, entry):
        complete = real(self, entry)
        return entry.decided(Decision(True)) if complete is None else complete

    return mock.patch.object(Decisions, "complete", careless)


@bug
def a_reader_of_two_tables_looks_at_each_alone():
    return mock.patch.object(joint, "lagging", return_value=set())


@bug
def a_record_goes_as_soon_as_the_fence_has_passed():
    """Its entries may still be read."""
    return mock.patch.object(
        collected, "_has_passed", lambda handle, base_version: handle.log.refresh().fence > base_version
    )


@bug
def a_record_goes_with_the_entry_of_one_table():
    def careless(record, table):
        handles = {name: table(name) for name in record.tables}
        return any(h is None or collected._has_passed(h, record.tables[n][0]) for n, h in handles.items())

    return mock.patch.object(collected, "is_over", careless)


@bug
def whoever_gives_up_overwrites_the_record():
    """Abort after commit: the record is put, not created."""
    real = transactions.decide

    def careless(store, name, wanted, clock, ids):
        if wanted.committed:
            return real(store, name, wanted, clock, ids)
        store.put(transactions.record_key(name), transactions.encode_record(wanted))
        return wanted

    return mock.patch.object(transactions, "decide", careless)


@bug
def a_coordinator_believes_what_it_wanted():
    """Late coordinator: that it was given up meanwhile escapes it."""
    real = transaction.decide

    def careless(store, name, wanted, clock, ids):
        real(store, name, wanted, clock, ids)
        return wanted

    return mock.patch.object(transaction, "decide", careless)


@bug
def a_transaction_counts_from_different_times_on():
    def careless(self, timestamp_ms):
        return self._kept(self.log.version_at(timestamp_ms))

    real = movers.TableHandle.state_at

    def state_at(self, version=None, timestamp_ms=None):
        if timestamp_ms is None:
            return real(self, version)
        self.refresh()
        return careless(self, timestamp_ms)

    return mock.patch.object(movers.TableHandle, "state_at", state_at)


@bug
def carried_mutations_concern_all_rows():
    real = fold.Draft._mutate

    def careless(self, op):
        real(self, dataclasses.replace(op, only=()))

    return mock.patch.object(fold.Draft, "_mutate", careless)


@bug
def lacking_mutations_are_left_behind():
    return mock.patch.object(carry, "lacking", return_value=())


@bug
def a_moved_part_is_not_held_where_it_lies():
    real = exchange_parts.carried

    def careless(*arguments):
        out = real(*arguments)
        return dataclasses.replace(out, holds={owner: names[:-1] for owner, names in out.holds.items()})

    return mock.patch.object(exchange_parts, "carried", careless)
