"""Random tables of ClickHouse with lightweight updates and deletes, mutations and merges; and their parts read here."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import mergelake as ml
from mergelake.core.types.types import DataType, parse_type
from tests.helpers.blocks import select
from tests.helpers.clickhouse_tables import part_paths

TABLE = "patched"
NAMES = "['', 'a', 'b', 'long name', 'ü']"
COLUMNS: dict[str, tuple[str, Callable[[str], str]]] = {
    "i": ("Int32", lambda h: f"toInt32({h} % 100)"),
    "n": ("Nullable(Int64)", lambda h: f"if({h} % 4 = 0, NULL, toInt64({h} % 50))"),
    "s": ("String", lambda h: f"repeat('x', {h} % 9)"),
    "ns": ("Nullable(String)", lambda h: f"if({h} % 3 = 0, NULL, toString({h} % 7))"),
    "lc": ("LowCardinality(String)", lambda h: f"arrayElement({NAMES}, {h} % 5 + 1)"),
    "ln": ("LowCardinality(Nullable(String))", lambda h: f"if({h} % 6 = 0, NULL, arrayElement({NAMES}, {h} % 5 + 1))"),
    "a": ("Array(UInt16)", lambda h: f"arrayMap(x -> toUInt16(x + {h} % 10), range({h} % 4))"),
    "al": ("Array(LowCardinality(String))", lambda h: f"arraySlice({NAMES}, 1 + {h} % 4, {h} % 3)"),
    "m": ("Map(String, UInt8)", lambda h: f"if({h} % 3 = 0, map(), map('k', {h} % 10, 'l', 1))"),
    "t": ("Tuple(x Int8, y String)", lambda h: f"tuple(toInt8({h} % 100), toString({h} % 5))"),
    "f": ("Float64", lambda h: f"({h} % 1000) / 8"),
    "z": ("UInt8", lambda h: f"if({h} % 20 = 0, 1, 0)"),
}
"""Types of the columns, and an expression of type UInt64 -> a value of the column."""
ROWS_MAX = 200


class History:
    """A random table and random statements on it."""

    def __init__(self, oracle: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.oracle = oracle
        draw = self.random
        self.columns = ["p", "k", *draw.sample(list(COLUMNS), draw.randint(2, 6))]
        self.types: dict[str, DataType] = {
            name: parse_type(COLUMNS[name][0] if name in COLUMNS else "UInt32") for name in self.columns
        }
        self.values = self.columns[2:]
        self.background = draw.random() < 0.4
        self.statements: list[str] = []
        self.ended = False
        """Whether a mutation of ClickHouse failed, and so all later ones."""
        self.next_key = 0
        self.late = draw.random() < 0.2
        self._create()

    def _create(self) -> None:
        draw = self.random
        ids = "enable_block_number_column = 1, enable_block_offset_column = 1"
        settings = [
            f"patch_parts_version = '{draw.choice(['v1', 'v2', 'v2'])}'",
            f"index_granularity = {draw.choice([7, 64, 8192])}",
            f"min_bytes_for_wide_part = {draw.choice([0, 10_000_000])}",
            f"ratio_of_defaults_for_sparse_serialization = {draw.choice([0.2, 1.0])}",
            "min_bytes_for_full_part_storage = 0",
            f"apply_patches_on_merge = {draw.choice([0, 1])}",
            "remove_empty_parts = 0",
            *([] if self.late else [ids]),
        ]
        columns = ", ".join(f"{name} {kind}" for name, kind in self.types.items())
        order = draw.choice(["k", "(k)", "tuple()", "(k % 5, k)", "(p, cityHash64(k))", "toString(k)"])
        partition = draw.choice(["", "PARTITION BY p", "PARTITION BY (p, p % 2)"])
        self._run(f"DROP TABLE IF EXISTS {TABLE}")
        self._run(
            f"CREATE TABLE {TABLE} ({columns}) ENGINE = {draw.choice(['MergeTree', 'ReplacingMergeTree'])} "
            f"{partition} ORDER BY {order} SETTINGS {', '.join(settings)}"
        )
        if not self.background:
            self._run(f"SYSTEM STOP MERGES {TABLE}")
        for _ in range(draw.randint(1, 3)):
            self.insert()
        if self.late:
            if draw.random() < 0.5:
                self.merge()
            self._run(f"ALTER TABLE {TABLE} MODIFY SETTING {ids}")

    def _run(self, sql: str) -> None:
        self.statements.append(sql)
        try:
            self.oracle.query(sql)
        except RuntimeError as failure:
            # APPLY DELETED MASK fails in ClickHouse 26.9 where only a patch part has a mask.
            if "UNFINISHED" not in str(failure):
                raise
            self.ended = True

    # -- statements ------------------------------------------------------------------------------

    def step(self) -> None:
        """One random statement."""
        draw = self.random
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.insert, 2),
            (self.update, 10),
            (self.delete, 4),
            (self.mask, 1),
            (self.mutate, 1),
            (self.merge, 2),
            (self.apply, 1),
            (self.merge_patches, 1),
        ]
        draw.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()

    def insert(self) -> None:
        rows = self.random.randint(1, ROWS_MAX)
        values = ", ".join(self._value(name) for name in self.values)
        self._run(
            f"INSERT INTO {TABLE} SELECT toUInt32(number % 3) AS p, toUInt32({self.next_key} + number) AS k, {values} "
            f"FROM numbers({rows})"
        )
        self.next_key += rows

    def update(self) -> None:
        self._run(f"UPDATE {TABLE} SET {self._assignments()} WHERE {self._where()}")

    def delete(self) -> None:
        mode = self.random.choice(["lightweight_update", "lightweight_update_force"])
        self._run(f"DELETE FROM {TABLE} WHERE {self._where()} SETTINGS lightweight_delete_mode = '{mode}'")

    def mask(self) -> None:
        self._merging(f"DELETE FROM {TABLE} WHERE {self._where()}")

    def mutate(self) -> None:
        what = self.random.choice(["DELETE", f"UPDATE {self._assignments()}", f"UPDATE {self._assignments()}"])
        self._merging(f"ALTER TABLE {TABLE} {what} WHERE {self._where()} SETTINGS mutations_sync = 2")

    def merge(self) -> None:
        final = self.random.choice(["", " FINAL"])
        self._merging(f"OPTIMIZE TABLE {TABLE}{final}")

    def apply(self) -> None:
        what = self.random.choice(["PATCHES", "DELETED MASK"])
        self._merging(f"ALTER TABLE {TABLE} APPLY {what} SETTINGS mutations_sync = 2")

    def merge_patches(self) -> None:
        """Merge patch parts among themselves."""
        names = [name for name in part_paths(self.oracle, TABLE) if name.startswith("patch-")]
        if names:
            self._merging(f"OPTIMIZE TABLE {TABLE} PARTITION ID '{self.random.choice(names).partition('_')[0]}' FINAL")

    def _merging(self, sql: str) -> None:
        if self.background:
            self._run(sql)
            return
        self._run(f"SYSTEM START MERGES {TABLE}")
        self._run(sql)
        self._run(f"SYSTEM STOP MERGES {TABLE}")

    def _assignments(self) -> str:
        names = self.random.sample(self.values, self.random.randint(1, min(3, len(self.values))))
        return ", ".join(f"{name} = {self._value(name)}" for name in names)

    def _value(self, name: str) -> str:
        return COLUMNS[name][1](f"cityHash64(k, {self.random.randint(0, 1 << 30)})")

    def _where(self) -> str:
        draw = self.random
        start = draw.randint(0, max(self.next_key, 1))
        return draw.choice(
            [
                f"cityHash64(k, {draw.randint(0, 1 << 30)}) % {draw.choice([2, 5, 30])} = 0",
                f"k BETWEEN {start} AND {start + draw.randint(0, ROWS_MAX)}",
                f"p = {draw.randint(0, 3)}",
                f"k = {start}",
            ]
        )

    # -- reading ---------------------------------------------------------------------------------

    def expected(self, settings: str = "") -> pa.Table:
        """What ClickHouse shows."""
        return select(self.oracle, f"SELECT * FROM {TABLE}{settings}", self.types)

    def found(self, **options: Any) -> pa.Table:
        """The rows of all active parts, as `read_part` gives them."""
        paths = {name: path for name, path in part_paths(self.oracle, TABLE).items() if not name.startswith("patch-")}
        parts = [ml.read_part(str(path), **options) for path in paths.values()]
        for part in parts:
            assert list(part.types) == self.columns
            assert part.rows == part.storage().num_rows
        if parts:
            part = self.random.choice(parts)
            small = [row for batch in part.batches(batch_rows=50) for row in batch.to_pylist()]
            assert small == part.arrow().to_pylist()
        return pa.concat_tables([part.storage() for part in parts])


def rows(table: pa.Table) -> list[str]:
    """The rows as sorted texts: equal for equal multisets."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))
