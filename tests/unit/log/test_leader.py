"""Commits that go through a leader: what each sender hears, what is asked of the store, and what a lost message
means."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, UnavailableError
from mergelake.log.commit import commit, group, passing
from mergelake.log.commit.passing import Answer, Outcome, decode_answer
from mergelake.log.commit.sending import AVOID_FIRST_S, leader_of
from mergelake.log.model.operations import AddParts, DropRange, Publish, RenewLease
from mergelake.log.model.state import Lease
from mergelake.log.reading import recent
from mergelake.log.relay import leader
from mergelake.store.interface.protocol import OutcomeUnknown
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest, new_log, open_log, schema_with
from tests.helpers.peers import ADDRESS, TOKEN, Network, listening, sender


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def lead(store, network):
    """The log of the leader."""
    log = new_log(store)
    listening(network, log)
    return log


def adding(name, **fields):
    return lambda _: [AddParts((manifest(name),), **fields)]


def parts(store):
    """The names of all parts in the log, in their order, as one more process reads them."""
    entries = open_log(store, seed=99).entries()
    return [part.id for entry in entries for op in entry.ops if isinstance(op, AddParts) for part in op.parts]


def requests(store):
    counters = store.counters
    return counters.put + counters.get + counters.list + counters.head + counters.delete


def test_a_sender_asks_nothing_of_the_store(store, network, lead):
    one = sender(network, store, 1)
    before = requests(store)
    for n in range(10):
        done = one.commit(adding(f"p{n}"))
        assert done.version == n + 3
        assert done.state == lead.state == one.state
        assert done.entry.parties[-1].author == "writer 1"
        assert done.entry.author == "writer 0"
    assert requests(store) - before == 10  # the leader's PUTs
    assert open_log(store, seed=9).state == one.state


def test_what_others_did_comes_with_the_answer(store, network, lead):
    one, two = sender(network, store, 1), sender(network, store, 2)
    for n in range(5):
        two.commit(adding(f"two-{n}"))
    before = requests(store)
    done = one.commit(adding("one"))
    assert requests(store) - before == 1
    assert one.state == lead.state == done.state
    assert one.state.part_count == 6


def test_threads_of_several_processes_share_an_entry(store, network, lead, monkeypatch):
    go_on = threading.Event()
    real = store.create

    def create(key, data):
        assert go_on.wait(5)
        return real(key, data)

    senders = [sender(network, store, n) for n in range(1, 9)]
    monkeypatch.setattr(store, "create", create)
    with ThreadPoolExecutor(32) as pool:
        first = pool.submit(lead.commit, adding("first"))
        others = [pool.submit(log.commit, adding(f"p{n}-{at}")) for n, log in enumerate(senders) for at in range(3)]
        while len(lead._line) < 8:
            pass
        go_on.set()
        found = [future.result() for future in [first, *others]]
    assert len(parts(store)) == 25
    shared = [done.entry for done in found if len(done.entry.parties) > 1]
    assert len({entry.version for entry in shared}) < len(shared)
    fold = open_log(store, seed=77)
    for log in senders:
        assert log.state == fold.state_at(log.state.version)
    for done in found:  # each heard the state right after its own operations
        version = done.version
        assert done.state.version == version
        assert done.state.block_counter <= fold.state_at(version).block_counter


def test_each_member_is_judged_at_its_own_place(store, network, lead):
    one, two = sender(network, store, 1), sender(network, store, 2)
    one.commit(adding("a", dedup_token="once"))
    with pytest.raises(ConflictError, match="once"):
        two.commit(adding("b", dedup_token="once"))
    assert two.commit(adding("c")).state.part_count == 2
    assert parts(store) == ["a", "c"]


def test_who_is_refused_builds_anew_on_what_the_leader_knows(store, network, lead):
    one, two = sender(network, store, 1), sender(network, store, 2)
    one.commit(adding("a", dedup_token="once"))
    calls = []

    def build(state):
        calls.append(state.version)
        return [AddParts((manifest("b"),), dedup_token="twice" if "once" in state.tokens else "once")]

    before = requests(store)
    done = two.commit(build)
    assert calls == [2, 3]
    assert done.version == 4
    assert requests(store) - before <= 3
    assert parts(store) == ["a", "b"]


def test_what_depends_on_the_state_goes_the_direct_way(store, network, lead):
    one = sender(network, store, 1)
    one.commit(adding("a"))
    calls = network.calls
    done = one.commit(lambda _: [DropRange("all")])
    assert network.calls == calls
    assert done.state.part_count == 0
    assert done.entry.members == ()


@pytest.mark.parametrize("fate", ["lose", "hold", "mute", "twice"])
def test_whatever_becomes_of_a_message_the_commit_lands_once(store, network, lead, fate):
    one = sender(network, store, 1)
    network.fate = [fate]
    done = one.commit(adding("a"))
    network.deliver()
    assert parts(store) == ["a"]
    assert done.entry.ops == tuple(adding("a")(None))
    assert done.state.version == done.version == 3
    assert one.commit(adding("b")).state.part_count == 2
    assert parts(store) == ["a", "b"]


def test_a_late_message_of_who_went_ahead_is_known_for_what_it_is(store, network, lead):
    one = sender(network, store, 1)
    network.fate = ["hold"]
    done = one.commit(adding("a"))
    (answer,) = network.deliver()
    assert decode_answer(answer, 1).outcomes == (Outcome("landed", done.version),)


def test_who_gives_up_in_doubt_makes_it_impossible_first(store, network, lead):
    one = sender(network, store, 1)
    said = iter([[AddParts((manifest("a"),))]])

    def build(_):
        for ops in said:
            return ops
        raise LookupError("no more")

    network.fate = ["hold"]
    with pytest.raises(LookupError):
        one.commit(build)
    assert one.state.version == 3
    (gone,) = list(open_log(store, seed=9).entries(3))
    assert gone.ops == ()
    network.deliver()
    assert parts(store) == []
    assert lead.commit(adding("b")).version == 4


def test_who_is_refused_in_doubt_makes_it_impossible_first(store, network, lead):
    one, two = sender(network, store, 1), sender(network, store, 2)
    network.fate = ["hold"]
    real = network.call

    def call(*arguments):
        network.call = real
        try:
            return real(*arguments)
        finally:
            two.commit(adding("b", dedup_token="once"))

    network.call = call
    with pytest.raises(ConflictError, match="once"):
        one.commit(adding("a", dedup_token="once"))
    two.commit(lambda _: [DropRange("all")])  # and with it the token
    (answer,) = network.deliver()
    assert decode_answer(answer, 1).outcomes[0].kind == "landed"  # in the entry that gave it up
    assert "a" not in parts(store)


def test_a_failure_in_doubt_is_not_told_as_one(store, network, lead, monkeypatch):
    one = sender(network, store, 1)
    network.fate = ["hold"]
    monkeypatch.setattr(store, "create", lambda *_: OutcomeUnknown("silence"))
    one._clock.sleep_s = lambda _: None
    with pytest.raises(UnavailableError, match="not known"):
        one.commit(adding("a"))
    monkeypatch.undo()
    network.deliver()
    assert parts(store) == ["a"]


def test_a_leader_that_was_refused_by_the_store_is_no_failure_of_the_sender(store, network, lead, monkeypatch):
    one = sender(network, store, 1)
    real, refused = store.create, []

    def create(key, data):
        if not refused:
            refused.append(key)
            raise ConflictError("no credentials")
        return real(key, data)

    monkeypatch.setattr(store, "create", create)
    assert one.commit(adding("a")).version == 3
    assert len(refused) == 1
    assert parts(store) == ["a"]


def test_a_closed_attempt_is_never_judged_again(store, network, lead):
    one, two = sender(network, store, 1), sender(network, store, 2)
    one.commit(adding("a", dedup_token="once"))
    heard = []
    service = network.services[ADDRESS, TOKEN, passing.SERVICE]
    network.services[ADDRESS, TOKEN, passing.SERVICE] = lambda data: heard.append(data) or service(data)
    with pytest.raises(ConflictError):
        two.commit(adding("b", dedup_token="once"))
    one.commit(lambda _: [DropRange("all")])  # the token is forgotten: now the same would be let in
    assert decode_answer(service(heard[0]), 1).outcomes[0].kind == "not taken"
    assert parts(store) == ["a"]


def test_a_message_from_before_the_stretch_is_not_judged(store, network, lead, monkeypatch):
    monkeypatch.setattr(recent, "VERSIONS_MAX", 3)
    one = sender(network, store, 1)
    for n in range(6):
        lead.commit(adding(f"p{n}"))
    done = one.commit(adding("late"))
    assert done.version == 9
    assert parts(store)[-1] == "late"
    assert one.state == lead.refresh()


def test_who_lacks_more_than_an_answer_holds_reads_the_log(store, network, lead, monkeypatch):
    monkeypatch.setattr(leader, "ANSWER_MAX", 10)
    one = sender(network, store, 1)
    done = one.commit(adding("a"))
    assert done.entry.parties[-1].author == "writer 1"
    assert done.state == one.state == lead.state
    assert parts(store) == ["a"]


def test_a_leader_that_does_not_answer_is_avoided_for_a_while(store, network, lead):
    clock = ManualClock()
    one = sender(network, store, 1, clock=clock)
    network.fate = ["lose"]
    one.commit(adding("a"))
    one.commit(adding("b"))
    assert network.calls == 1
    clock.sleep_s(AVOID_FIRST_S + 0.1)
    one.commit(adding("c"))
    assert network.calls == 2


@pytest.mark.parametrize("change", ["cut", "another", "none", "shuffled", "outcomes", "empty"])
def test_an_answer_that_cannot_be_is_not_believed(store, network, lead, change):
    one = sender(network, store, 1)
    for n in range(3):
        lead.commit(adding(f"p{n}"))
    service = network.services[ADDRESS, TOKEN, passing.SERVICE]

    def lying(data):
        answer = decode_answer(service(data), 1)
        entries, outcomes = answer.entries, answer.outcomes
        match change:
            case "cut":
                entries = (*entries[:-1], entries[-1][:-9])
            case "another":
                entries = (*entries[:-1], entries[-1].replace(b"AddParts", b"AddPartz"))
            case "none":
                entries = ()
            case "shuffled":
                entries = entries[::-1]
            case "outcomes":
                outcomes = outcomes * 2
            case "empty":
                return b""
        return passing.encode_answer(Answer(outcomes, answer.first, entries))

    network.services[ADDRESS, TOKEN, passing.SERVICE] = lying
    assert one.commit(adding("a")).version == 6
    assert parts(store) == ["p0", "p1", "p2", "a"]
    assert one.state == lead.refresh()


def test_requests_that_are_none_are_refused(store, network, lead):
    service = network.services[ADDRESS, TOKEN, passing.SERVICE]
    member = {"attempt": "x", "author": "me", "ops": passing.encoded_ops(adding("a")(None))}
    good = passing.encode_request("t/_log", 2, [member])
    bad = [b"", b"{}", good[:-1], good.replace(b"AddParts", b"AddPartz")]
    bad += [passing.encode_request("t/_log", 2, members) for members in ([], [member] * 2, [member] * 257)]
    bad += [passing.encode_request("t/_log", 2, [{**member, **change}]) for change in ({"ops": []}, {"attempt": ""})]
    bad.append(passing.encode_request("t/_log", 2, [{**member, "ops": [{"op": "DropTable"}]}]))
    bad.append(passing.encode_request("t/_log", 2, [{**member, "ops": [{"op": "AddParts", "parts": [], "more": 1}]}]))
    for data in bad:
        with pytest.raises(Exception, match=r"request|not known"):
            service(data)
    assert decode_answer(service(passing.encode_request("u/_log", 2, [member])), 1).outcomes[0].kind == "not taken"
    assert lead.refresh().version == 2
    assert decode_answer(service(good), 1).outcomes[0] == Outcome("landed", 3)


def test_a_leader_does_not_pass_on(store, network, lead):
    other = sender(network, store, 1)
    listening(network, other, "another", "lake-2:9440")
    calls = network.calls
    other.commit(adding("a"))
    assert network.calls == calls


def test_of_several_leaders_everybody_asks_the_same():
    leases = {
        "c": Lease(1, 100, "c:1", "t"),
        "b": Lease(1, 100, "b:1", "t"),
        "a": Lease(1, 50, "a:1", "t"),
        "0": Lease(1, 100),
    }
    assert leader_of(leases, 10) == leases["a"]
    assert leader_of(leases, 60) == leases["b"]
    assert leader_of(leases, 60, [("b:1", "t")]) == leases["c"]
    assert leader_of(leases, 100) is None


def test_a_lease_that_is_over_is_not_believed(store, network):
    log = new_log(store)
    clock = ManualClock()
    listening(network, log, until_ms=clock.now_ms() + 1000)
    one = sender(network, store, 1, clock=clock)
    one.commit(adding("a"))
    clock.sleep_s(2)
    one.commit(adding("b"))
    assert network.calls == 1


def test_a_leader_that_slept_meets_who_went_ahead(store, network, lead):
    """It holds a member while its sender appends directly, as does another process."""
    one, two = sender(network, store, 1), open_log(store, seed=2)
    network.fate = ["hold"]
    done = one.commit(adding("a"))
    for n in range(3):
        two.commit(adding(f"two-{n}"))
    network.deliver()  # at the leader the position after its state is taken four times
    assert lead.refresh().version == 6
    assert done.version == 3
    assert parts(store) == ["a", "two-0", "two-1", "two-2"]


def test_merges_go_through_a_leader_too(store, network, lead):
    one = sender(network, store, 1)
    one.commit(adding("a"))
    one.commit(adding("b"))
    done = one.commit(lambda _: [Publish(manifest("m", rows=20), ("a", "b"))])
    assert done.entry.parties[-1].author == "writer 1"
    assert done.state.part_count == 1
    with pytest.raises(ConflictError):
        sender(network, store, 2).commit(lambda _: [Publish(manifest("n", rows=20), ("a", "b"))])


def test_a_table_may_be_moved_on_by_leases_alone(store, network, lead):
    one = sender(network, store, 1)
    one.commit(lambda state: [RenewLease("node 1", state.version, 5)])
    assert lead.state.leases["node 1"] == Lease(2, 5)


def test_a_sender_does_not_wait_for_a_checkpoint(store, network, monkeypatch):
    log = new_log(store, schema_with(checkpoint_interval=3))
    listening(network, log)
    apart = []
    monkeypatch.setattr(commit, "apart", lambda work, name: apart.append(work))
    one = sender(network, store, 1)
    for n in range(4):
        one.commit(adding(f"p{n}"))
    assert log.state.version == 6
    assert not log.has_checkpoint(3)
    assert len(apart) >= 1
    apart[-1]()
    assert log.has_checkpoint(6)


def test_an_insert_that_leaves_something_out_is_not_passed_on(store, network, lead):
    one = sender(network, store, 1)
    one.commit(adding("a"), passes_on=lambda: False)
    assert network.calls == 0
    assert parts(store) == ["a"]


def test_more_members_than_an_entry_takes_go_into_several(store, network, lead, monkeypatch):
    monkeypatch.setattr(group, "CALLERS_MAX", 2)
    members = [
        {"attempt": f"x{n}", "author": "me", "ops": passing.encoded_ops(adding(f"p{n}")(None))} for n in range(5)
    ]
    service = network.services[ADDRESS, TOKEN, passing.SERVICE]
    answer = decode_answer(service(passing.encode_request("t/_log", 2, members)), 5)
    assert [outcome.version for outcome in answer.outcomes] == [3, 3, 4, 4, 5]
    assert parts(store) == [f"p{n}" for n in range(5)]


def test_members_for_whom_there_was_no_room_come_before_callers_of_the_process(store, lead):
    line = group.CommitQueue()
    own, passed = group.Request(adding("own")), group.Request(adding("passed"), attempt="x", author="me")
    assert line.join(own)
    line.put_back([passed])
    assert line.take() == [passed, own]
    proposal = group.propose(lead._machine, lead.state, [passed, own, group.Request(adding("more"))], lead._head())
    entry = proposal.entry(lead._head())
    assert [(member.author, member.ops) for member in entry.members] == [("me", 1), ("writer 0", 2)]
