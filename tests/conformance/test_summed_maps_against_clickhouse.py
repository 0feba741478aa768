"""Maps that are combined key by key: columns of a Nested whose name ends in Map, and sumMap, minMap, maxMap."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

KEYS = {
    "UInt8": ("0", "1", "7", "255"),
    "Int64": ("0", "-1", "5", "-9223372036854775808"),
    "Int128": ("0", "-1", "5", "18446744073709551616"),
    "Bool": ("true", "false"),
    "String": ("''", "'a'", "'aaaaaaaaab'", "'aaaaaaaaaa'", "'b'"),
    "FixedString(2)": ("'a'", "'b'", "''"),
    "Date": ("'2020-01-01'", "'1970-01-01'", "'2106-01-01'"),
    "Date32": ("'2020-01-01'", "'1960-01-01'"),
    "DateTime": ("'2020-01-01 00:00:00'", "'1970-01-01 00:00:01'"),
    "Enum8('x' = -1, 'y' = 2)": ("'x'", "'y'"),
    "UUID": ("'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "'01f0c404-5cb3-11e7-f07b-a6006ad3dba0'"),
    "IPv4": ("'1.2.3.4'", "'255.0.0.1'"),
    "IPv6": ("'::1'", "'ff::'"),
}
NUMBERS = {
    "UInt8": ("0", "1", "200", "56"),
    "Int8": ("0", "1", "-1", "127"),
    "UInt64": ("0", "1", "18446744073709551615"),
    "Int64": ("0", "1", "-1", "9223372036854775807"),
    "Int256": ("0", "1", "-1"),
    "Float32": ("0", "-0.", "1.5", "-1.5", "16777216", "1", "nan"),
    "Float64": ("0", "-0.", "1.5", "-1.5", "1e16", "1", "nan"),
    "Decimal(9, 2)": ("0", "1.5", "-1.5"),
    "Decimal(38, 2)": ("0", "1.5", "-1.5"),
    "Bool": ("true", "false"),
}
OTHERS = {
    "String": ("''", "'a'", "'b'"),
    "Date": ("'2020-01-01'", "'1970-01-01'"),
    "Nullable(Int64)": ("NULL", "0", "1", "-1"),
    "Nullable(Float64)": ("NULL", "0", "-1.5", "nan"),
}
SEQUENCES = int(os.environ.get("MERGELAKE_MAP_SEQUENCES", rounds(3, 100)))
FIRST = int(os.environ.get("MERGELAKE_MAP_FIRST", "0"))


class Both:
    """A table here and one in ClickHouse."""

    def __init__(self, oracle: Any, path: Path, rng: random.Random, engine: str, columns: list[str]) -> None:
        self.oracle, self.rng, self.theirs = oracle, rng, f"default.maps_{rng.randrange(1 << 30)}"
        self.db = connect(str(path))
        create = f"CREATE TABLE {{}} (k UInt8, a Int8, {', '.join(columns)}) ENGINE = {engine} ORDER BY k"
        more = "allow_dimensions_outside_sorting_key = 1"
        self.db.sql(f"{create.format('t')} SETTINGS {more}, merge_max_chunk_bytes = {rng.choice((200, 1 << 20))}")
        oracle.query(f"{create.format(self.theirs)} SETTINGS {more}")
        oracle.query(f"SYSTEM STOP MERGES {self.theirs}")

    def insert(self, row: Any) -> None:
        optimize = self.rng.choice((0, 1))
        rows = ", ".join(
            f"({self.rng.randrange(4)}, {self.rng.choice((-1, 0, 1))}, {row()})"
            for _ in range(self.rng.choice((1, 3, 20)))
        )
        self.db.sql(f"ALTER TABLE t MODIFY SETTING optimize_on_insert = {optimize}")
        self.db.sql(f"INSERT INTO t VALUES {rows}")
        self.oracle.query(f"INSERT INTO {self.theirs} SETTINGS optimize_on_insert = {optimize} VALUES {rows}")

    def same(self, final: str) -> None:
        query = f"SELECT toString(tuple(*)) AS row FROM {{}}{final} ORDER BY row"
        ours = self.db.sql(query.format("t")).text("TSV")
        assert ours == str(self.oracle.query(query.format(self.theirs), "TSV"))

    def run(self, row: Any) -> None:
        """Rows in parts, FINAL, and merges."""
        try:
            for _ in range(3):
                self.insert(row)
            self.same("")
            self.same(" FINAL")
            self.oracle.query(f"SYSTEM START MERGES {self.theirs}")
            for _ in range(2):
                self.oracle.query(f"OPTIMIZE TABLE {self.theirs} FINAL")
                self.db.sql("OPTIMIZE TABLE t FINAL")
                self.same("")
                self.insert(row)
            self.same(" FINAL")
            # ClickHouse combines only the columns that are read: of a part of them each has the value of the first row.
            whole = self.db.table("t").scan(final=True, ordered=True).arrow()
            for name in whole.column_names:
                alone = self.db.table("t").scan([name], final=True, ordered=True).arrow()
                assert str(alone[name].to_pylist()) == str(whole[name].to_pylist())
        finally:
            self.oracle.query(f"DROP TABLE {self.theirs}")


def _list(rng: random.Random, values: tuple[str, ...], count: int) -> str:
    return f"[{', '.join(rng.choice(values) for _ in range(count))}]"


@pytest.mark.parametrize("number", range(FIRST, FIRST + SEQUENCES))
def test_nested_maps_are_summed_as_in_clickhouse(number: int, oracle: Any, tmp_path: Path) -> None:
    rng = random.Random(number)
    key, values = rng.choice([*KEYS]), rng.sample([*NUMBERS], rng.choice((1, 1, 2)))
    other = rng.choice([*OTHERS])
    columns = [f"`xMap.id` Array({key})", *(f"`xMap.v{at}` Array({kind})" for at, kind in enumerate(values))]
    rng.shuffle(columns[1:])
    columns += [
        "`yMap.id` Array(UInt8)",
        f"`yMap.text` Array({rng.choice(('String', 'Date'))})",
        f"`zMap.one` Array({other})",
    ]
    engine = rng.choice(("SummingMergeTree", "SummingMergeTree", "SummingMergeTree(a)"))

    def row() -> str:
        count = rng.randrange(4)
        cells = [_list(rng, KEYS[key], count), *(_list(rng, NUMBERS[kind], count) for kind in values)]
        return ", ".join(
            [*cells, "[1]", "['1']" if "String" in columns[-2] else "['2020-01-01']", _list(rng, OTHERS[other], 2)]
        )

    Both(oracle, tmp_path, rng, engine, columns).run(row)


@pytest.mark.parametrize("number", range(FIRST, FIRST + SEQUENCES))
def test_functions_of_maps_combine_as_in_clickhouse(number: int, oracle: Any, tmp_path: Path) -> None:
    rng = random.Random(f"functions {number}")
    columns, makers = [], []
    db = connect("memory://map-functions")
    while len(columns) < 4:
        function, pairs = rng.choice(("sumMap", "minMap", "maxMap")), rng.random() < 0.5
        key, value = rng.choice([*KEYS]), rng.choice([*NUMBERS, *OTHERS])
        kind = f"Map({key}, {value})" if pairs else f"Tuple(Array({key}), Array({value}))"
        column = f"c{len(columns)} SimpleAggregateFunction({function}, {kind})"
        ours = theirs = 0
        create = f"(k UInt8, {column}) ENGINE = AggregatingMergeTree ORDER BY k"
        try:
            db.sql(f"CREATE TABLE x {create}")
        except MergelakeError as refused:
            ours = refused.code
        try:
            oracle.query(f"CREATE TABLE default.map_functions {create}")
        except RuntimeError as refused:
            theirs = int(re.findall(r"Code: (\d+)", str(refused))[0])
        db.sql("DROP TABLE IF EXISTS x SYNC")
        oracle.query("DROP TABLE IF EXISTS default.map_functions")
        assert ours in (theirs, 48), column
        if not ours:
            columns.append(column)
            makers.append((pairs, KEYS[key], {**NUMBERS, **OTHERS}[value]))

    def row() -> str:
        cells = []
        for pairs, keys, values in makers:
            count = rng.randrange(4)
            if pairs:
                cells.append(f"{{{', '.join(f'{rng.choice(keys)}: {rng.choice(values)}' for _ in range(count))}}}")
            else:
                cells.append(f"({_list(rng, keys, count)}, {_list(rng, values, count)})")
        return ", ".join(cells)

    Both(oracle, tmp_path, rng, rng.choice(("AggregatingMergeTree", "SummingMergeTree")), columns).run(row)


def test_arrays_of_different_lengths_are_refused() -> None:
    db, kind = connect("memory://lengths"), "Tuple(Array(UInt8), Array(UInt64))"
    db.sql("DROP TABLE IF EXISTS t SYNC")
    db.sql(
        f"CREATE TABLE t (k UInt8, v SimpleAggregateFunction(sumMap, {kind})) ENGINE = AggregatingMergeTree ORDER BY k"
    )
    with pytest.raises(MergelakeError) as caught:
        db.sql("INSERT INTO t VALUES (1, ([1, 2], [1]))")
    assert caught.value.name == "BAD_ARGUMENTS"


@pytest.mark.parametrize(
    "columns",
    [
        "`aMap.x` Array(UInt8), `aMap.yID` Array(UInt8), `aMap.z` Array(UInt8)",
        "`aMap.x` Array(UInt8), `aMap.y` Array(Nullable(UInt8))",
    ],
)
def test_maps_that_are_not_supported_are_refused(columns: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        connect("memory://refused-maps").sql(
            f"CREATE TABLE t (k UInt8, {columns}) ENGINE = SummingMergeTree ORDER BY k"
        )
    assert caught.value.name == "NOT_IMPLEMENTED"
