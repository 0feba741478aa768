"""Plays a random sequence on both sides and compares; one that differs is shrunk and told as a script.

python -m tests.helpers.mutations.play 7 0 100         # sequences 0 to 99 of seed 7
python -m tests.helpers.mutations.play 7 0 30 mixed    # each read by other processes too, among them Spark
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence as Many
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from mergelake.core.base.errors import MergelakeError
from mergelake.store.interface.protocol import Store
from tests.helpers.mutations.doors import Door, Spark, all_doors, local_spark
from tests.helpers.mutations.events import happen
from tests.helpers.mutations.sequences import PARTITION, Read, Sequence, Step, draw_sequence
from tests.helpers.mutations.sides import Failed, Ours, Rows, Theirs, describe, in_small_pieces, keys_of

NOT_IMPLEMENTED = (46, 48, 386)
"""Codes of what ClickHouse would take: unknown function, not implemented, no common type (where it has a Variant)."""
UNFINISHED = 341
"""Code of what is refused while some parts have a mutation and others lack it."""
ILLEGAL_COLUMN = 44
"""Code with which ClickHouse fails on some commands whose conditions are constant after those before them."""
SHRINK_S = 60.0


class Differs(AssertionError):
    """The sides differ; the message has the script."""


@dataclass
class Tally:
    """What was played."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))


def play(
    session: Any,
    sequence: Sequence,
    tally: Tally | None = None,
    *,
    schedule: int = 0,
    store: Store | None = None,
    doors: Many[Door] = (),
) -> Rows | None:
    """Play a sequence; returns the rows at its end, None if ClickHouse failed. Raises `Differs`.

    `schedule` seeds when parts are rewritten with their mutations, which changes no answer. With `doors`, statements
    are run and rows are read by them too, and the table lies in a directory.
    """
    seed = f"{sequence.seed} {schedule}"
    with in_small_pieces(random.Random(seed)):
        table = replace(sequence.table, store="disk") if doors else sequence.table
        ours = Ours(table, store)
        for door in doors:
            door.open(table, ours, random.Random(f"{seed} {door.name}"))
        return _Play(Theirs(session, table), ours, sequence, tally or Tally(), seed, doors).run()


def verify(
    session: Any, sequence: Sequence, tally: Tally | None = None, *, schedules: int = 2, doors: Many[Door] = ()
) -> None:
    """Play a sequence under so many schedules, whose ends must be equal; shrink it if it differs."""
    end: Rows | None = None
    for schedule in range(schedules):
        try:
            found = play(session, sequence, tally, schedule=schedule, doors=doors)
            assert end is None or found is None or found == end, "the ends of two schedules differ"
            end = found
        except Exception as problem:
            shrunk, told = _shrunk(session, sequence, schedule, problem, doors)
            counts = f"{len(shrunk.steps)} of {len(sequence.steps)} statements"
            raise Differs(f"sequence {sequence.seed!r}, schedule {schedule}, {counts}\n{told}") from problem


