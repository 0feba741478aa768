"""A LazyFrame over a table gives what Polars makes of all its rows, and reads less: random conditions."""

from __future__ import annotations

import datetime
import random
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import mergelake as ml
from mergelake.api.python import polars_frame
from mergelake.api.python.table import Table

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
c = pl.col


@pytest.fixture(scope="module")
def table() -> Table:
    db = ml.connect("memory://polars-frame")
    db.sql(
        "CREATE TABLE t (k UInt64, i Int16, n Nullable(Int32), s LowCardinality(String), w Nullable(String), d Date, "
        "t DateTime('UTC'), m DateTime64(6, 'UTC'), b Bool, f Float64, e Enum8('x' = 1, 'y' = 2), u UUID, "
        "a Array(UInt8), j JSON) ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 64"
    )
    for part in range(3):
        db.sql(
            f"INSERT INTO t SELECT number * 3 + {part}, number % 300 - 150, if(number % 4, number % 90, NULL), "
            "toString(number % 11), if(number % 3, hex(number % 50), NULL), toDate('2026-01-01') + number % 40, "
            "toDateTime('2026-01-01 00:00:00', 'UTC') + number, "
            "toDateTime64('2026-01-01 00:00:00', 6, 'UTC') + number / 8, number % 2, number % 7 ? number / 3 : nan, "
            "number % 2 + 1, generateUUIDv4(number), range(number % 3), concat('{\"x\": ', toString(number % 5), '}') "
            "FROM numbers(700)"
        )
    return db.table("t")


def _atom(rng: random.Random) -> pl.Expr:
    moment = DAY + datetime.timedelta(milliseconds=rng.randrange(-1_000, 800_000))
    return rng.choice(
        [
            lambda: c("k") > rng.randrange(2200),
            lambda: rng.randrange(2200) >= c("k"),
            lambda: c("k") == rng.randrange(2200),
            lambda: c("i") != rng.randrange(-200, 40_000),
            lambda: c("i") < -rng.randrange(200),
            lambda: c("n") <= rng.randrange(90),
            lambda: c("n").is_null(),
            lambda: c("w").is_not_null(),
            lambda: c("n") != rng.randrange(90),
            lambda: c("k").is_between(rng.randrange(900), rng.randrange(900, 2200)),
            lambda: c("k").is_between(10, 90, closed="left"),
            lambda: c("s") == str(rng.randrange(12)),
            lambda: c("w") > hex(rng.randrange(50)).upper(),
            lambda: c("w").str.starts_with(str(rng.randrange(9))),
            lambda: c("s").is_in(["1", "7"]),
            lambda: c("d") >= (DAY + datetime.timedelta(days=rng.randrange(-3, 44))).date(),
            lambda: c("t") < moment,
            lambda: c("m") >= moment,
            lambda: c("m") == DAY + datetime.timedelta(microseconds=125_000 * rng.randrange(700)),
            lambda: c("b"),
            lambda: ~c("b"),
            lambda: c("f") > rng.random() * 200,
            lambda: c("e").cast(pl.String) == "x",
            lambda: c("k") % 5 == 2,
            lambda: c("a").list.len() == 2,
            lambda: c("k") > c("i"),
        ]
    )()


def _condition(rng: random.Random, depth: int = 2) -> pl.Expr:
    if not depth or rng.random() < 0.4:
        return _atom(rng)
    left, right = _condition(rng, depth - 1), _condition(rng, depth - 1)
    return left & right if rng.random() < 0.6 else left | right


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    told: list[str | None] = []
    known = polars_frame.condition_text

    def noted(node: Any, types: Any) -> str | None:
        text = known(node, types)
        told.append(text)
        return text

    monkeypatch.setattr(polars_frame, "condition_text", noted)
    return told


@pytest.mark.parametrize("seed", range(4))
def test_random_conditions_columns_and_limits(table: Table, pushed: list[str | None], seed: int) -> None:
    rng = random.Random(seed)
    everything = table.lazy().collect().sort("k")
    assert everything.height == 2100
    for _ in range(60):
        condition = _condition(rng)
        columns = rng.sample(everything.columns, rng.randrange(1, 5))
        found = table.lazy().filter(condition).sort("k").select(columns).collect()
        assert_frame_equal(found, everything.filter(condition).select(columns))
    assert table.lazy().head(7).collect().height == 7
    assert table.lazy().filter(c("k") >= 2000).select(pl.len()).collect().item() == 100
    assert table.lazy().head(50).filter(c("b")).collect().height <= 50
    assert sum(text is not None for text in pushed) > len(pushed) // 3


def test_what_is_pushed_down_spares_reading(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[Any] = []
    planned = polars_frame._scan
    monkeypatch.setattr(polars_frame, "_scan", lambda *given: scans.append(planned(*given)) or scans[-1])
    late = DAY + datetime.timedelta(seconds=690)
    found = table.lazy().filter((c("k") < 90) & (c("t") < late) & (c("k") % 2 == 0)).select("s").collect()
    assert found.height == 45
    (scan,) = scans
    assert scan.stats.marks <= 6
    assert set(scan.plan.columns) == {"s", "k", "t"}
    version = table.version
    frame = table.lazy(version=version)
    assert frame.select("k").collect().height == 2100
