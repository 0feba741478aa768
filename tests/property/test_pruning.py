"""Pruning never loses a row; moving conditions forward never changes a result."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mergelake.expr.compiled import compile_expression
from mergelake.scan.prune.request import ScanRequest
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.far_store import FarStore
from tests.helpers.predicates import TABLES, random_predicate, random_rows
from tests.helpers.scans import ScanTable, block_of, make_schema

Table = tuple[ScanTable, pa.Table]


@pytest.fixture(scope="module", params=[MemoryStore, FarStore], ids=["near", "far"])
def tables(request: pytest.FixtureRequest) -> Iterator[dict[str, Table]]:
    """Each random table, in its store and as one block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.helpers.scans.new_store", request.param)
        yield _tables()


def _tables() -> dict[str, Table]:
    rng = random.Random(7)
    made = {}
    for name, (schema, columns) in TABLES.items():
        table, rows = ScanTable(schema), []
        for _ in range(3):
            some = random_rows(rng, columns, 50)
            table.insert(some)
            rows += some
        made[name] = (table, block_of(rows, schema.types))
    return made


def as_counter(block: pa.Table | pa.RecordBatch) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in block.to_pylist())


@given(name=st.sampled_from(sorted(TABLES)), seed=st.integers(0, 1 << 32))
def test_scan_gives_exactly_the_rows_for_which_the_predicate_holds(
    tables: dict[str, Table], name: str, seed: int
) -> None:
    table, block = tables[name]
    where = random_predicate(random.Random(seed), TABLES[name][1])
    mask = compile_expression(where, table.schema.types).mask(block)
    wanted = block.filter(pa.array(np.asarray(mask)))
    found: Counter[tuple[object, ...]] = Counter()
    for batch in table.batches(ScanRequest(where=where), threads=1):
        assert batch.num_rows
        found += as_counter(batch)
    assert found == as_counter(wanted), where


@given(name=st.sampled_from(sorted(TABLES)), seed=st.integers(0, 1 << 32))
def test_prewhere_and_where_are_one_condition(tables: dict[str, Table], name: str, seed: int) -> None:
    table, _ = tables[name]
    rng, columns = random.Random(seed), TABLES[name][1]
    one, other = random_predicate(rng, columns, 1), random_predicate(rng, columns, 1)
    split = table.plan(ScanRequest(where=one, prewhere=other))
    whole = table.plan(ScanRequest(where=f"({one}) AND ({other})"))
    assert {(str(i.info), i.ranges) for i in split.items} == {(str(i.info), i.ranges) for i in whole.items}
    rows = [as_counter(b) for b in table.batches(ScanRequest(where=one, prewhere=other), threads=1)]
    again = [as_counter(b) for b in table.batches(ScanRequest(where=f"({one}) AND ({other})"), threads=1)]
    assert sum(rows, Counter()) == sum(again, Counter())


@given(name=st.sampled_from(sorted(TABLES)), seed=st.integers(0, 1 << 32))
def test_searching_many_parts_together_loses_no_row(tables: dict[str, Table], name: str, seed: int) -> None:
    table, block = tables[name]
    where = random_predicate(random.Random(seed), TABLES[name][1])
    wanted = block.filter(pa.array(np.asarray(compile_expression(where, table.schema.types).mask(block))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergelake.scan.read.plan._MANY_PARTS", 1)
        together = table.plan(ScanRequest(where=where))
        batches = table.batches(ScanRequest(where=where), threads=1)
    apart = table.plan(ScanRequest(where=where))
    assert together.marks <= apart.marks
    assert sum((as_counter(batch) for batch in batches), Counter()) == as_counter(wanted), where


FLOATS = ["f", "-f", "f + 1", "f / -2", "f / 2", "-(f + 1)", "toFloat32(f)"]


@pytest.mark.parametrize("expression", FLOATS)
def test_nan_is_neither_lost_nor_found_by_comparisons_it_fails(expression: str) -> None:
    schema = make_schema({"f": "Float64", "k": "UInt8"}, order_by=("f", "k"), settings={"index_granularity": "2"})
    table, nan = ScanTable(schema), float("nan")
    rows = [{"f": f, "k": i} for i, f in enumerate([-3.0, -1.5, 0.0, 2.0, 2.0, 5.5, nan, nan, nan, nan, 1e300])]
    table.insert(rows)
    block = block_of(rows, schema.types)
    for operator in ("=", "!=", "<", "<=", ">", ">="):
        for literal in ("-2.", "0", "1", "2", "5.5", "-1"):
            for form in ("{}", "NOT ({})", "NOT ({} AND k > 3)", "NOT ({} OR k < 3)"):
                where = form.format(f"{expression} {operator} {literal}")
                mask = compile_expression(where, schema.types).mask(block)
                found = [row["k"] for row in table.scan(ScanRequest(where=where), threads=1)]
                assert sorted(found) == np.flatnonzero(mask).tolist(), where