def _shrunk(
    session: Any, sequence: Sequence, schedule: int, problem: Exception, doors: Many[Door]
) -> tuple[Sequence, str]:
    """The sequence without statements that do not matter, and what is told of it."""
    told = str(problem)
    until, size = time.monotonic() + SHRINK_S, max(1, len(sequence.steps) // 2)
    while size:
        at = 0
        while at < len(sequence.steps) and time.monotonic() < until:
            fewer = sequence.only(sequence.steps[:at] + sequence.steps[at + size :])
            try:
                play(session, fewer, schedule=schedule, doors=doors)
                at += size
            except Exception as again:
                if _kind(again) != _kind(problem):
                    at += size
                    continue
                sequence, told = fewer, str(again)
        size = size // 2 if size > 1 else 0
    return sequence, told


def _kind(problem: Exception) -> str:
    return str(problem).split(":", 1)[0]


class _Play:
    def __init__(
        self, theirs: Theirs, ours: Ours, sequence: Sequence, tally: Tally, seed: str, doors: Many[Door]
    ) -> None:
        self._theirs, self._ours = theirs, ours
        self._sequence, self._tally = sequence, tally.counts
        self._seed, self._schedule = seed, random.Random(seed)
        self._doors, self._rng = doors, random.Random()
        self._workers = [ours, *(door.ours for door in doors if isinstance(door, Spark))]
        self._script = [f"-- ours: {sequence.table.our_create}", sequence.table.their_create]
        self._everything = Read(tuple(column.name for column in sequence.table.columns))
        self._remembered: list[tuple[int, Read, Rows]] = []
        self._rewrites = self._schedule.choice((0.0, 0.1, 0.3, 0.7))
        """Share of statements before which parts are rewritten."""

    def run(self) -> Rows | None:
        self._tally["sequences"] += 1
        try:
            for step in self._sequence.steps:
                self._schedule.seed(f"{self._seed} {step.number}")  # the same whatever came before
                self._rng.seed(f"{self._seed} {step.number} doors")
                if self._run(step):
                    for read in step.reads:
                        self._compare(read, remember=step.remembers and read is step.reads[0])
                    self._look_back()
                    self._compare_doors(step)
            return self._end()
        except Failed as problem:
            self._tally["abandoned"] += 1
            self._tally[f"abandoned: {str(problem)[:200]}"] += 1
            return None
        except Differs:
            raise
        except Exception as problem:
            raise self._differs(f"{type(problem).__name__}", traceback.format_exc()) from problem

    def _end(self) -> Rows:
        """Compare all rows as they are, rewritten, read anew, in a clone, and in an older version that is restored."""
        everything = self._everything
        self._compare(everything)
        for door in self._doors:
            self._compare(door.takes(everything), source=door)
        ours = self._ours
        cloned = ours.run("CREATE TABLE c CLONE AS t")
        ours.table.apply_mutations()
        ours.reopen()
        self._script.append("-- CREATE TABLE c CLONE AS t; rewrite; reopen")
        self._compare(everything)
        found = ours.read(everything)
        assert not isinstance(found, int)
        rows = sorted(found)
        if cloned == UNFINISHED:
            cloned = ours.run("CREATE TABLE c CLONE AS t")
        assert not cloned
        for _ in range(2):
            self._expect(everything, rows, "a clone differs", table="c")
            ours.connections[0].table("c").apply_mutations()
        for version, read, old in self._remembered[-3:]:
            try:
                ours.table.rollback(version)
            except MergelakeError as refused:
                if refused.code == UNFINISHED:
                    continue
                raise
            for _ in range(2):
                self._expect(read, old, f"version {version}, rolled back to, differs")
                ours.table.apply_mutations()
        return rows

    def _expect(
        self,
        read: Read,
        rows: Rows,
        what: str,
        *,
        version: int | None = None,
        table: str = "t",
        door: Door | None = None,
    ) -> None:
        found = door.read(read, version) if door else self._ours.read(read, version, table)
        if isinstance(found, int) or sorted(found) != rows:
            told = [describe(found)] if isinstance(found, int) else _difference(rows, found)
            raise self._differs(what, str(read), *told)

    def _run(self, step: Step) -> bool:
        """Run a statement on both sides; returns whether it ran."""
        statement = step.statement
        if PARTITION in statement:
            partitions = self._theirs.partitions()
            if not partitions:
                return False
            statement = statement.replace(PARTITION, partitions[step.pick % len(partitions)])
        self._tally["statements"] += 1
        self._tally[f"statements {statement.split(' t')[0]}"] += 1
        keeps_all = not self._sequence.table.replaces
        worker = self._rng.choice(self._workers)
        worker.handle.refresh()
        for event in happen(worker, self._schedule, self._rewrites, keeps_all=keeps_all):
            self._script.append(f"-- {event}{'' if worker is self._ours else ' by Spark'}")
        found = self._run_here(statement, step)
        if found in NOT_IMPLEMENTED:
            self._tally["not implemented"] += 1
            return False
        self._script.append(statement)
        expected = self._theirs.run(statement)
        if expected == ILLEGAL_COLUMN and not found:
            raise Failed(f"refused by mistake, with code {expected}")
        if found != expected:
            raise self._differs("codes of errors differ", f"ClickHouse {expected}", f"here {found}")
        self._tally["refused"] += found != 0
        return True

    def _run_here(self, statement: str, step: Step) -> int:
        """Run a statement in this process or by one of the doors; returns the code of its error."""
        for door in self._rng.sample(self._doors, len(self._doors)):
            if self._rng.random() < 0.4 and (code := door.run(statement)) is not None:
                self._tally[f"statements by {door.name}"] += 1
                self._script.append(f"-- by {door.name}:")
                self._ours.handle.refresh()
                return code
        return self._ours.run(statement, step.number % 2)

    def _compare_doors(self, step: Step) -> None:
        for door in self._doors:
            if self._rng.random() < door.share:
                self._compare(door.takes(self._rng.choice((self._everything, *step.reads))), source=door)
                self._script.append(f"-- read by {door.name}")

    def _compare(self, read: Read, *, remember: bool = False, source: Ours | Door | None = None) -> None:
        source = source or self._ours
        reads = "reads" if source is self._ours else f"reads by {source.name}"
        self._tally[reads] += 1
        expected, found = self._theirs.read(read), source.read(read)
        if isinstance(found, int) and found in NOT_IMPLEMENTED:
            self._tally[f"{reads} not implemented"] += 1
            return
        if isinstance(expected, int) or isinstance(found, int):
            if found != expected:
                what = f"errors of {reads} differ"
                raise self._differs(what, str(read), describe(expected), describe(found))
            return
        if not _agree(expected, found, read.limit):
            raise self._differs(f"rows of {reads} differ", str(read), *_difference(expected, found))
        if source is not self._ours:
            return
        if read.ordered:
            self._compare_order(read)
        if remember and read.limit is None:
            self._remembered.append((self._ours.version, read, sorted(found)))

    def _compare_order(self, read: Read) -> None:
        """The keys of an ordered read against those that ClickHouse sorts."""
        table = self._sequence.table
        if not table.order_by or any("Nullable" in c.kind or "Float" in c.kind for c in table.columns if c.fixed):
            return
        sources = tuple(column.name for column in table.columns if column.fixed)
        keys = zip(table.order_by, table.descending, strict=True)
        order = ", ".join(f"{text}{' DESC' if down else ''}" for text, down in keys)
        shown = ", ".join(f"hex(toString({text}))" for text in table.order_by)
        limit = f" LIMIT {read.limit}" if read.limit is not None else ""
        expected = self._theirs.select(f"SELECT {shown} {read.tail} ORDER BY {order}{limit}")
        stored = {c.name: c.kind for c in table.columns if c.fixed}
        found = keys_of(self._ours.scan(replace(read, columns=sources)), table.order_by, stored)
        if [_unpadded(row) for row in found] != expected:
            raise self._differs("order differs", str(read), describe(expected), describe(found))

    def _look_back(self) -> None:
        """Ask one of the remembered reads again, of its version."""
        if self._remembered and self._schedule.random() < 0.3:
            version, read, rows = self._schedule.choice(self._remembered)
            self._tally["reads of older versions"] += 1
            self._expect(read, rows, f"version {version} differs", version=version)
            for door in self._doors:
                if door.old_versions and door.takes(read) == read:
                    self._tally[f"reads of older versions by {door.name}"] += 1
                    self._expect(read, rows, f"version {version} by {door.name} differs", version=version, door=door)

    def _differs(self, what: str, *details: str) -> Differs:
        return Differs("\n".join([f"{what}:", *details, "script:", *(f"{line};" for line in self._script)]))


def _unpadded(row: tuple[str, ...]) -> tuple[str, ...]:
    """toString of a FixedString drops the zeros at its end."""
    return tuple(cell if cell == "\\N" else bytes.fromhex(cell).rstrip(b"\0").hex().upper() for cell in row)


def _agree(expected: Rows, found: Rows, limit: int | None) -> bool:
    if limit is None:
        return sorted(expected) == sorted(found)
    return len(found) == min(limit, len(expected)) and not Counter(found) - Counter(expected)


def _difference(expected: Rows, found: Rows) -> list[str]:
    lacking, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    lines = [f"ClickHouse has {len(expected)} rows, here are {len(found)}"]
    lines += [f"only there: {_readable(row)} x {n}" for row, n in list(lacking.items())[:4]]
    return lines + [f"only here: {_readable(row)} x {n}" for row, n in list(extra.items())[:4]]


def _readable(row: tuple[str, ...]) -> tuple[str, ...]:
    def shown(cell: str) -> str:
        try:
            return bytes.fromhex(cell).decode(errors="backslashreplace")
        except ValueError:
            return cell

    return tuple(map(shown, row))


def main(arguments: Many[str]) -> None:
    """Sequences of a seed, telling each that differs."""
    from tests.helpers.oracle import oracle

    seed, first, end, mixed = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3:] == ["mixed"]
    session, tally, failures, began = oracle(), Tally(), 0, time.monotonic()
    Theirs.prepare(session)
    with ExitStack() as stack:
        doors = stack.enter_context(all_doors(local_spark())) if mixed else []
        for number in range(first, end):
            try:
                sequence = draw_sequence(f"{seed}/{number}", statements=(10, 40 if mixed else 60))
                verify(session, sequence, tally, schedules=1 if mixed else 2, doors=doors)
            except Differs as problem:
                failures += 1
                print(f"--- {problem}\n", flush=True)
            if number % 10 == 9 or mixed:
                print(f"{number + 1 - first}: {tally}; {failures} differ; {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tally}; {failures} differ; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
