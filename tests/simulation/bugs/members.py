"""Mistakes about entries of several members, and what was left for them in the intake."""

from __future__ import annotations

import contextlib
import dataclasses
from unittest import mock

from mergelake.core.base.errors import ConflictError, UnavailableError
from mergelake.log.backends import intake
from mergelake.log.commit import commit, group
from mergelake.log.commit.contention import ContentionBackoff
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import Member, writer_of
from mergelake.log.reading.head_freshness import Instant
from tests.simulation.bugs.registry import bug


@bug
def a_member_is_appended_at_a_later_position():
    """Whoever lists the intake takes what it finds there, whatever it was meant for."""

    def careless(self, position, own, known=()):
        keys = [key for key, _ in self._list()[0] if not key.endswith(f"-{writer_of(own)}.json")]
        keys = keys[-intake.TAKEN_MAX :]
        found = [self._decoded(key, data) for key, data in zip(keys, self._place.get_many(keys), strict=True) if data]
        return [left for left in found if left is not None]

    return mock.patch.object(intake.Intake, "take", careless)


@bug
def who_is_not_in_an_entry_of_several_believes_to_be():
    """A sender that sees its position taken by an entry of several takes it for the one with its member."""
    real = commit.Log._moved_on

    def careless(self, entry, after, holder, since, *, left):
        landed = real(self, entry, after, holder, since, left=left)
        return holder if landed is None and left and len(holder.members) > 1 else landed

    return mock.patch.object(commit.Log, "_moved_on", careless)


def _taken_along(before_it=lambda after, state: after, judge=True):
    def careless(machine, state, own, after, left):
        members, ops = list(own.parties), list(own.ops)
        for each in left:
            trial = group._without_version(before_it(after, state), state.version)
            entry = dataclasses.replace(own, ops=each.ops)
            judged = machine.step(trial, entry) if judge else trial
            if not isinstance(judged, Reject):
                after = machine.fold(group._without_version(after, state.version), [entry])
                ops += each.ops
                members.append(Member(each.attempt, each.author, len(each.ops)))
        return dataclasses.replace(own, ops=tuple(ops), members=tuple(members)), after

    return careless


@bug
def a_member_is_not_judged():
    """It was valid where its sender stood; what stands before it in the entry is not looked at."""
    return mock.patch.object(commit, "taken_along", _taken_along(judge=False))


@bug
def members_are_judged_on_the_state_before_the_entry():
    return mock.patch.object(commit, "taken_along", _taken_along(before_it=lambda after, state: state))


@bug
def who_is_out_of_patience_fails():
    """Nobody has taken the member along for long, so it is given up; it may be taken yet."""

    def careless(self, intake, own, after, data):
        began = Instant.now(self._clock)
        with contextlib.suppress(UnavailableError):
            intake.leave(own.version, own.attempt, data)
        holder = self._awaited(own.version, self._contention.pauses())
        if holder is None:
            raise ConflictError("nobody takes it")
        self._contention.lost(holder, holder.holds(own.attempt), paced=True)
        return self._moved_on(own, after, holder, began, left=True)

    return mock.patch.object(commit.Log, "_left", careless)


@contextlib.contextmanager
def _reads_along():
    """What one of two reads while it waits is taken for what it wanted to say."""
    pauses, moved_on = ContentionBackoff.pauses_for_other, commit.Log._moved_on

    def waits(self, notified=False):
        self.waited = True
        return pauses(self, notified)

    def careless(self, entry, after, holder, since, *, left):
        landed = moved_on(self, entry, after, holder, since, left=left)
        return entry if self._contention.__dict__.pop("waited", False) and holder is not None else landed

    with (
        mock.patch.object(ContentionBackoff, "pauses_for_other", waits),
        mock.patch.object(commit.Log, "_moved_on", careless),
    ):
        yield


@bug
def who_waits_for_another_takes_its_entry_for_its_own():
    return _reads_along()


@bug
def all_of_an_entry_get_the_state_after_it():
    real = group.within

    def careless(machine, state, proposal, entry, attempt):
        out = real(machine, state, proposal, entry, attempt)
        after = machine.fold(state, [entry])
        out.heard = [(request, after if count else held, count) for request, held, count in out.heard]
        return out

    return mock.patch.object(commit, "within", careless)


@bug
def only_who_appended_an_entry_finds_itself_in_it():
    """A sender does not look for its attempt among the members, and commits the same again."""
    real = commit.Log._moved_on

    def careless(self, entry, after, holder, since, *, left):
        landed = real(self, entry, after, holder, since, left=left)
        return landed if holder is None or holder.attempt == entry.attempt else None

    return mock.patch.object(commit.Log, "_moved_on", careless)


@bug
def what_depends_on_the_state_is_left_in_the_intake():
    """A rollback, say, stands behind inserts of others, for which inserts are forgotten that it brings back."""
    return mock.patch.object(group.Proposal, "passes_on", return_value=True)
