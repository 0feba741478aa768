"""ClickHouse, which reads attached sets of parts itself, applies to parts what they lacked when they were detached, and
mutations of some partitions to these alone.
"""

from __future__ import annotations

import random

import pytest

import mergelake as ml
from tests.helpers.attached import attach_at_once


@pytest.mark.parametrize("seed", range(2))
def test_attached_sets_and_scans_agree(tmp_path, monkeypatch, seed):
    attach_at_once(monkeypatch)
    draw = random.Random(seed)
    db = ml.connect(str(tmp_path / "w"))
    engine = draw.choice(["MergeTree", "ReplacingMergeTree(v)"])
    db.sql(f"CREATE TABLE t (p Int8, k Int64, v Int64, s String) ENGINE = {engine} PARTITION BY p ORDER BY k")
    table = db.table("t")
    for step in range(12):
        where = f"(k + v) % {draw.choice([2, 3])} = 0"
        match draw.randrange(8):
            case 0 | 1:
                table.append({"p": [1, -2], "k": [step, step], "v": [step, 7], "s": ["a", "b"]})
            case 2:
                table.update({"s": "concat(s, 'x')"}, where, partition_id=draw.choice([None, "-2"]))
            case 3:
                table.delete(f"{where} AND k % 5 = {draw.randrange(5)}")
            case 4:
                table.detach_partition(draw.choice([1, -2]))
            case 5 | 6:
                table.attach_partition(every=True)
            case _:
                text = draw.choice(["", "p = 1", "_partition_id = '-2'"])
                table.modify_settings({"immutable_partitions": text})
                table.update({"s": "concat(s, 'y')"}, where)
                table.modify_settings({}, ["immutable_partitions"])
        for final in ("", " FINAL") if "Replacing" in engine else ("",):
            rows = sorted(db.sql(f"SELECT p, k, v, s FROM t{final}").rows())
            assert rows == sorted(table.scan(final=bool(final))), step
            mutated = db.sql(f"SELECT count() FROM t{final} WHERE s LIKE '%x%y%'").scalar()
            assert mutated == sum("x" in s and "y" in s[s.index("x") :] for *_, s in rows)
