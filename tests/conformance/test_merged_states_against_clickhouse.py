"""Columns of aggregate states where rows of a key become one: random functions, rows and merges, as in ClickHouse."""

from __future__ import annotations

import math
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.sql.database import connect
from mergelake.core.model.schema import Column
from mergelake.core.types.types import AggregateFunction, parse_type
from mergelake.engines.rules.states import StateRule, state_rule
from mergelake.format.serializations.state_programs import state_program
from mergelake.jobs.merge.commit import merge_parts
from mergelake.jobs.merge.plan import plan_merge
from mergelake.query.embedded import engine
from mergelake.query.embedded.states import EMBEDDED
from tests.helpers.random_states import ARGUMENTS, state_calls
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

OWN = (
    "count", "sum", "sumWithOverflow", "avg", "min", "max", "any", "anyLast", "groupBitAnd", "groupBitOr",
    "groupBitXor",
)  # fmt: skip
ODD = {
    "Float64": "if(number % 5 = 0, nan, if(number % 7 = 0, -0., number / 3 - 7))",
    "Float32": "if(number % 5 = 0, nan, if(number % 7 = 0, inf, number / 3 - 7))",
    "Int8": "number % 200",
    "UInt64": "number * 12345678901234567890",
}
ANY_ORDER = ("groupUniqArray", "Distinct", "groupArrayIntersect")
"""Functions whose results stand in the order of a hash table."""
NOT_ASSOCIATIVE = (
    "deltaSumTimestamp", "exponentialMovingAverage", "TDigest", "histogram", "quantileGK", "groupArraySample",
    "anyHeavy", "boundingRatio", "BFloat16",
)  # fmt: skip
"""Functions whose result depends on which states are merged first."""
PARTICULAR = ("kolmogorovSmirnovTest", "gini", "topK", "approx_top")
"""Functions that fail for some values, or choose among values that are equally frequent."""
ENGINES = ("AggregatingMergeTree", "SummingMergeTree", "CoalescingMergeTree")


def _states(sql: str) -> pa.Array:
    return engine.run(sql).table().column(0).combine_chunks().cast(pa.binary())


