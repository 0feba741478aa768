from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from mergelake.core.base.errors import CorruptDataError, MergelakeError
from mergelake.query.embedded import engine

SCHEMA = pa.schema([pa.field("z", pa.int64(), nullable=False)])


def stream(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def test_a_reader_is_streamed_and_a_limit_stops_it_early() -> None:
    taken = []

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            taken.append(1)
            yield batch(*range(65536))

    answer = engine.run("SELECT z FROM Python(t) LIMIT 3", {"t": stream(endless())})
    assert answer.table()["z"].to_pylist() == [0, 1, 2]
    assert len(taken) < 20


def test_an_answer_outlives_the_statement() -> None:
    table = engine.run("SELECT toString(number) AS s FROM numbers(200000)").table()
    engine.run("SELECT toString(number + 7) AS s FROM numbers(200000)").table()
    gc.collect()
    table.validate(full=True)
    assert table["s"][199_999].as_py() == "199999"


def test_what_a_scan_raises_is_raised_as_it_was() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(1)
        raise CorruptDataError("Bad block", object_key="x/data.bin", offset=7)

    with pytest.raises(CorruptDataError) as caught:
        engine.run("SELECT sum(z) FROM Python(t)", {"t": stream(broken())})
    assert caught.value.offset == 7


def test_errors_of_clickhouse_keep_code_and_name() -> None:
    with pytest.raises(MergelakeError) as caught:
        engine.run("SELECT nosuchfunction(1)")
    assert (caught.value.code, caught.value.name) == (46, "UNKNOWN_FUNCTION")
    assert "In scope" not in str(caught.value)


def test_settings_hold_for_one_statement() -> None:
    sql = "SELECT getSetting('max_block_size') AS s"
    before = engine.run(sql).table()["s"][0].as_py()
    assert engine.run(sql, settings={"max_block_size": "777"}).table()["s"][0].as_py() == 777
    assert engine.run(sql).table()["s"][0].as_py() == before


def test_an_unknown_setting_is_refused_and_leaves_nothing_behind() -> None:
    with pytest.raises(MergelakeError, match="UNKNOWN_SETTING"):
        engine.run("SELECT 1", settings={"nosuch": "1"})
    assert engine.run("SELECT 1 AS a").table()["a"].to_pylist() == [1]


def test_threads_run_side_by_side_with_their_own_tables() -> None:
    found: dict[int, int] = {}

    def work(number: int) -> None:
        for _ in range(5):
            table = engine.run(
                "SELECT sum(z) AS s FROM Python(t)", {"t": stream(iter([batch(number, number)]))}
            ).table()
            found[number] = table["s"][0].as_py()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: 2 * n for n in range(4)}


def test_an_empty_answer_has_its_columns() -> None:
    assert engine.run("SELECT 1 AS a, 'x' AS b WHERE 0").table().schema.names == ["a", "b"]


def test_dictionaries_inside_other_types_may_differ_from_batch_to_batch() -> None:
    sql = """
        SELECT number AS n, [toLowCardinality(toString(number))] AS a, map(toLowCardinality(toString(number)), 1) AS m,
               (toLowCardinality(toString(number)), 1) AS t
        FROM numbers(30000) SETTINGS max_block_size = 1000, max_threads = 1
    """
    table = engine.run(sql).table()
    texts = [str(number) for number in table["n"].to_pylist()]
    assert len(texts) == 30_000
    assert [cell[0] for cell in table["a"].to_pylist()] == texts
    assert [cell[0][0] for cell in table["m"].to_pylist()] == texts
    assert [cell["1"] for cell in table["t"].to_pylist()] == texts
