"""A log in ZooKeeper when connections, sessions and servers go: an outcome is never guessed, no commit is doubled."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time

import pytest

from mergelake.core.base.errors import CorruptDataError, InvalidInputError, MergelakeError, UnavailableError
from mergelake.log.backends.backends import Backends
from mergelake.log.backends.keeper import Address, Create, Keeper, Refused, SetData
from mergelake.store.interface.protocol import Lost, OutcomeUnknown, Stored
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.services import SCRIPTS, exported
from tests.helpers.tcp_proxy import TcpProxy
from tests.integration.log.places import CLOCK, Ensemble, insert, part_ids


@pytest.fixture
def place(zookeeper):
    made = Ensemble(MemoryStore(), zookeeper["ZOOKEEPER_HOSTS"], timeout_s=2)
    yield made
    made.close()


@pytest.fixture
def proxy(place):
    with TcpProxy(place.hosts) as made:
        yield made


def test_a_cut_connection_leaves_the_outcome_unknown(place, proxy):  # M-071
    backend = place.backend(proxy.address)
    assert backend.create(1, b"one") == Stored()
    proxy.cut_on(b"before", "before")
    assert isinstance(backend.create(2, b"before"), OutcomeUnknown)
    assert backend.read(2) is None
    assert backend.create(2, b"again") == Stored()
    proxy.cut_on(b"after", "after")
    assert isinstance(backend.create(3, b"after"), OutcomeUnknown)
    assert backend.read(3) == b"after"
    assert backend.create(3, b"after") == Lost()
    assert proxy.fired == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_was_cut_is_in_the_log_once(place, proxy, when):  # M-071
    place.new_log()
    log = place.open_log(proxy.address)
    proxy.cut_on(b"0" * 31 + b"7", when)
    insert(log, f"{7:032x}")
    insert(log, f"{8:032x}")
    assert proxy.fired == 1
    assert part_ids(place.open_log().state) == [f"{7:032x}", f"{8:032x}"]


def test_a_request_that_is_not_answered_in_time_leaves_the_outcome_unknown(place, proxy):
    backend = place.backend(proxy.address)
    assert backend.create(1, b"one") == Stored()
    proxy.mute = True
    assert isinstance(backend.create(2, b"two"), OutcomeUnknown)
    proxy.mute = False
    assert backend.read(2) == b"two"


def test_a_session_that_expired_is_replaced(place, proxy):
    place.new_log()
    log = place.open_log(proxy.address)
    watching = threading.Thread(target=log.wait, args=(120,))
    watching.start()
    proxy.refuse = True
    proxy.cut()
    time.sleep(3.5)  # sessions last two seconds here
    proxy.refuse = False
    insert(log, f"{1:032x}")
    watching.join(60)
    assert not watching.is_alive()
    assert part_ids(place.open_log().state) == [f"{1:032x}"]


def test_a_watch_survives_a_lost_connection(place, proxy):
    log, follower = place.new_log(), place.open_log(proxy.address)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(follower.wait(120)))
    thread.start()
    thread.join(0.3)
    proxy.cut()
    thread.join(0.5)
    insert(log)
    thread.join(60)
    assert seen == [log.state]


def test_servers_that_cannot_be_reached_are_told_with_the_way_out(place):
    backend = place.backend("127.0.0.1:1")
    assert isinstance(backend.create(1, b"one"), OutcomeUnknown)
    with pytest.raises(UnavailableError, match=r'KEEPER_EXCEPTION|log="sealed"'):
        backend.read(1)


def test_a_tree_that_is_gone_is_no_empty_log(place):
    log = place.new_log()
    insert(log)
    time.sleep(0.3)
    keeper = place.keeper()
    for node in ("tail", "progress"):
        keeper.commit(_delete(f"{Address.parse(log.state.sequencer.url).root}/{node}"))
    keeper.close()
    with pytest.raises(CorruptDataError, match="does not hold the log of t/_log"):
        place.open_log()
    assert place.open_log(backends=Backends("sealed")).state.version == 2


def test_nodes_of_a_user_are_closed_to_others(place):
    user = Keeper(Address(place.hosts, "", user="ann:secret"), CLOCK)
    other = Keeper(Address(place.hosts, "", user="bob:guess"), CLOCK)
    path = f"{place.root}-ann"
    try:
        user.commit(Create(path, b"hers"))
        assert user.get(path).data == b"hers"
        with pytest.raises(InvalidInputError, match="KEEPER_EXCEPTION"):
            other.get(path)
        with pytest.raises(InvalidInputError, match="refused a commit"):
            other.commit(SetData(path, b"his", 0))
    finally:
        user.close()
        other.close()


def test_a_transaction_happens_wholly_or_not_at_all(place):
    keeper = place.keeper()
    try:
        with pytest.raises(Refused):
            keeper.commit(Create(f"{place.root}/a"), SetData(f"{place.root}/missing", b"", 0))
        assert keeper.get(f"{place.root}/a") is None
    finally:
        keeper.close()


@pytest.mark.slow
def test_zookeeper_is_killed_and_comes_back_while_four_write(tmp_path):  # M-071
    """A server of its own: killed hard in the middle, twice. What was acknowledged is there, nothing is there twice."""
    port = _free_port()
    environment = _start(tmp_path, port)
    place = Ensemble(MemoryStore(), environment["ZOOKEEPER_HOSTS"], timeout_s=3)
    try:
        place.new_log()
        acknowledged, unclear, stop = [], [], threading.Event()

        def write(number):
            log, count = place.open_log(), 0
            while not stop.is_set():
                part_id = f"{number:016x}{count:016x}"
                count += 1
                try:
                    acknowledged.append(insert(log, part_id))
                except MergelakeError:
                    unclear.append(part_id)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            time.sleep(1.5)
            subprocess.run(["kill", "-9", (tmp_path / "zookeeper.pid").read_text().strip()], check=True)
            time.sleep(0.5)
            _start(tmp_path, port)
        time.sleep(2)
        stop.set()
        for thread in threads:
            thread.join(60)
        found = part_ids(place.open_log().state)
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found) <= {*acknowledged, *unclear}
        assert len(acknowledged) > 20
    finally:
        with contextlib.suppress(Exception):
            place.close()
        subprocess.run([SCRIPTS / "zookeeper-stop", "--wipe", tmp_path], check=False, capture_output=True)


def _delete(path):
    from mergelake.log.backends.keeper import Delete

    return Delete(path)


def _free_port():
    from tests.helpers.services import free_ports

    return free_ports(1)


def _start(folder, port):
    import os
    import sys

    started = subprocess.run(
        [SCRIPTS / "zookeeper-start", folder, str(port)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return exported(started.stdout)
