"""Mistakes of who commits: lost answers, deduplication, knowledge of the head, several callers in one entry."""

from __future__ import annotations

import dataclasses
from unittest import mock

from mergelake.core.base.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from mergelake.log.commit import commit, group
from mergelake.log.model import conflict, fold
from mergelake.log.model.operations import Entry
from mergelake.log.reading.head_freshness import Instant
from mergelake.store.interface.protocol import OutcomeUnknown, Stored
from mergelake.table.write.insert import discard_parts
from tests.simulation.bugs.registry import both, bug


@bug
def objects_are_deleted_although_the_outcome_is_unknown():
    refused = (InvalidInputError, ConflictError, NotFoundError, UnavailableError)
    return mock.patch("mergelake.table.write.insert.COMMIT_REFUSED", refused)


@bug
def a_lost_reply_is_taken_for_a_failure():
    """The writer asks again until it hears an answer, and believes in the last one only."""

    def careless(self, entry):
        outcome = OutcomeUnknown()
        while isinstance(outcome, OutcomeUnknown):
            outcome = self._create(entry.version, commit.encode_entry(entry))
        return None if isinstance(outcome, Stored) else self._reader.try_entry(entry.version)

    return mock.patch.object(commit.Log, "_append", careless)


@bug
def a_lost_reply_is_taken_for_success():
    real = commit.Log._create

    def careless(self, version, data):
        outcome = real(self, version, data)
        return Stored() if isinstance(outcome, OutcomeUnknown) else outcome

    return mock.patch.object(commit.Log, "_create", careless)


@bug
def a_token_is_not_compared():
    real = conflict._check_add

    def careless(state, op, before):
        return real(dataclasses.replace(state, tokens={}), op, before)

    return both(
        mock.patch.object(conflict, "_check_add", careless),
        mock.patch("mergelake.table.write.insert.remembered", return_value=None),
    )


@bug
def a_drop_does_not_forget_tokens():
    return mock.patch.object(fold.Draft, "_forget", return_value=None)


@bug
def old_knowledge_of_the_head_is_believed():
    return mock.patch.object(commit.Log, "_is_head_fresh", return_value=True)


@bug
def the_author_tells_whose_entry_it_is():
    """Two writers with one name take each other's entries for their own."""
    real = commit.Log._append

    def careless(self, entry):
        winner = real(self, entry)
        return None if winner is not None and winner.author == entry.author else winner

    return mock.patch.object(commit.Log, "_append", careless)


@bug
def a_known_answer_is_given_without_a_look():
    """An insert that was known as done is done, though it may have been dropped since."""
    real_commit, real_look, real_stored = commit.Log._commit_or_raise, commit.Log._refresh_head, commit.Log._stored

    def committing(self, group):
        self._careless = True
        try:
            real_commit(self, group)
        finally:
            self._careless = False

    def stored(self, entry, after, **options):
        self._careless = False
        return real_stored(self, entry, after, **options)

    def look(self, ahead=1):
        if not (getattr(self, "_careless", False) and self._is_head_fresh()):
            real_look(self, ahead)

    return both(
        mock.patch.object(commit.Log, "_commit_or_raise", committing),
        mock.patch.object(commit.Log, "_stored", stored),
        mock.patch.object(commit.Log, "_refresh_head", look),
    )


@bug
def a_refresh_shares_a_look_that_began_before_it():
    def careless(self):
        seen = self._refreshes_begun - 1
        with self._lock:
            if self._refresh_known <= seen:
                self._refresh_head()
            return self._state

    return mock.patch.object(commit.Log, "refresh", careless)


@bug
def callers_of_a_group_are_judged_apart():
    """Each on the state before the entry, not on what the others leave."""
    real = group.propose

    def careless(machine, state, requests, head):
        out = group.Proposal(state)
        for request in requests:
            alone = real(machine, state, [request], head)
            out.ops += alone.ops
            out.heard += alone.heard
            out.refused += alone.refused
            out.state = alone.state if alone.ops else out.state
        return out

    return mock.patch.object(commit, "propose", careless)


@bug
def who_lost_a_race_says_the_same_again():
    """What was said on the state before is sent to the next position, unasked."""
    real, said = group.propose, {}

    def careless(machine, state, requests, head):
        before = said.get(id(requests[0]))
        if before is None:
            proposal = real(machine, state, requests, head)
            said[id(requests[0])] = (requests[0], proposal)
            return proposal
        proposal = before[1]
        entry = Entry(head.version, head.attempt, head.timestamp_ms, head.author, tuple(proposal.ops))
        return dataclasses.replace(proposal, state=machine.fold(state, [entry]))

    return mock.patch.object(commit, "propose", careless)


@bug
def callers_for_whom_there_is_no_room_are_forgotten():
    return mock.patch.object(group.CommitQueue, "put_back", return_value=None)


@bug
def knowledge_is_as_young_as_its_answer():
    """Its age is counted from the reply, which may have taken hours, and not from the question."""
    look = commit.Log._refresh_head

    def careless_moved_on(self, entry, after, holder, since, *, left):
        self._state = after if holder is None else self._machine.fold(self._state, [holder])
        self._known = Instant.now(self._clock)
        return entry if holder is None else holder if holder.holds(entry.attempt) else None

    def careless_look(self, ahead=1):
        if self._is_head_fresh():
            self._refreshes_begun += 1
            self._state = self._reader.follow(self._state, ahead)
            self._known, self._refresh_known = Instant.now(self._clock), self._refreshes_begun
        else:
            look(self, ahead)

    return both(
        mock.patch.object(commit.Log, "_moved_on", careless_moved_on),
        mock.patch.object(commit.Log, "_refresh_head", careless_look),
    )


@bug
def a_retry_deletes_what_landed():
    """A second commit of the same parts is refused, and their objects go, though the first one brought them in."""

    def careless(handle, manifests):
        discard_parts(handle.store, handle.directory, manifests)

    places = ("table.write.insert", "jobs.merge.commit", "jobs.node.worker")
    patches = [mock.patch(f"mergelake.{place}.discard_refused", careless) for place in places]
    return both(*patches, mock.patch("tests.simulation.nodes.discard_refused", careless))


@bug
def a_part_may_come_in_twice():
    return mock.patch.object(conflict, "known_ids", return_value=set())


@bug
def a_drop_of_some_blocks_forgets_all_inserts():
    real = fold.Draft._drop_range

    def careless(self, op):
        real(self, op)
        self._forget(op)

    return mock.patch.object(fold.Draft, "_drop_range", careless)
