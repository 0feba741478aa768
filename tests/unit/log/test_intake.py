"""Members that are left for one position, taken along, refused, too late, forged and forgotten."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from mergelake.log.backends import intake
from mergelake.log.backends.intake import Intake, Left, decode_left, encode_left
from mergelake.log.commit.contention import Way
from mergelake.log.commit.group import Request
from mergelake.log.model.operations import AddParts, DropRange, Publish, Tag
from mergelake.log.reading.head_freshness import GRACE_MIN_S
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log
from tests.unit.log.test_head_freshness import FREQUENT, SleepyStore, shorten

LEFT = Left(7, "a" * 32, "me", (AddParts((manifest(1),)), Tag("x", 3)))


def adding(*part_ids):
    return lambda _: [AddParts(tuple(manifest(part_id) for part_id in part_ids))]


def going(log, way):
    """A log whose next commits go one way only."""
    log._contention.way = lambda: way
    return log


def sender(store, meanwhile, **options):
    """A log whose commits are left in the intake; `meanwhile` runs just before it looks for the first time."""
    asked = SleepyStore(store, lambda kind, key: kind == "get" and "/intake/" not in key, None)
    log = going(open_log(asked, seed=1, **options), Way.LEAVE)
    asked._meanwhile = meanwhile
    return log


def counted(committed):
    return sum(1 for _ in committed.state.parts())


def test_a_member_is_the_same_after_json():
    data = encode_left(LEFT)
    assert decode_left(data) == LEFT
    for bad in (
        data[:-1],
        data.replace(b'"position":7', b'"position":8'),
        b"",
        b"{}",
        data[: data.rindex(b",")] + b"}",
    ):
        with pytest.raises(CorruptDataError):
            decode_left(bad)


def test_who_gathers_takes_along_what_others_left():
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)
    told = []
    second = sender(store, lambda: told.append(first.commit(adding(1))))
    committed = second.commit(adding(2, 3))
    assert committed.version == told[0].version == 2
    assert committed.entry == told[0].entry
    assert committed.races_lost == 0
    assert [(member.author, member.ops) for member in committed.entry.members] == [("writer 0", 1), ("writer 1", 1)]
    assert [counted(told[0]), counted(committed)] == [1, 3]
    assert first.state == second.state == open_log(store).state
    assert first.verify().problems == []


def test_callers_of_a_sender_get_their_own_outcome():
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)
    second = sender(store, lambda: first.commit(adding(1)))
    silent, refused = Request(lambda _: []), Request(lambda _: [Tag("of nothing", 77)])
    requests = [Request(adding(2)), silent, refused, Request(adding(3))]
    second._commit(requests)
    assert [counted(request.committed) for request in (requests[0], silent, requests[3])] == [2, 2, 3]
    assert [request.committed.version for request in (requests[0], silent, requests[3])] == [2, 2, 2]
    assert silent.committed.entry is None
    assert isinstance(refused.failure, InvalidInputError)
    assert second.state == open_log(store).state == requests[3].committed.state


def test_what_is_refused_at_its_place_is_left_out_and_asked_anew():
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)
    second = sender(store, lambda: first.commit(lambda _: [Tag("day", 1)]))
    with pytest.raises(InvalidInputError, match="Tag day exists already"):
        second.commit(lambda _: [Tag("day", 1)])
    assert first.refresh().version == 2
    asked = []

    def build(state):
        asked.append(state.version)
        return [Tag(f"day {state.version}", 1)]

    third = sender(store, lambda: first.commit(lambda _: [Tag("day 2", 1)]))
    assert third.commit(build).version == 4
    assert asked == [2, 3]


def test_nobody_takes_a_member_to_another_position():
    store = MemoryStore()
    first = new_log(store)
    stale = Left(2, "b" * 32, "a dead one", tuple(adding(7)(None)))
    store.put(Intake.of_bucket(store, "t/_log").key(2, stale.attempt), encode_left(stale))
    store.put(Intake.of_bucket(store, "t/_log").key(3, stale.attempt), encode_left(stale))
    first.commit(adding(1))
    going(first, Way.GATHER).commit(adding(2))
    assert first.state.part_count == 2
    first.commit(adding(3))
    assert [item.key for item in store.list("t/_log/intake")] == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", encode_left(LEFT)[:-9], encode_left(LEFT)])
def test_what_cannot_be_a_member_of_the_entry_is_left_out(data):
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)
    store.put("t/_log/intake/00000000000000000002-" + "a" * 32 + ".json", data)
    store.put("t/_log/intake/a stranger", b"")
    assert first.commit(adding(2)).version == 2
    assert first.state.part_count == 1


def test_a_member_whose_object_never_came_goes_by_itself():
    class Failing(MemoryStore):
        def put(self, key, data):
            if "/intake/" in key:
                raise UnavailableError("cut off")
            super().put(key, data)

    store = Failing()
    log = going(new_log(store), Way.LEAVE)
    assert log.commit(adding(1)).version == 2
    assert [item.key for item in store.list("t/_log/intake")] == []


def test_a_refusal_while_a_member_lies_in_the_intake_is_no_answer():
    """Credentials ran out: whether it was taken along is not known."""
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)

    def denied():
        first.commit(adding(1))
        raise InvalidInputError("access denied", name="S3_ERROR")

    second = sender(store, denied)
    with pytest.raises(UnavailableError, match=r"not known whether version 2.*access denied"):
        second.commit(adding(2))
    assert first.state.part_count == 2


def test_what_a_sender_says_twice_lands_once_when_it_is_out_of_patience():
    """It appends what lies in the intake, too, and a slower one takes it along: one of them has the position."""
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)
    creating = SleepyStore(store, lambda kind, key: kind == "create", None)
    second = going(open_log(creating, seed=1), Way.LEAVE)
    creating._meanwhile = lambda: first.commit(adding(1))
    committed = second.commit(adding(2))
    assert committed.version == 2
    assert len(committed.entry.members) == 2
    assert first.refresh().part_count == 2


@pytest.mark.parametrize("taken", [True, False])
def test_who_slept_does_not_believe_what_stands_at_a_position_that_was_collected(taken):
    store, clock = MemoryStore(), ManualClock()
    first = going(new_log(store, FREQUENT, clock=clock), Way.GATHER if taken else Way.APPEND)

    def meanwhile():
        first.commit(adding(1))
        first._contention.way = lambda: Way.APPEND
        for number in range(2, 9):
            first.commit(adding(number))
        entry = store.get(first.backend.key(2))
        clock.advance_s(2 * GRACE_MIN_S)
        assert shorten(first) > 2
        store.put(first.backend.key(2), entry)  # by one that slept even longer

    second = sender(store, meanwhile, clock=clock)
    with pytest.raises(UnavailableError, match="not known whether version 2"):
        second.commit(adding(20))
    assert (f"{20:032x}" in {part.manifest.id for part in first.refresh().parts()}) is taken


def test_long_members_what_depends_on_the_state_and_what_gives_space_back_go_alone(monkeypatch):
    store = MemoryStore()
    log = going(new_log(store), Way.LEAVE)
    before = store.counters
    log.commit(adding(7), passes_on=lambda: False)
    assert (store.counters - before).requests == 1
    monkeypatch.setattr("mergelake.log.commit.commit.TAKEN_BYTES_MAX", 100)
    before = store.counters
    log.commit(adding(1))
    assert (store.counters - before).requests == 1
    going(log, Way.GATHER)
    before = store.counters
    log.commit(lambda _: [DropRange()])
    assert (store.counters - before).list == 0


def test_no_more_is_taken_along_than_fits(monkeypatch):
    store = MemoryStore()
    log = going(new_log(store), Way.GATHER)
    for number in range(5):
        left = Left(2, f"{number:08x}".ljust(32, "0"), "other", tuple(adding(10 + number)(None)))
        store.put(Intake.of_bucket(store, "t/_log").key(2, left.attempt), encode_left(left))
    monkeypatch.setattr(intake, "TAKEN_MAX", 3)
    log.commit(adding(1))
    assert log.state.part_count == 4
    monkeypatch.setattr(intake, "TAKEN_BYTES_MAX", 10)
    assert Intake.of_bucket(store, "t/_log").take(2, "") == []


def _leave(store, position, writer, number=1):
    left = Left(position, f"{writer:08x}{number:024x}", "other", tuple(adding(number)(None)))
    Intake.of_bucket(store, "t/_log").leave(position, left.attempt, encode_left(left))
    return left


def test_what_known_writers_have_left_is_asked_for_beside_the_listing():
    store = MemoryStore()
    known = [_leave(store, 2, writer) for writer in range(5)]
    strange = _leave(store, 2, 77)
    writers = [f"{writer:08x}" for writer in range(7)]  # two have left nothing
    before, taking = store.counters, Intake.of_bucket(store, "t/_log")
    assert sorted(each.attempt for each in taking.take(2, "f" * 32, writers)) == [
        each.attempt for each in (*known, strange)
    ]
    asked = store.counters - before
    assert (asked.list, asked.get) == (1, 7 + 1)
    store.list = lambda *_: iter(())  # a listing that lags
    assert len(taking.take(2, "f" * 32, writers)) == 5
    assert taking.take(2, "f" * 32, [f"{writer:08x}" for writer in range(intake.KNOWN_MAX + 1)]) == []


def test_what_a_writer_leaves_again_takes_the_place_of_what_it_left():
    store = MemoryStore()
    _leave(store, 2, 7, 1)
    second = _leave(store, 2, 7, 2)
    assert Intake.of_bucket(store, "t/_log").take(2, "f" * 32) == [second]
    assert Intake.of_bucket(store, "t/_log").take(2, second.attempt, [second.attempt[:8]]) == []


def test_what_is_left_for_old_positions_goes_when_the_log_is_cut():
    store = MemoryStore()
    log = new_log(store, FREQUENT)
    for number in range(1, 10):
        log.commit(adding(number))
    for position in (2, 5, 11, 99):
        store.put(Intake.of_bucket(store, "t/_log").key(position, "c" * 32), b"")
    assert shorten(log) == 8
    assert [int(item.key.split("/")[-1][:20]) for item in store.list("t/_log/intake")] == [11, 99]


def test_a_conflict_of_a_member_is_told_as_one():
    store = MemoryStore()
    first = going(new_log(store), Way.GATHER)
    first.commit(adding(1))
    source = f"{1:032x}"
    second = sender(store, lambda: first.commit(lambda _: [Publish(manifest(8), (source,))]))
    with pytest.raises(ConflictError, match="no longer active"):
        second.commit(lambda _: [Publish(manifest(9), (source,))])
    assert [part.manifest.id for part in first.refresh().parts()] == [f"{8:032x}"]