@pytest.mark.parametrize("function", OWN)
def test_states_that_are_merged_here_have_the_bytes_of_clickhouse(function: str) -> None:
    rng, compared = random.Random(function), 0
    for kind, value in [*ARGUMENTS.items(), *ODD.items()]:
        quoted = kind.replace("'", "\\'")
        call = f"{function}State(CAST({value}, '{quoted}'))"
        groups = f"intDiv(number * 7919 % 300, {rng.choice((1, 3))})"
        try:
            (text,) = engine.run(f"SELECT toTypeName({call}) FROM numbers(1)").table().column(0).to_pylist()
            some = _states(f"SELECT CAST({call}, 'String') FROM numbers(300) GROUP BY {groups} ORDER BY min(number)")
        except Exception:  # not every function takes every type
            continue
        data_type = parse_type(text)
        if not isinstance(data_type, AggregateFunction):
            continue
        rule = state_rule(Column(0, "c", data_type))
        assert isinstance(rule, StateRule)
        if rule.merge is None:
            continue
        states = pa.concat_arrays([some, pa.array([state_program(data_type).empty] * 20, pa.binary())])
        states = states.take(pa.array(rng.sample(range(len(states)), len(states))))
        begins = np.array(sorted({0, *rng.sample(range(len(states)), len(states) // 3)}))
        expected = EMBEDDED.merge(data_type, states, begins)
        assert rule.merge(data_type, states, begins).equals(expected), text
        assert rule(states, begins).equals(expected), text
        compared += 1
    assert compared >= (1 if function == "count" else 5)


# --- sequences


class Both:
    """One table here, and one in ClickHouse."""

    def __init__(self, oracle: Any, rng: random.Random, engine_name: str, path: Path) -> None:
        self.oracle, self.rng = oracle, rng
        self.regroups = rng.random() < 0.7
        """Whether merges here may come in another order than in ClickHouse."""
        self.db, self.theirs = connect(str(path)), f"default.merged_{rng.randrange(1 << 30)}"
        self.calls = self._drawn(rng.choice((2, 4, 6)))
        names = [f"s{at}" for at in range(len(self.calls))]
        self.more = {"SummingMergeTree": {"a": "Int8"}, "CoalescingMergeTree": {"a": "Nullable(Int8)"}}.get(
            engine_name, {}
        )
        self.columns = {"p": "UInt8", "k": "UInt8", **self.more, **dict(zip(names, self.calls.values(), strict=True))}
        defined = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        create = f"CREATE TABLE {{}} ({defined}) ENGINE = {engine_name} PARTITION BY p ORDER BY k"
        chunk = rng.choice((200, 1 << 20)) if self.regroups else 1 << 20
        self.db.sql(f"{create.format('t')} SETTINGS merge_max_chunk_bytes = {chunk}")
        oracle.query(create.format(self.theirs))
        oracle.query(f"SYSTEM STOP MERGES {self.theirs}")

    def _drawn(self, count: int) -> dict[str, str]:
        calls, out = list(state_calls()), {}
        while len(out) < count:
            call = self.rng.choice(calls)
            if any(name in call for name in (*PARTICULAR, *(NOT_ASSOCIATIVE if self.regroups else ()))):
                continue
            try:
                text = str(self.oracle.query(f"SELECT toTypeName({call}) FROM numbers(1)", "TSVRaw")).strip()
                self.oracle.query(f"SELECT finalizeAggregation({call}) FROM numbers(60) GROUP BY intDiv(number, 7)")
            except Exception:
                continue
            kind = parse_type(text)
            if isinstance(kind, AggregateFunction) and state_program(kind) is not None:
                out[call] = text
        return out

    def insert(self) -> None:
        """Some rows of some keys, by SQL or as Arrow data."""
        rng, optimize = self.rng, self.rng.choice((0, 1))
        first, rows = rng.randrange(1000), rng.choice((1, 5, 60))
        more = "".join(f", CAST(any(number * 7 % 5 - 2) AS {kind})" for kind in self.more.values())
        select = (
            f"SELECT p, k{more}, {', '.join(self.calls)} FROM (SELECT number, number % 2 AS p, number * 7919 % 5 AS k, "
            f"number % 3 AS x FROM numbers({first}, {rows})) GROUP BY p, k, x ORDER BY p, k, x"
        )
        names = list(self.columns)
        self.oracle.query(f"INSERT INTO {self.theirs} SETTINGS optimize_on_insert = {optimize} {select}")
        if rng.random() < 0.5:
            self.db.sql(f"ALTER TABLE t MODIFY SETTING optimize_on_insert = {optimize}")
            self.db.sql(f"INSERT INTO t {select}")
            return
        texts = ", ".join(f"CAST({call}, 'String')" for call in self.calls)
        raw = engine.run(select.replace(", ".join(self.calls), texts)).table().rename_columns(names)
        plain = [c.cast(pa.binary()) if n.startswith("s") else c for n, c in zip(names, raw.columns, strict=True)]
        self.db.table("t").insert(pa.table(plain, names), settings={"optimize_on_insert": str(optimize)})

    def merge_some(self) -> None:
        """Merge some neighbours of a partition here, in this process."""
        if not self.regroups:
            return
        table = self.db.table("t")
        state = table.handle.refresh()
        name = self.rng.choice([*state.partitions] or [""])
        parts = state.partitions.get(name, ())
        if len(parts) < 2:
            return
        start = self.rng.randrange(len(parts) - 1)
        chosen = parts[start : start + self.rng.randrange(2, 4)]
        task = plan_merge(table.handle.directory, state.schema, chosen, mutations=state.mutations)
        merge_parts(table.handle, task, lambda work: table.env.run_merges(table.handle, [work])[0])

    def both(self, command: str) -> None:
        """Run a command on both tables, which ClickHouse merges for nothing else."""
        self.oracle.query(f"SYSTEM START MERGES {self.theirs}")
        more = " SETTINGS mutations_sync = 2" if command.startswith("ALTER") else ""
        self.oracle.query(command.format(self.theirs) + more)
        self.oracle.query(f"SYSTEM STOP MERGES {self.theirs}")
        self.db.sql(command.format("t"))

    def answers(self, final: str) -> None:
        """Compare what both show."""
        shown = []
        for name, kind in list(self.columns.items())[2:]:
            if not kind.startswith("Aggr"):
                shown.append(name)
            elif any(function in kind for function in ANY_ORDER):
                shown.append(f"arraySort(extractAll(toString(finalizeAggregation({name})), '[^,\\\\[\\\\]]+'))")
            else:
                shown.append(f"toString(finalizeAggregation({name}))")
        query = f"SELECT p, k, {', '.join(shown)} FROM {{}}{final} ORDER BY p, k"
        ours = self.db.sql(query.format("t")).text("TSV")
        theirs = str(self.oracle.query(query.format(self.theirs), "TSV"))
        equal = same(ours, theirs, 1e-4 if "Float32" in str(self.columns) else 1e-9)
        assert equal, f"{self.columns}\n{ours[:1000]}\n{theirs[:1000]}"

    def bytes_differ(self) -> list[str]:
        """Columns whose merged states have other bytes than those of ClickHouse."""
        out = []
        for name, kind in self.columns.items():
            query = f"SELECT hex({name}) FROM {{}} ORDER BY p, k"
            if self.db.sql(query.format("t")).text("TSV") != str(self.oracle.query(query.format(self.theirs), "TSV")):
                out.append(kind)
        return out

    def drop(self) -> None:
        self.oracle.query(f"DROP TABLE {self.theirs}")


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def same(ours: str, theirs: str, tolerance: float) -> bool:
    """Whether two texts are equal but for the last digits of floats."""
    if ours == theirs:
        return True
    if NUMBER.sub("", ours) != NUMBER.sub("", theirs):
        return False
    pairs = zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True)
    return all(
        one == other or math.isclose(float(one), float(other), rel_tol=tolerance, abs_tol=tolerance)
        for one, other in pairs
    )


SEQUENCES = int(os.environ.get("MERGELAKE_STATE_SEQUENCES", rounds(2, 50)))
FIRST = int(os.environ.get("MERGELAKE_STATE_FIRST", "0"))


@pytest.mark.parametrize("engine_name", ENGINES)
def test_random_states_become_one_as_in_clickhouse(engine_name: str, oracle: Any, tmp_path: Path) -> None:
    for number in range(FIRST, FIRST + SEQUENCES):
        rng = random.Random(f"{engine_name} {number}")
        both = Both(oracle, rng, engine_name, tmp_path / str(number))
        try:
            for _ in range(rng.choice((2, 4))):
                both.insert()
            both.answers(" FINAL")
            for _ in range(2):
                both.merge_some()
                both.insert()
            both.answers(" FINAL")
            if rng.random() < 0.3:
                both.both(f"ALTER TABLE {{}} DELETE WHERE k = {rng.randrange(5)}")
                both.answers(" FINAL")
            both.both("OPTIMIZE TABLE {} FINAL")
            both.answers("")
            both.answers(" FINAL")
            differ = [] if both.regroups else both.bytes_differ()
            assert not [kind for kind in differ if re.split(r"\W", kind)[1] in OWN], differ
        finally:
            both.drop()
