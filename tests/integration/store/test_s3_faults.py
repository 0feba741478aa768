"""What the bucket store makes of a server that fails, seen from both sides: the caller and the proxy's counters."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mergelake.core.base.errors import InternalError, InvalidInputError, NotFoundError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.store import Lost, OutcomeUnknown, Store, Stored, open_store
from mergelake.store.objects.probe import probe_create_if_absent

MIB = 1 << 20


@pytest.fixture
def direct(s3_url: str, s3_options: dict[str, str]) -> Store:
    """The same place without the proxy."""
    return open_store(s3_url, s3_options)


@pytest.fixture
def store(s3_url: str, s3_options: dict[str, str], fault_proxy: Any) -> Store:
    return open_store(s3_url, {**s3_options, "endpoint": fault_proxy.url, "timeout_s": "1", "max_retries": "3"})


PASSING = [
    {"do": "status", "status": 503, "times": 2},
    {"do": "status", "status": 500, "times": 1},
    {"do": "status", "status": 429, "times": 1},
    {"do": "refuse", "times": 2},
    {"do": "lose_response", "times": 1},
    {"do": "status_after", "times": 1},
    {"do": "hang", "times": 1},
]


# M-093
@pytest.mark.parametrize("rule", [*PASSING, {"do": "drop_download", "bytes": 400, "times": 2}], ids=str)
def test_a_read_survives_passing_failures(store: Store, direct: Store, fault_proxy: Any, rule: dict[str, Any]) -> None:
    data = os.urandom(3000)
    direct.put("d/k", data)
    reads = [
        lambda: store.get("d/k") == data,
        lambda: bytes(store.get_range("d/k", 100, 2000)) == data[100:2100],
    ]
    if rule["do"] != "drop_download":  # neither moves a body of 400 bytes
        reads += [lambda: store.head("d/k").size == 3000, lambda: [m.key for m in store.list("d")] == ["d/k"]]
    for read in reads:
        fault_proxy.rules = [rule]
        before = store.counters
        assert read()
        used = store.counters - before
        assert used.retries == rule["times"]
        assert used.requests == fault_proxy.stats["requests"] == rule["times"] + 1


@pytest.mark.parametrize("rule", [*PASSING, {"do": "drop_upload", "bytes": 100, "times": 1}], ids=str)
def test_a_put_and_a_delete_survive_passing_failures(
    store: Store, direct: Store, fault_proxy: Any, rule: dict[str, Any]
) -> None:
    fault_proxy.rules = [rule]
    store.put("k", b"x" * 1000)
    assert fault_proxy.stats["requests"] == rule["times"] + 1
    assert direct.get("k") == b"x" * 1000
    fault_proxy.rules = [{**rule, "bytes": 10}]
    store.delete(["k"])
    assert store.counters.retries == 2 * rule["times"]
    with pytest.raises(NotFoundError):
        direct.get("k")


def test_a_server_that_stays_away_is_unavailable(store: Store, fault_proxy: Any) -> None:
    fault_proxy.rules = [{"do": "status", "status": 503}]
    calls = [
        lambda: store.get("k"),
        lambda: store.put("k", b""),
        lambda: list(store.list("")),
        lambda: store.delete(["k"]),
        lambda: store.put_large("k", [bytes(MIB)] * 10),
    ]
    for call in calls:
        before = fault_proxy.stats["requests"]
        with pytest.raises(UnavailableError, match="did not answer"):
            call()
        assert fault_proxy.stats["requests"] - before >= 4


@pytest.mark.parametrize(
    ("rule", "stored"),
    [
        ({"do": "status", "status": 503}, False),
        ({"do": "status", "status": 409}, False),  # ConditionalRequestConflict: nobody may have written
        ({"do": "refuse"}, False),
        ({"do": "drop_upload", "bytes": 1}, False),
        ({"do": "hang"}, False),
        ({"do": "status_after"}, True),
        ({"do": "lose_response"}, True),
        ({"do": "delay_response", "seconds": 2}, True),
    ],
    ids=str,
)
def test_a_create_without_a_clear_answer_is_unknown_and_is_asked_once(
    store: Store, direct: Store, fault_proxy: Any, rule: dict[str, Any], stored: bool
) -> None:
    fault_proxy.rules = [rule]
    outcome = store.create("_log/1", b"mine")
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.reason
    assert fault_proxy.stats["requests"] == 1
    assert [meta.key for meta in direct.list("")] == (["_log/1"] if stored else [])
    fault_proxy.rules = []
    assert store.create("_log/1", b"again") == (Lost() if stored else Stored())


def test_a_create_that_the_server_refuses_is_an_error_and_not_an_outcome(store: Store, fault_proxy: Any) -> None:
    for status in (400, 403):
        fault_proxy.rules = [{"do": "status", "status": status}]
        with pytest.raises(InvalidInputError):
            store.create("k", b"")
    fault_proxy.rules = [{"do": "status", "status": 412}]
    assert store.create("k", b"") == Lost()


# M-003
@pytest.mark.parametrize("do", ["lose_response", "status_after", "status", "drop_upload"])
def test_only_the_failed_chunk_of_a_large_put_is_sent_again(
    s3_url: str, s3_options: dict[str, str], direct: Store, fault_proxy: Any, do: str
) -> None:
    store = open_store(s3_url, {**s3_options, "endpoint": fault_proxy.url})
    chunk, size = 8 * MIB, 42 * MIB
    body = os.urandom(MIB)
    fault_proxy.rules = [{"do": do, "method": "PUT", "path": "partNumber=3", "times": 1, "bytes": MIB}]
    assert store.put_large("big", (body for _ in range(42))) == size
    assert fault_proxy.stats["fired"] == 1
    again = MIB if do == "drop_upload" else chunk
    sent = fault_proxy.stats["bytes_up"] - size
    assert 0 < sent <= again + 200_000  # the list of parts comes on top, and what was under way at a cut
    assert fault_proxy.stats["by_method"] == {"POST": 2, "PUT": 7}
    assert store.counters.put == 2 + 6
    assert bytes(direct.get_range("big", 16 * MIB, MIB)) == body
    assert direct.head("big").size == size


@pytest.mark.parametrize("path", ["uploads", "uploadId"])
def test_the_ends_of_a_large_put_survive_failures(
    s3_url: str, s3_options: dict[str, str], direct: Store, fault_proxy: Any, path: str
) -> None:
    store = open_store(s3_url, {**s3_options, "endpoint": fault_proxy.url})
    for do in ("status", "lose_response", "status_after"):
        fault_proxy.rules = [{"do": do, "method": "POST", "path": path, "times": 1}]
        store.put_large(f"big-{do}", [bytes(MIB)] * 20)
        assert fault_proxy.stats["fired"] == 1
        assert direct.head(f"big-{do}").size == 20 * MIB


def test_a_large_put_whose_source_fails_aborts_the_upload(store: Store, direct: Store, fault_proxy: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield from [bytes(MIB)] * 20
        raise RuntimeError("source failed")

    with pytest.raises(RuntimeError, match="source failed"):
        store.put_large("big", chunks())
    assert fault_proxy.stats["by_method"]["DELETE"] == 1
    assert list(direct.list("")) == []


def test_a_listing_goes_on_where_it_broke(store: Store, direct: Store, fault_proxy: Any) -> None:
    keys = [f"many/{number:05}" for number in range(2300)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: direct.put(key, b""), keys))
    fault_proxy.rules = [{"do": "status", "method": "GET", "skip": 1, "times": 2}]
    assert [meta.key for meta in store.list("many")] == keys
    assert fault_proxy.stats["fired"] == 2


def test_a_bucket_that_does_not_exist_or_denies_access_says_so(s3_options: dict[str, str]) -> None:
    cases = [
        ("s3://no-such-bucket/x", {}, "does not exist"),
        ("s3://test/x", {"secret_access_key": "wrong"}, "denied.*AWS_SECRET_ACCESS_KEY"),
        ("s3://test/x", {"access_key_id": "nobody"}, "denied"),
    ]
    for url, change, says in cases:
        store = open_store(url, {**s3_options, **change})
        calls = [
            lambda store=store: probe_create_if_absent(store, SeededIds()),
            lambda store=store: store.put("k", b""),
            lambda store=store: list(store.list("")),
            lambda store=store: store.delete(["k"]),
            lambda store=store: store.get("k"),
        ]
        for call in calls:
            with pytest.raises(InvalidInputError, match=says):
                call()
    anonymous = open_store("s3://test/x", {"endpoint": s3_options["endpoint"], "skip_signature": "true"})
    with pytest.raises(InvalidInputError, match="denied"):
        probe_create_if_absent(anonymous, SeededIds())


# M-066
def test_a_real_server_passes_the_probe(direct: Store) -> None:
    probe_create_if_absent(direct, SeededIds(1))
    assert list(direct.list("")) == []
    assert direct.counters.requests == 5


# M-066
def test_a_server_that_ignores_the_condition_is_refused(direct: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def unconditional(key: str, data: bytes) -> Stored:
        direct.put(key, data)
        return Stored()

    monkeypatch.setattr(direct, "create", unconditional)
    with pytest.raises(InvalidInputError, match="no reliable create-if-absent"):
        probe_create_if_absent(direct, SeededIds(2))
    assert list(direct.list("")) == []


def _use_after_fork(store: Store, answer: Any) -> None:
    try:
        store.get("k")
    except InternalError as problem:
        answer.put(str(problem))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_instead_of_hanging(direct: Store) -> None:
    direct.put("k", b"")
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=_use_after_fork, args=(direct, answer))
    child.start()
    assert "spawn" in answer.get(timeout=20)
    child.join(20)
    assert direct.get("k") == b""
