"""What a table of many columns costs: no function does more than in proportion to the columns, whatever is asked."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable

import pytest

import mergelake as ml
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.inspect import inspect_part
from tests.helpers.work import bytecodes_by_place, steep

FEW, MANY = 8, 32
STEEP = 5.5
"""Four times the columns may cost four times the work; sixteen times is its square."""

WIDE = "min_bytes_for_wide_part = 0, min_bytes_for_full_part_storage = 0"
COMPACT = "min_bytes_for_wide_part = 1000000000"
ARRAYS = "[1, 2]"
KINDS: dict[str, tuple[Callable[[int], str], str, str]] = {
    # definition of column number i, what a row gives it (nothing: it is left out), settings
    "wide": (lambda i: f"c{i} UInt32", "5", WIDE),
    "compact": (lambda i: f"c{i} UInt32", "5", COMPACT),
    "nullable": (lambda i: f"c{i} LowCardinality(Nullable(String))", "'a'", WIDE),
    "nested": (lambda i: f"`n{i // 4}.c{i}` Array(UInt32)", ARRAYS, WIDE),
    "nested, left out": (lambda i: f"`n{i // 4}.c{i}` Array(UInt32)", "", WIDE),
    "json": (lambda i: f"c{i} JSON", "'{\"a\": 1}'", WIDE),
    "variant": (lambda i: f"c{i} Variant(UInt8, String)", "'x'", WIDE),
    "default": (lambda i: f"c{i} UInt32 DEFAULT k + {f'c{i - 1}' if i else 1}", "", WIDE),
    "indexed": (lambda i: f"c{i} UInt32, INDEX i{i} c{i} TYPE minmax GRANULARITY 1", "5", WIDE),
}


def works(kind: str, columns: int) -> dict[str, Counter[str]]:
    """The work of each verb on a table of so many columns."""
    define, value, settings = KINDS[kind]
    body = ", ".join(define(i) for i in range(columns))
    create = f"CREATE TABLE t (k UInt64, {body}) ENGINE = MergeTree ORDER BY k SETTINGS {settings}"
    row = ", ".join(["{k}", *[value] * columns]) if value else "{k}"
    insert = f"INSERT INTO t {'' if value else '(k) '}VALUES ({row})"
    with tempfile.TemporaryDirectory() as folder:
        db = ml.connect(folder, settings={"executor": "local"})
        out = {"CREATE": bytecodes_by_place(lambda: db.sql(create))}
        table = db.table("t")
        db.sql(insert.replace("{k}", "1"))
        out["INSERT"] = bytecodes_by_place(lambda: db.sql(insert.replace("{k}", "2")))

        def inspect() -> None:
            part = next(iter(table.handle.refresh().parts()))
            known = {column.name: column for column in table.schema.stored}
            inspect_part(PartReader(table.handle.store, table.handle.directory, part.manifest, known), str(part.info))

        verbs: dict[str, Callable[[], object]] = {
            "first SELECT": lambda: ml.connect(folder).sql("SELECT min(k) FROM t WHERE k < 9").arrow(),
            "second SELECT": lambda: db.sql("SELECT min(k) FROM t WHERE k < 9").arrow(),
            "SELECT": lambda: db.sql("SELECT min(k) FROM t WHERE k < 9").arrow(),
            "SELECT *": lambda: db.sql("SELECT * FROM t").arrow() if kind not in ("json", "variant") else None,
            "scan": lambda: table.scan().arrow(),
            "EXPLAIN": lambda: db.sql("EXPLAIN indexes = 1 SELECT k FROM t WHERE k < 9").arrow(),
            "OPTIMIZE": lambda: db.sql("OPTIMIZE TABLE t FINAL"),
            "CHECK": lambda: db.sql("CHECK TABLE t").arrow(),
            "publish": table.publish,
            "inspect": inspect,
            "attach": lambda: table.attach_statement("default.t"),
            "DESCRIBE": lambda: db.sql("DESCRIBE TABLE t").arrow(),
            "system.columns": lambda: db.sql("SELECT count() FROM system.columns").arrow(),
            "collection": lambda: db.warehouse.gc(),
        }
        return out | {name: bytecodes_by_place(verb) for name, verb in verbs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_function_does_more_than_in_proportion_to_the_columns(kind: str) -> None:
    works(kind, 2)  # what is imported and compiled once
    found = _steep(kind)
    for _ in range(2):
        if found:  # threads of tests before may have worked meanwhile: what grows does so each time
            found = found & _steep(kind)
    assert not found


def _steep(kind: str) -> set[tuple[str, str]]:
    """Verbs, and functions in them, that do more than in proportion to the columns."""
    few, many = works(kind, FEW), works(kind, MANY)
    return {(verb, place) for verb in many for place in steep(few[verb], many[verb], STEEP)}


@pytest.mark.slow
def test_a_warm_select_of_few_columns_takes_few_bytecodes_for_each_of_the_others() -> None:
    few, many = (works("wide", columns)["SELECT"].total() for columns in (FEW, MANY))
    assert many - few < 400 * (MANY - FEW)
