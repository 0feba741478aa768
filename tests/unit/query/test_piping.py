"""Bytes of an answer through a pipe: no more is computed than is read; ends, errors and cancels come through."""

from __future__ import annotations

import gc
import io
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from mergelake.core.base.cancel import CancelToken, running
from mergelake.core.base.errors import CorruptDataError, MergelakeError
from mergelake.query.embedded import engine
from mergelake.query.embedded.piping import ByteStream, begin
from mergelake.query.embedded.streamed import Batches

pytestmark = pytest.mark.chdb
SCHEMA = pa.schema([pa.field("z", pa.int64(), nullable=False)])
ROWS = 65536
PIECE_BYTES = ROWS * 8


class Scan:
    """Batches without end, counted; `fails_at` raises instead of a batch."""

    def __init__(self, fails_at: int = -1) -> None:
        self.taken, self.ended, self._fails_at = 0, False, fails_at

    def tables(self) -> dict[str, object]:
        return {"t": pa.RecordBatchReader.from_batches(SCHEMA, self._batches())}

    def _batches(self) -> Iterator[pa.RecordBatch]:
        values = pa.array(range(ROWS), pa.int64())
        try:
            while self.taken != self._fails_at:
                self.taken += 1
                yield pa.record_batch([values], schema=SCHEMA)
            raise CorruptDataError("Bad block", object_key="x/data.bin", offset=7)
        finally:
            self.ended = True


def statements() -> int:
    found: int = engine.run("SELECT count() FROM system.processes").table().column(0)[0].as_py()
    return found - 1


def settle() -> None:
    """Wait until ClickHouse computes nothing."""
    deadline = time.monotonic() + 5
    while statements():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def rows(stream: ByteStream) -> int:
    return sum(batch.num_rows for batch in pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(stream), "r")))


def test_a_scan_is_read_no_further_than_its_answer() -> None:
    scan = Scan()
    stream = begin("SELECT z FROM Python(t)", scan.tables())
    most = 0
    for pieces in (1, 10, 40):
        while most < pieces * PIECE_BYTES:
            most += len(stream.read(1 << 20))
        time.sleep(0.2)
        assert pieces <= scan.taken < pieces + 30
    stream.close()
    settle()
    gc.collect()
    assert scan.ended


@pytest.mark.parametrize("form", ["CSVWithNames", "JSONEachRow", "Native", "TSVWithNamesAndTypes", "Vertical", "XML"])
def test_the_bytes_are_those_of_the_whole_answer(form: str) -> None:
    sql = "SELECT number, toString(number) AS s FROM numbers(300000)"
    settings = {"max_threads": "1"}
    whole = bytes(engine.run(sql, output=form, settings=settings).data)
    stream = begin(sql, output=form, settings=settings)
    found = stream.readall()
    if form == "XML":  # with how long it took
        found, whole = found[:1_000_000], whole[:1_000_000]
    assert found == whole
    assert stream.answer is not None
    assert (stream.answer.rows, stream.answer.rows_read) == (300_000, 300_000)


def test_totals_and_extremes_are_written() -> None:
    sql = "SELECT number % 2 AS k, count() FROM numbers(10) GROUP BY k WITH TOTALS ORDER BY k"
    assert begin(sql, output="CSV").readall() == b"0,5\n1,5\n\n0,10\n"
    assert begin("SELECT number FROM numbers(3) SETTINGS extremes = 1", output="CSV").readall() == b"0\n1\n2\n\n0\n2\n"


def test_a_comment_at_the_end_hides_nothing() -> None:
    assert begin("SELECT 1 -- one", output="CSV").readall() == b"1\n"


def test_errors_come_where_the_bytes_end() -> None:
    with pytest.raises(MergelakeError) as caught:
        begin("SELECT nosuch").readall()
    assert (caught.value.code, caught.value.name) == (47, "UNKNOWN_IDENTIFIER")
    stream = begin("SELECT throwIf(number = 5000000) FROM numbers(10000000)")
    assert len(stream.read(1000)) == 1000
    for _ in range(2):
        with pytest.raises(MergelakeError, match="FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"):
            stream.readall()
    assert begin("SELECT 42", output="CSV").readall() == b"42\n"


