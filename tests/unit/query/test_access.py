"""What a statement may reach: every function, table function, engine and setting of this ClickHouse is on one side."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.engines.rules.modes import ENGINES
from mergelake.query.embedded import engine
from mergelake.query.statement.access import (
    FIXED_SETTINGS,
    TABLE_FUNCTIONS,
    TEXT_SETTINGS,
    check_access,
    check_expression,
    check_settings,
    pure_functions,
    words,
)
from mergelake.query.statement.select_parser import parse_select

pytestmark = pytest.mark.chdb
REFUSED_FUNCTIONS = re.compile(
    "file|filesystem.*|ai(classify|embed|extract|filter|generate|redact|similarity|translate)|dict(get|has|isin).*"
    "|joinget.*|hascolumnintable|evalmlmethod|naivebayesclassifier.*|region.*|assigncentroid|showcertificate|getmacro"
    "|getserverport|getserversetting|getclienthttpheader|currentrequesturl|zookeepersessionuptime|generateserialid"
    "|transaction.*|addressto.*|logtrace|tid|demangle|flamegraph|globalvariable|__.*"
)
REFUSED_TABLE_FUNCTIONS = re.compile(
    "arrowstream|azureblobstorage.*|bigquery|cluster.*|cosn|deltalake.*|dictionary|eval|executable|file.*|gcs|hdfs.*"
    "|hudi.*|iceberg.*|input|jdbc|merge|mergetree.*|mongodb|mysql|odbc|oss|paimon.*|postgresql|prometheusquery.*"
    "|python|redis|remote.*|s3.*|sqlite|timeseries.*|url.*|ytsaurus"
)
REFUSED_TEXT_SETTINGS = words(
    "additional_result_filter additional_table_filters ai_function_embedding_default_credentials",
    "ai_function_text_default_credentials chdb_client_name cluster_for_parallel_replicas compression database",
    "default_format default_view_definer distributed_cache_client_id distributed_cache_file_cache_name",
    "distributed_plan_force_exchange_kind exclude_materialize_skip_indexes_on_insert filesystem_cache_name",
    "filter format format_avro_schema_registry_url format_schema format_schema_message_name format_schema_source",
    "format_template_resultset format_template_resultset_format format_template_row",
    "format_template_row_format format_template_rows_between_delimiter framing_output_format",
    "function_implementation http_response_headers iceberg_metadata_compression_method",
    "implicit_table_at_top_level input_format input_format_mysql_dump_table_name",
    "input_format_record_errors_file_path local_filesystem_read_method metrics_perf_events_list",
    "network_compression_method order output_format output_format_avro_confluent_subject",
    "output_format_image_terminal_mode output_format_schema parallel_replicas_custom_key polyglot_dialect",
    "promql_database promql_table remote_filesystem_read_method rename_files_after_processing s3_base",
    "s3_upload_checksum_algorithm s3queue_default_zookeeper_path select send_logs_source_regexp sort",
    "stream_like_engine_insert_queue trace_profile_events_list url_base workload",
    "format_hive_text_rows_delimiter",
)


def names(sql: str) -> list[str]:
    return engine.run(sql).table().column(0).to_pylist()


def refusal(run: Callable[[], object]) -> MergelakeError | None:
    try:
        run()
    except MergelakeError as failure:
        return failure
    return None


def denied(text: str) -> bool:
    failure = refusal(lambda: check_access(parse_select(text)))
    assert failure is None or (failure.code, failure.name) == (497, "ACCESS_DENIED")
    return failure is not None


def test_every_function_is_classified() -> None:
    for name in names("SELECT name FROM system.functions"):
        refused = REFUSED_FUNCTIONS.fullmatch(name.lower()) is not None
        assert refused != (name.lower() in pure_functions()), name
        assert denied(f"SELECT {name}('x')") == refused, name


def test_every_table_function_is_classified() -> None:
    for name in names("SELECT name FROM system.table_functions"):
        refused = REFUSED_TABLE_FUNCTIONS.fullmatch(name.lower()) is not None
        assert refused != (name.lower() in TABLE_FUNCTIONS), name
        assert denied(f"SELECT * FROM {name}('x')") == refused, name


def test_a_function_in_no_list_is_refused_and_a_name_that_is_none_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.query.statement.access.pure_functions", lambda: pure_functions() - {"upper"})
    assert denied("SELECT upper('x')")
    assert not denied("SELECT sumIf(a, 1), CAST(a AS Decimal(10, 2)), b IN (1) FROM (VALUES (1, 2)) AS t(a, b)")


def test_every_setting_of_free_text_is_classified() -> None:
    for name in names("SELECT name FROM system.settings WHERE type IN ('String', 'Map', 'URI')"):
        refused = name in REFUSED_TEXT_SETTINGS
        assert refused != (name in TEXT_SETTINGS), name
        assert denied(f"SELECT 1 SETTINGS max_threads = 1, {name} = 'x'") == refused, name
    check_settings(["max_threads", "join_algorithm", "no_such_setting"])


def test_every_engine_but_ours_is_refused() -> None:
    db = ml.connect("memory://")
    taken = set()
    for name in names("SELECT name FROM system.table_engines WHERE name != 'Merge'"):  # which reads our tables only
        sql = f"CREATE TABLE `t{name}` (a Int64, s Int8, v UInt8) ENGINE = {name} ORDER BY a"
        failure = refusal(lambda sql=sql: db.sql(sql))  # type: ignore[misc]
        if failure is None:
            taken.add(name)
        else:
            lacks_arguments = failure.code == 42 and name.removeprefix("Replicated") in ENGINES
            assert failure.code == 48 or lacks_arguments, str(failure)
    assert "MergeTree" in taken
    assert all(name.endswith("MergeTree") for name in taken)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    return tmp_path


EXTERNAL = [
    "SELECT * FROM '{f}'",
    "SELECT * FROM t, '{f}'",
    "SELECT * FROM (('{f}'))",
    "SELECT * FROM t JOIN '{f}' AS z ON 1",
    "SELECT * APPLY(file) FROM t",
    "SELECT * APPLY file FROM t",
    "SELECT `file`('{f}')",
    "SELECT \"file\"('{f}')",
    "SELECT “file”('{f}')",
    "SELECT file/* x */\u200b('{f}')",
    "SELECT arrayMap(file, ['{f}'])",
    "WITH (x -> file(x)) AS f SELECT f('{f}')",
    "SELECT ‘'’, file('{f}'), ‘'’",
    "SELECT 1 /* /* */ ' */ , file('{f}') -- '",
    "SELECT 1 // '\n , file('{f}') -- '",
    "SELECT $a$'$a$, file('{f}'), $a$'$a$",
    "SELECT 1 INTO OUTFILE '{f}.out'",
    "SELECT a IN (SELECT length(file('{f}'))) FROM t",
    "SELECT * FROM view(SELECT file('{f}'))",
    "SELECT * FROM url('http://127.0.0.1:1/')",
    "SELECT * FROM Python(object)",
    "SELECT dictGet('d', 'a', 1)",
    "SELECT a FROM t SETTINGS additional_result_filter = 'length(file(''{f}'')) = 8'",
    "SELECT formatRow('Template', 1) SETTINGS format_template_row = '{f}'",
    "EXPLAIN SELECT file('{f}')",
    "EXPLAIN TABLE OVERRIDE mysql('127.0.0.1:1', 'd', 't', 'u', 'p') COLUMNS (a Int8)",
    "DESCRIBE TABLE (SELECT file('{f}'))",
    "INSERT INTO t SELECT length(file('{f}')), 'x'",
    "INSERT INTO t VALUES (length(file('{f}')), 'x')",
    "INSERT INTO t VALUES ((SELECT a FROM '{f}'), 'x')",
    "CREATE TABLE u ENGINE = MergeTree ORDER BY a AS SELECT length(file('{f}')) AS a",
    "SET format_schema = '{f}'",
]


@pytest.mark.parametrize("text", EXTERNAL)
def test_a_statement_reaches_no_file_whatever_it_is_written_like(text: str, folder: Path) -> None:
    db = ml.connect("memory://")
    db.sql("CREATE TABLE t (a Int64, file String) ENGINE = MergeTree ORDER BY a")
    with pytest.raises(MergelakeError) as caught:
        db.sql(text.replace("{f}", str(folder / "data.csv")))
    assert caught.value.code == 497 or text.startswith("EXPLAIN TABLE"), str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["data.csv"]


@pytest.mark.parametrize("text", ["SELECT * FROM `{f}`", "SELECT 1 IN `{f}`"])
def test_a_quoted_path_is_a_table_that_does_not_exist(text: str, folder: Path) -> None:
    with pytest.raises(MergelakeError) as caught:
        ml.connect("memory://").sql(text.replace("{f}", str(folder / "data.csv")))
    assert caught.value.code == 60


def test_columns_may_have_the_names_of_functions() -> None:
    db = ml.connect("memory://")
    db.sql("CREATE TABLE t (a Int64, file String, names Array(String)) ENGINE = MergeTree ORDER BY a")
    db.sql("INSERT INTO t VALUES (1, 'x', ['q'])")
    found = db.sql("SELECT file, argMax(file, a), arrayMap(x -> x, names), t.file FROM t GROUP BY file, names")
    assert found.rows() == [("x", "x", ["q"], "x")]


def test_a_connection_that_asks_for_it_reads_files(folder: Path) -> None:
    db = ml.connect("memory://", allow_external_access=True)
    path = folder / "data.csv"
    assert db.sql(f"SELECT sum(a + b) FROM file('{path}')").scalar() == 3
    assert db.sql(f"SELECT file('{path}')").scalar() == "a,b\n1,2\n"
    assert db.sql(f"SELECT b FROM '{path}'").rows() == [(2,)]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("setting", sorted(FIXED_SETTINGS))
def test_no_statement_changes_a_fixed_setting(setting: str, external: bool) -> None:
    db = ml.connect("memory://", allow_external_access=external)
    for run in (
        lambda: db.sql(f"SELECT 1 SETTINGS max_threads = 1, {setting} = 1"),
        lambda: db.sql(f"SELECT 1 SETTINGS {setting}"),
        lambda: db.sql(f"SELECT * FROM (SELECT 1 SETTINGS {setting} = 1)"),
        lambda: db.sql(f"SET {setting} = 1"),
        lambda: db.sql("SELECT 1", settings={setting: 1}),
        lambda: ml.connect("memory://", settings={setting: "1"}),
    ):
        with pytest.raises(MergelakeError) as caught:
            run()
        assert caught.value.code == 164


def test_an_expression_has_no_subquery() -> None:
    check_expression("upper(a) || toString(b)")
    with pytest.raises(MergelakeError):
        check_expression("(SELECT 1)")
