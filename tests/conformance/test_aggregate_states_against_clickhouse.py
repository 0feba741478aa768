"""States of aggregate functions: cut apart, carried and written back so that ClickHouse sees no difference."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import AggregateFunction, parse_type
from mergelake.format.kernels.kernels_states import DEPTH, walk_states
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.state_programs import state_program
from mergelake.format.serializations.values import encode_values
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.clickhouse_tables import CLASSIC, attach, create, part_paths
from tests.helpers.parts import part_target, write_block
from tests.helpers.random_states import state_calls

FUNCTIONS = [
    "count", "sum", "avg", "min", "max", "any", "anyLast", "uniq", "uniqExact", "groupArray", "groupArray(3)",
    "groupUniqArray", "varPop", "stddevSamp", "argMin", "argMax", "sumIf", "minIf", "uniqIf", "first_value", "quantile",
    "quantiles(0.1, 0.9)", "quantileTDigest", "quantileExact", "quantileTiming", "uniqCombined(12)", "uniqHLL12",
    "topK(2)", "groupBitmap", "sumKahan",
]  # fmt: skip
ARGUMENTS = {
    "UInt8": "number % 100",
    "Int64": "-toInt64(number)",
    "Int256": "-toInt64(number)",
    "Float32": "number / 7",
    "Float64": "number / 3",
    "Bool": "number % 2",
    "Decimal(9, 2)": "number % 1000",
    "Decimal(60, 3)": "number",
    "Date": "number",
    "Date32": "number",
    "DateTime64(3)": "number",
    "Enum8('a' = 1, 'b' = 2)": "number % 2 + 1",
    "UUID": "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')",
    "IPv4": "number",
    "IPv6": "toIPv6(number)",
    "String": "repeat('x', number % 200)",
    "FixedString(5)": "toString(number % 100)",
    "LowCardinality(String)": "toString(number % 50)",
    "Nullable(Int32)": "if(number % 3 = 0, NULL, number)",
    "Nullable(String)": "if(number % 3 = 0, NULL, toString(number))",
    "Nullable(UUID)": "if(number % 2 = 0, NULL, toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0'))",
}
HUGE = "min_bytes_for_wide_part=100000000000, min_rows_for_wide_part=100000000000"
PROFILES = [CLASSIC, "min_bytes_for_full_part_storage=0", f"min_bytes_for_full_part_storage=0, {HUGE}"]


def _call(function: str, kind: str, value: str) -> str:
    name, bracket, parameters = function.partition("(")
    value = "CAST({}, '{}')".format(value, kind.replace("'", "\\'"))
    if name.endswith("If"):
        condition = "toUInt8(number % 7 > 2)" if name == "sumIf" else "if(number % 5 = 0, NULL, number % 7 > 2)"
        return f"{name[:-2]}StateIf({value}, {condition})"
    more = ", toUInt16(number % 1000)" if name.startswith("arg") else ""
    return f"{name}State{bracket}{parameters}({value}{more})"


def _states(oracle: Any) -> dict[str, str]:
    """ClickHouse calls that give states which we can cut, by the type of the state."""
    out = {}
    for kind, value in ARGUMENTS.items():
        calls = [_call(function, kind, value) for function in FUNCTIONS]
        for call in calls:
            try:
                text = str(oracle.query(f"SELECT toTypeName({call}) FROM numbers(1)", "TSVRaw")).strip()
            except Exception:  # not every function takes every type
                continue
            data_type = parse_type(text)
            if isinstance(data_type, AggregateFunction) and state_program(data_type) is not None:
                out[text] = call
    return out


@pytest.mark.parametrize("profile", PROFILES)
def test_states_of_every_known_function_travel_both_ways(oracle: Any, profile: str) -> None:
    # M-049
    calls = _states(oracle)
    assert len(calls) > 250
    types = {"k": parse_type("UInt32"), **{f"s{i}": parse_type(text) for i, text in enumerate(calls)}}
    create(oracle, "theirs", types, order_by="k", settings=f"{profile}, index_granularity=60")
    picked = ", ".join(f"{call} AS s{i}" for i, call in enumerate(calls.values()))
    # Keys from 300 on have no rows: their states are empty.
    oracle.query(f"INSERT INTO theirs SELECT toUInt32(number % 300) AS k, {picked} FROM numbers(3000) GROUP BY k")
    oracle.query("INSERT INTO theirs (k) SELECT number + 300 FROM numbers(50)")
    oracle.query("OPTIMIZE TABLE theirs FINAL")
    (path,) = part_paths(oracle, "theirs").values()
    store = DirectoryStore(str(path.parent))
    opened = open_directory(store, path.name)
    reader = PartReader(store, opened.directory, opened.manifest, opened.columns)
    block = pa.Table.from_batches(list(reader.read(list(types), batch_rows=60))).combine_chunks()
    assert block.num_rows == 350
    for name, kind in types.items():
        want = oracle.query(f"SELECT {name} FROM theirs ORDER BY k", "RowBinary").bytes()
        array = block.column(name).combine_chunks()
        # ClickHouse reads sets into hash tables and tells them in another order than they are stored in.
        assert any(f in str(kind) for f in ("niq", "topK")) or encode_values([array], [kind]) == want, kind
        if name != "k":
            assert array.slice(300).equals(default_array(kind, 50)), kind
    columns = tuple(Column(i, name, kind) for i, (name, kind) in enumerate(types.items()))
    schema = TableSchema(columns, order_by=("k",), primary_key=("k",))
    ours = MemoryStore()
    manifest = write_block(part_target(ours, schema, settings={"index_granularity": 70}), block)
    create(oracle, "ours", types, order_by="k")
    attach(oracle, "ours", "all_1_1_0", ours, "t", manifest)
    checked = str(oracle.query("CHECK TABLE ours SETTINGS check_query_single_value_result = 0", "TSV"))
    assert checked.split("\t")[1] == "1", checked
    names = ", ".join(f"{name}, finalizeAggregation({name})" for name in list(types)[1:])
    rows = [oracle.query(f"SELECT {names} FROM {name} ORDER BY k", "RowBinary").bytes() for name in ("ours", "theirs")]
    assert rows[0] == rows[1]


def test_every_state_ends_where_clickhouse_ends_it(oracle: Any) -> None:
    """Functions by arguments, drawn from some thousands: states of groups, of many rows and of none, cut one by one."""
    # M-049
    cases = int(os.environ.get("MERGELAKE_STATE_CASES", "250"))
    calls = np.array(list(state_calls()), object)
    cut, none = 0, []
    for call in np.random.default_rng(cases).permutation(calls)[: 2 * cases].tolist():
        try:
            text = str(oracle.query(f"SELECT toTypeName({call}) FROM numbers(1)", "TSVRaw")).strip()
            groups = f"SELECT hex({call}) FROM (SELECT number, number % 20 AS k FROM numbers(300)) GROUP BY k"
            whole, nothing = f"SELECT hex({call}) FROM numbers(6000)", f"SELECT hex({call}) FROM numbers(0)"
            told = str(oracle.query(f"{groups} UNION ALL {whole} UNION ALL {nothing}", "TSVRaw"))
        except Exception:  # not every function takes every argument
            continue
        program = state_program(parse_type(text))
        if program is None:
            none.append(text)
            continue
        states = [bytes.fromhex(line) for line in told.splitlines()]
        edges = np.zeros(len(states) + 1, np.int32)
        body = np.frombuffer(b"".join(states), np.uint8)
        steps = np.array(program.steps, np.int64).reshape(-1, 3)
        end = walk_states(body, steps, len(states), edges, np.zeros(DEPTH, np.int64))
        assert end == len(body), text
        assert np.diff(edges).tolist() == [len(state) for state in states], text
        assert program.empty in states, text
        cut += 1
    assert cut > cases // 3
    assert len(none) < cut // 10, none


def test_states_go_through_create_insert_merge_and_select() -> None:
    db = mergelake.connect("memory://states")
    db.sql(
        "CREATE TABLE t (k UInt32, c AggregateFunction(count), s AggregateFunction(sum, Nullable(Int64)),"
        " u AggregateFunction(uniq, String), a Array(AggregateFunction(groupArray, String)))"
        " ENGINE = MergeTree ORDER BY k"
    )
    for first in (0, 500):
        db.sql(
            "INSERT INTO t SELECT toUInt32(number % 10) AS k, countState(),"
            " sumState(if(number % 3 = 0, NULL, toInt64(number))), uniqState(toString(number)),"
            f" [groupArrayState(toString(number))] FROM numbers({first}, 500) GROUP BY k"
        )
    asked = "SELECT countMerge(c), sumMerge(s), uniqMerge(u), sum(length(finalizeAggregation(a[1]))) FROM t"
    for _ in range(2):
        assert db.sql(asked).rows() == [(1000, 332667, 1000, 1000)]
        assert db.sql("SELECT c FROM t LIMIT 1").arrow().schema.types == [pa.binary()]
        assert db.sql("SELECT countMerge(c) FROM t WHERE k = 3").rows() == [(100,)]
        db.table("t").optimize(final=True)
    with pytest.raises(MergelakeError, match="not one state"):
        db.table("t").append({"k": pa.array([1], pa.uint32()), "u": pa.array([b"\0\x05\0"])})


def test_states_that_cannot_be_cut_are_refused_by_name_and_leave_the_rest_readable(oracle: Any) -> None:
    kind = "AggregateFunction(quantileDD(0.1), UInt64)"
    with pytest.raises(MergelakeError, match="quantileDD"):
        mergelake.connect("memory://opaque").sql(f"CREATE TABLE t (k UInt8, s {kind}) ENGINE = MergeTree ORDER BY k")
    types = {"k": parse_type("UInt8"), "s": parse_type(kind), "v": parse_type("String")}
    for profile in PROFILES:
        create(oracle, "theirs", types, order_by="k", settings=profile)
        select = "SELECT number % 5 AS k, quantileDDState(0.1)(number), 'v' FROM numbers(99) GROUP BY k"
        oracle.query(f"INSERT INTO theirs {select}")
        (path,) = part_paths(oracle, "theirs").values()
        store = DirectoryStore(str(path.parent))
        opened = open_directory(store, path.name)
        reader = PartReader(store, opened.directory, opened.manifest, opened.columns)
        (batch,) = reader.read(["k", "v"])
        assert batch.column("v").to_pylist() == [b"v"] * 5
        with pytest.raises(MergelakeError, match="quantileDD"):
            list(reader.read(["s"]))


def test_broken_states_are_found_before_memory_is_taken() -> None:
    from tests.helpers.columns import read, reader, written

    kind = parse_type("AggregateFunction(groupArray, UInt64)")
    with pytest.raises(MergelakeError, match="not one state"):
        written("s", kind, pa.array([b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]), [1])
    files = written("s", parse_type("UInt8"), pa.array(np.full(64, 255, np.uint8)), [64])
    with pytest.raises(MergelakeError, match="leaves the stream"):
        read(reader("s", kind, files), files)