def test_what_a_scan_raises_is_raised_as_it_was() -> None:
    batches = Batches(begin("SELECT z FROM Python(t)", Scan(fails_at=100).tables()), ["Int64"])
    with pytest.raises(CorruptDataError) as caught:
        list(batches)
    assert caught.value.offset == 7


def test_closed_early_it_ends_in_clickhouse_and_the_next_statements_are_right() -> None:
    held = descriptors()
    for number in range(40):
        stream = begin("SELECT number FROM numbers(1000000000)")
        stream.read(1 << (number % 20))
        stream.close()
        stream.close()
        assert begin(f"SELECT {number}", output="CSV").readall() == b"%d\n" % number
    settle()
    assert descriptors() < held + 10


def test_one_that_computes_and_writes_nothing_is_closed() -> None:
    stream = begin("SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")
    time.sleep(0.2)
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 1.5
    settle()


def test_a_stream_that_nobody_has_any_more_ends() -> None:
    stream = begin("SELECT number FROM numbers(1000000000)")
    stream.read(10)
    del stream
    settle()
    batches = Batches(begin("SELECT number FROM numbers(1000000000)"), ["UInt64"])
    next(batches)
    del batches
    settle()


def test_a_cancel_ends_one_that_is_read_and_one_that_waits() -> None:
    cancel = CancelToken()
    with running(cancel):
        waits = begin("SELECT number FROM numbers(1000000000)")
        batches = Batches(begin("SELECT number FROM numbers(1000000000)"), ["UInt64"])
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(lambda: sum(batch.num_rows for batch in batches))
        time.sleep(0.2)
        cancel.set()
        with pytest.raises(MergelakeError, match="QUERY_WAS_CANCELLED"):
            read.result(5)
    settle()
    with pytest.raises(MergelakeError, match="QUERY_WAS_CANCELLED"):
        waits.readall()
    with pytest.raises(MergelakeError, match="QUERY_WAS_CANCELLED"), running(cancel):
        begin("SELECT 1")


def test_streams_run_side_by_side_in_one_thread_and_in_several() -> None:
    streams = [Batches(begin(f"SELECT number + {n} FROM numbers(4000000)"), ["UInt64"]) for n in range(3)]
    counts = [0, 0, 0]
    while any(not stream.ended for stream in streams):
        for place, stream in enumerate(streams):
            counts[place] += sum(batch.num_rows for batch in [next(stream, None)] if batch is not None)
            assert engine.run("SELECT 7").table().column(0)[0].as_py() == 7
    assert counts == [4_000_000] * 3
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda n: rows(begin(f"SELECT number FROM numbers({n})")), [3_000_000 + n for n in range(8)])
        assert list(found) == [3_000_000 + n for n in range(8)]


def test_to_end_another_statement_of_the_thread_leaves_a_stream_alone() -> None:
    stream = Batches(begin("SELECT number FROM numbers(6000000)"), ["UInt64"])
    cancel = CancelToken()
    threading.Timer(0.3, cancel.set).start()
    with running(cancel), pytest.raises(MergelakeError, match="QUERY_WAS_CANCELLED"):
        engine.run("SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")
    assert sum(batch.num_rows for batch in stream) == 6_000_000


def test_threads_share_a_stream_each_batch_goes_to_one() -> None:
    stream = Batches(begin("SELECT number FROM numbers(4000000)"), ["UInt64"])
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda _: sum(batch.num_rows for batch in stream), "abc")
        assert sum(found) == 4_000_000


def test_what_follows_a_statement_runs_once_and_before_its_end_is_known() -> None:
    ended: list[int] = []
    stream = begin("SELECT 1", output="CSV")
    stream.at_end(lambda: ended.append(1))
    assert stream.readall() == b"1\n"
    assert ended == [1]
    stream.at_end(lambda: ended.append(2))
    assert ended == [1, 2]
