"""Every setting that ClickHouse has is one of ours: passed on, honoured, accepted or refused, and none by accident."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.accepted_settings import ACCEPTED, REFUSED
from mergelake.core.model.settings import TABLE_SETTINGS, is_table_setting
from mergelake.query.statement.access import FIXED_SETTINGS
from mergelake.query.statement.settings import RULES, Kind, kind_of, rule_of

OUR_OWN = {
    "checkpoint_interval", "gc_grace_seconds", "history_retention_seconds", "immutable_partitions",
    "max_bytes_to_merge_volatile",
    "max_bytes_to_share_object", "max_insert_block_bytes", "max_insert_block_size", "max_partitions_per_insert_block",
    "max_shared_object_bytes", "merge_max_chunk_bytes", "merge_selector_direct_base", "merge_slice_bytes",
    "merge_upload_policy", "min_age_to_apply_mutations_seconds", "min_bytes_for_zstd", "min_bytes_to_split_merge",
    "mutations_to_apply_early", "optimize_on_insert", "part_profile", "parts_to_upload_volatile",
    "retention_max_bytes", "retention_max_ratio", "volatile_lease_seconds", "volatile_peer_reads",
    "volatile_upload_age_seconds", "write_amplification_target",
}  # fmt: skip
"""Table settings that are none of ClickHouse's MergeTree settings."""


def rows(oracle: Any, query: str) -> list[list[str]]:
    return [line.split("\t") for line in str(oracle.query(query, "TSVRaw")).split("\n") if line]


def code(failure: BaseException) -> int:
    found = re.search(r"Code: (\d+)", str(failure))
    assert found is not None
    return int(found.group(1))


def test_every_setting_of_a_statement_has_a_rule_and_every_rule_a_setting(oracle: Any) -> None:
    names = [name for (name,) in rows(oracle, "SELECT name FROM system.settings")]
    assert len(names) > 1500
    assert [name for name in names if kind_of(name) is None] == []
    assert set(RULES) - {rule_of(name) for name in names} == {"param_*"}


def test_every_setting_of_a_table_is_known_and_none_that_clickhouse_lacks(oracle: Any) -> None:
    names = {name for (name,) in rows(oracle, "SELECT name FROM system.merge_tree_settings")}
    assert len(names) > 300
    assert {name for name in names if not is_table_setting(name)} == set()
    assert {*TABLE_SETTINGS, *ACCEPTED, *REFUSED} - names == OUR_OWN
    assert not (set(TABLE_SETTINGS) & set(ACCEPTED)) | (set(REFUSED) & {*TABLE_SETTINGS, *ACCEPTED})


def test_every_setting_of_a_statement_may_be_set_to_what_it_is(oracle: Any) -> None:
    """SET of the value in force is never refused; of a refused one any other is, by its name."""
    db = connect("memory://every-setting", allow_external_access=True)
    found = db.sql("SELECT name, value, type FROM system.settings").rows()
    special = re.compile(r"^auto|Seconds$")
    for name, value, kind in found:
        if name.startswith("output_format_arrow_") or name in FIXED_SETTINGS or special.search(value):
            continue  # answers travel as Arrow: nothing of it may be touched; `auto(2)` is no value
        db.sql(f"SET {name} = {_literal(value, kind)}")
    assert db.sql("SELECT 1").scalar() == 1
    fresh = connect("memory://every-setting", allow_external_access=True)
    for name, value, _ in found:
        if kind_of(name) is Kind.REFUSED:
            other = {"0": "1", "1": "0"}.get(value, "'other'")
            with pytest.raises(MergelakeError, match=name) as refused:
                fresh.sql(f"SET {name} = {other}")
            assert refused.value.name == ("READONLY" if name in FIXED_SETTINGS else "NOT_IMPLEMENTED")


def _literal(value: str, kind: str) -> str:
    return value if re.fullmatch(r"-?\d+(\.\d+)?", value) and kind != "String" else f"'{value}'"


@pytest.mark.parametrize("name", ["max_thread", "nosuch", "s3_nosuch", "index_granularity", "max_Threads", "a b"])
def test_an_unknown_setting_is_refused_everywhere_as_clickhouse_does(oracle: Any, name: str) -> None:
    db = connect("memory://unknown-setting")
    db.sql("CREATE TABLE IF NOT EXISTS t (k UInt8) ENGINE = MergeTree ORDER BY k")
    for statement in (
        f"SET `{name}` = 1",
        f"SELECT 1 SETTINGS `{name}` = 1",
        f"INSERT INTO t SETTINGS `{name}` = 1 VALUES (1)",
        f"OPTIMIZE TABLE t FINAL SETTINGS `{name}` = 1",
    ):
        with pytest.raises(MergelakeError) as ours:
            db.sql(statement)
        assert ours.value.name == "UNKNOWN_SETTING", statement
    with pytest.raises(RuntimeError) as theirs:
        oracle.query(f"SET `{name}` = 1")
    assert code(theirs.value) == 115
    assert db.sql("SELECT count() FROM t").scalar() == 0


VALUES = [
    "'10Mi'", "'100G'", "'1k'", "'1ki'", "'1K'", "'1T'", "'1P'", "'10 Mi'", "'1.5G'", "'10MB'", "0x10", "0b11", "-1",
    "'-1'", "1e3", "1.5", "'auto'", "true", "'true'", "' 5'", "''", "'1m'", "18446744073709551615",
    "18446744073709551616", "'+5'", "0", "1", "2", "'inf'", "DEFAULT",
]  # fmt: skip
NAMES = [
    "min_bytes_for_wide_part", "vertical_merge_algorithm_min_rows_to_activate", "merge_max_block_size",
    "enable_block_number_column", "allow_nullable_key", "write_final_mark", "adaptive_write_buffer_initial_size",
    "max_parts_in_total",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_values_of_table_settings_are_judged_as_clickhouse_judges_them(oracle: Any, name: str) -> None:
    db = connect("memory://setting-values")
    differ = []
    for value in VALUES:
        text = f"CREATE TABLE setting_value (k UInt8) ENGINE = MergeTree ORDER BY k SETTINGS {name} = {value}"
        codes = []
        for run in (db.sql, oracle.query):
            run("DROP TABLE IF EXISTS setting_value")
            try:
                run(text)
                codes.append(0)
            except (MergelakeError, RuntimeError) as failure:
                codes.append(code(failure))
        if codes[0] != codes[1]:
            differ.append((value, *codes))
    assert differ == []


@pytest.mark.parametrize("seed", range(3))
def test_random_settings_of_other_parts_of_clickhouse_change_no_answer(oracle: Any, seed: int) -> None:
    """What is called speed may be anything: the answer stays, pushed down or not."""
    pick = random.Random(seed)
    db = connect(f"memory://speed-{seed}")
    db.sql("CREATE TABLE t (k UInt32, v String) ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 16")
    db.sql("INSERT INTO t SELECT number, toString(number % 7) FROM numbers(500)")
    query = "SELECT v, count(), sum(k) FROM t WHERE k > 100 GROUP BY v ORDER BY v"
    expected = db.sql(query).rows()
    flags = [
        (name, value)
        for name, value in rows(oracle, "SELECT name, value FROM system.settings WHERE type = 'Bool' ORDER BY name")
        if kind_of(name) is Kind.SPEED
        and not name.startswith(("make_distributed", "enable_parallel", "allow_experimental"))
    ]
    for _ in range(6):
        chosen = pick.sample(flags, 8)
        text = ", ".join(f"{name} = {1 - int(value)}" for name, value in chosen)
        assert db.sql(f"{query} SETTINGS {text}").rows() == expected, text
