"""Mistakes of leaders, and of those who pass commits on to them."""

from __future__ import annotations

import dataclasses
from unittest import mock

from mergelake.log.commit import commit, group, passing, sending
from mergelake.log.model.operations import Entry
from mergelake.log.reading import recent
from mergelake.log.relay import leader
from tests.simulation.bugs.registry import both, bug


@bug
def no_answer_is_taken_for_a_refusal():
    """Who got no answer goes the direct way under another attempt, though the leader may have appended the first."""
    return mock.patch.object(sending, "_doubt", return_value=None)


@bug
def who_is_in_doubt_does_not_look_for_its_attempt():
    def careless(self, requests):
        for request in requests:
            request.doubt = self._state

    return mock.patch.object(commit.Log, "_find", careless)


@bug
def who_gives_up_in_doubt_says_so_to_nobody():
    """It reports a failure, and the leader appends it afterwards."""
    return mock.patch.object(group.Proposal, "given_up", [])


@bug
def a_leader_does_not_look_for_attempts_in_what_it_reads():
    """What a sender that lost patience appended by itself is appended again."""
    return mock.patch.object(recent.Recent, "find", return_value=0)


@bug
def a_leader_knows_only_what_it_wrote_itself():
    real = recent.Recent.add

    def careless(self, entry, data, *, own=False):
        real(self, entry if own else dataclasses.replace(entry, members=()), data, own=own)

    return mock.patch.object(recent.Recent, "add", careless)


@bug
def a_leader_takes_messages_of_any_age():
    """Also those from before the entries that it remembers."""
    return mock.patch.object(recent.Recent, "reaches", return_value=True)


@bug
def what_is_refused_is_not_remembered():
    """The first copy of a message is refused; by the time of the second what stood in its way is gone."""
    real = leader.ServedLog._settle

    def careless(self, works):
        real(self, works)
        self._closed.clear()

    return mock.patch.object(leader.ServedLog, "_settle", careless)


@bug
def a_sender_believes_what_a_leader_says_and_does_not_fold():
    """Its state is the one after its own operations, as if nobody else's stood before them in the entry."""

    def careless(machine, state, entry, attempts):
        now, after = group_states(machine, state, entry, attempts)
        for attempt in after:
            end = len(entry.until(attempt).ops)
            count = next(member.ops for member in entry.parties if member.attempt == attempt)
            own = Entry(entry.version, "", entry.timestamp_ms, "", entry.ops[end - count : end])
            now = machine.fold(state, [own])
        return now, after

    group_states = group.states_within
    return mock.patch.object(sending, "states_within", careless)


@bug
def an_unknown_outcome_of_a_leader_is_told_as_a_refusal():
    """The store was silent, the entry may be there; the sender hears that it was not taken, and goes on anew."""
    real = leader._outcome

    def careless(request):
        outcome = real(request)
        return passing.Outcome("not taken") if outcome.kind == "unknown" else outcome

    return mock.patch.object(leader, "_outcome", careless)


@bug
def a_message_that_comes_twice_is_appended_twice():
    """The second copy does not find the first one under way, nor in what was written."""
    real = leader.ServedLog._work

    def careless(self, member, made):
        self._under_way.pop(member.attempt, None)
        work = real(self, member, made)
        work.request.build = lambda _: member.ops
        return work

    def settle(self, works):
        for work in works:
            self._under_way.setdefault(work.request.attempt, work)
        real_settle(self, works)

    real_settle = leader.ServedLog._settle
    return both(
        mock.patch.object(leader.ServedLog, "_work", careless), mock.patch.object(leader.ServedLog, "_settle", settle)
    )
