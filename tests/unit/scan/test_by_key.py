"""Pruning by the key on columns of segments leaves the parts that pruning one part after another leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import mergelake as ml
from mergelake.log import layout
from mergelake.scan import by_key, plan

CONDITIONS = (
    "k = 77",
    "k BETWEEN 100 AND 140",
    "k IN (3, 900, 1500)",
    "k < 50 OR k > 1800",
    "s = '33'",
    "k >= 500 AND s < '6'",
    "p = 2 AND k = 444",
    "d = '2026-01-03' AND k < 600",
    "k > 100000",
    "not (k = 7)",
)


@pytest.fixture(params=["(s, k)", "k DESC", "(toDate(d), k)"])
def db(request: pytest.FixtureRequest, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ml.Database]:
    monkeypatch.setattr(layout, "INLINE_MAX", 4_000)
    monkeypatch.setattr(layout, "SEGMENT_MAX", 60_000)
    with ml.connect(str(tmp_path)) as db:
        db.sql(
            "CREATE TABLE t (p UInt8, d Date, k Int64, s String) ENGINE = MergeTree PARTITION BY (p, d) "
            f"ORDER BY {request.param} SETTINGS checkpoint_interval = 8, allow_experimental_reverse_key = 1"
        )
        order = list(range(60))
        random.Random(5).shuffle(order)
        for n in order:
            db.sql(
                f"INSERT INTO t SELECT {n % 4}, toDate('2026-01-01') + {n % 3}, number + {n * 20 - 7}, "
                f"toString((number + {n}) % 90) FROM numbers(20)"
            )
    with ml.connect(str(tmp_path)) as late:
        yield late


def test_the_same_rows_and_the_same_parts(db: ml.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = by_key.parts_by_key

    def told(*arguments):
        asked.append(real(*arguments))
        return asked[-1]

    monkeypatch.setattr(plan, "parts_by_key", told)
    table = db.table("t")
    assert table.snapshot().partitions.segments
    for condition in CONDITIONS:
        text = f"SELECT count(), sum(k), min(s), max(p) FROM t WHERE {condition}"
        with monkeypatch.context() as few:
            few.setattr(plan, "_MANY_PARTS", 8)
            pruned = db.sql(text).rows()
        with monkeypatch.context() as never:
            never.setattr(plan, "_MANY_PARTS", 1 << 30)
            assert pruned == db.sql(text).rows(), condition
    assert asked
    assert min(map(len, asked)) < 30  # of sixty
    names = [[part.name for part in parts] for parts in asked]
    assert all(
        found == sorted(found, key=lambda name: next(p.info for p in table.snapshot().parts if p.name == name))
        for found in names
    )


def test_parts_that_are_not_read_are_not_made(db: ml.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = db.table("t").snapshot()
    made = []
    real = by_key.OpenSegment.parts
    monkeypatch.setattr(by_key.OpenSegment, "parts", lambda self, rows: made.extend(rows) or real(self, rows))
    assert db.table("t").scan(where="k < 20", columns=["k"]).arrow().num_rows == 27
    inside = sum(len(snapshot.partitions.held(name)) for name in snapshot.partitions)
    assert inside == 60
    assert len(made) < 60
