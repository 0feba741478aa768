"""The handling of every setting in ClickHouse's `system.settings`: one table, and queries of it.

=========  =====================================================================================================
SPEED      affects speed, logging, or features that do not exist here (replicas, S3 queues): passed to ClickHouse
SHAPE      affects the form or size of results: passed to ClickHouse; the statement is not split for Spark
MEANING    affects the meaning of expressions: passed to ClickHouse; scans evaluate no conditions
READING    affects how tables are read: passed to ClickHouse, which must read the parts itself; else refused
HONOURED   implemented here, and not passed to ClickHouse
REFUSED    would affect reading or writing tables, but is not implemented: only the value of this behaviour is accepted
=========  =====================================================================================================

A rule is a name or a prefix (`max_*`); the longest matching one decides. A name without a rule is refused: it belongs
to a ClickHouse that is newer than this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from mergelake.core.base.errors import error
from mergelake.core.base.text import unescape


class Kind(Enum):
    """How a setting is handled; see the module."""

    SPEED = "speed"
    SHAPE = "shape"
    MEANING = "meaning"
    READING = "reading"
    HONOURED = "honoured"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The only values of a refused setting that are taken, and the hint of the error for any other."""

    taken: tuple[str, ...]
    hint: str
    default_taken: bool = True
    """Whether `DEFAULT` is taken, which ClickHouse would go by in a statement."""

    def takes(self, value: str) -> bool:
        """Whether the value, as text, is taken."""
        return self.default_taken if value.upper() == "DEFAULT" else _is_taken(value, self.taken)


_SPEED = """
adaptive_* add_http_cors_header aggregation_* ai_function_* allow_aggregate_partitions_independently allow_archive_*
allow_asynchronous_* allow_calculating_* allow_changing_* allow_correlated_* allow_create_index_* allow_creating_*
allow_database_* allow_delta_* allow_deprecated_database_* allow_deprecated_snowflake_* allow_distinct_*
allow_distributed_* allow_drop_* allow_execute_* allow_experimental_* allow_fuzz_* allow_general_* allow_geo_*
allow_get_* allow_hyperscan allow_iceberg_* allow_insert_* allow_join_* allow_kafka_* allow_key_* allow_limit_*
allow_materialized_* allow_metadata_* allow_minmax_* allow_named_* allow_non_* allow_nondeterministic_*
allow_prefetched_* allow_preliminary_* allow_push_* allow_rank_* allow_reorder_* allow_replace_*
allow_settings_after_* allow_simdjson allow_special_serialization_* allow_statistic* allow_statistics*
allow_suspicious_* allow_unrestricted_* allow_url_* allow_window_* alter_* analyze_* annoy_*
apply_patch_parts_join_* apply_settings_* archive_*
arrow_flight_* async_* automatic_* azure_* background_* backup_* cache_* calculate_* cancel_* cascades_* chdb_*
check_named_* check_referential_* check_table_* checksum_* cloud_* cluster_* collect_* compatibility_* compile_*
compression connect_* connection_* connections_* convert_* correlated_* create_index_* create_replicated_*
create_table_empty_* create_token_* cross_* database_* dead_* deduplicate_blocks_* default_database_*
default_materialized_* default_max_* default_normal_* default_temporary_* default_view_* defer_* delta_*
describe_extend_* dictionary_* distributed_* drain_* dynamic_disk_* enable_adaptive_* enable_alp_* enable_automatic_*
enable_blob_* enable_cascades_* enable_deflate_* enable_early_* enable_filesystem_* enable_full_* enable_function_*
enable_funnel_* enable_group_* enable_hash_* enable_hdfs_* enable_http_* enable_identifier_* enable_job_*
enable_join_* enable_json_lazy_* enable_lazy_* enable_materialized_* enable_memory_*
enable_multiple_* enable_optimize_* enable_packed_* enable_parallel_* enable_parsing_* enable_producing_*
enable_qbit_* enable_quantized_* enable_reads_* enable_s3_* enable_sharding_* enable_shared_* enable_sharing_*
enable_software_* enable_sz3_* enable_time_* enable_unique_* enable_url_* enable_vector_* enable_vertical_*
enable_writes_* enable_zstd_* enable_zxc_* engine_* errors_* exact_* exclude_* execute_* explain_* external_storage_*
fallback_* file_like_* filesystem_* finalize_* force_aggregat* force_creating_* force_distinct_* force_grouping_*
force_optimize_* force_read_* force_remove_* force_window_* force_write_* fsync_* geotoh3_* glob_* grace_*
group_by_top_* group_by_two_* handle_* handshake_* hdfs_* hedged_* hnsw_* hsts_* http_* iceberg_* idle_* ignore_*
insert_distributed_* insert_keeper_* insert_quorum* insert_select_* interactive_* into_outfile_* jemalloc_*
join_algorithm join_on_* join_output_* join_runtime_* join_to_* joined_block_* kafka_* keeper_* lightweight_*
live_view_* load_* local_* lock_* log_* low_* make_* materialize_* materialized_* max_alter_* max_backup_*
max_block_size max_bytes_before_* max_bytes_for_* max_bytes_ratio_* max_compress_* max_concurrent_* max_consume_*
max_distributed_* max_download_* max_dynamic_* max_entries_* max_fetch_* max_final_* max_http_* max_insert_*
max_joined_* max_limit_* max_live_* max_local_* max_network_* max_number_* max_parallel_* max_parsing_*
max_partition_size_* max_parts_* max_pipeline_* max_projection_* max_read_* max_remote_* max_replica_*
max_replicated_* max_reverse_* max_rows_for_* max_rows_in_set_to_* max_sessions_* max_size_* max_skip_* max_streams_*
max_table_size_* max_threads max_threads_* max_untracked_* memory_* merge_* metrics_* min_* mongodb_* move_*
multiple_joins_rewriter_* mutations_* mysql_* network_* number_of_* odbc_* opentelemetry_* optimize_* os_*
page_cache_* paimon_* pandas_* parallel_* parallelize_* partial_merge_* per_part_* periodic_* poll_* postgresql_*
predicate_* prefer_external_* prefer_global_* prefer_localhost_* prefer_warmed_* preferred_* prefetch_* print_*
priority push_* query_* queue_* rabbitmq_* read_backoff_* read_from_* read_in_* read_priority read_through_* reader_*
receive_* recursive_* regexp_dict_* reject_* remerge_* remote_* rename_* replace_* replication_* reserve_* restore_*
resumable_* rewrite_in_* rows_* s3_* s3queue_* schema_inference_* secondary_* select_sequential_* send_* serialize_*
session_query_* shared_* short_* show_data_* show_processlist_* show_remote_* shrink_* skip_* sleep_* snappy_* split_*
statistics_* stop_* storage_* stream_* system_* table_* tcp_* temporary_* text_index_* throw_if_deduplication_*
throw_if_no_* throw_on_error_* throw_on_hive_* throw_on_unsupported_* time_series_* totals_auto_* trace_* traverse_*
unique_* unknown_* update_* url_* use_async_* use_cache_* use_client_* use_compact_* use_concurrency_* use_constant_*
use_hash_* use_hedged_* use_hive_* use_iceberg_* use_index_* use_indexes_* use_join_* use_lightweight_* use_local_*
use_mysql_* use_page_* use_paimon_* use_parquet_* use_partition_* use_primary_* use_projection_* use_query_*
use_reader_* use_roaring_* use_skip_* use_statistics* use_streaming_* use_strict_* use_structure_* use_text_*
use_top_* use_uncompressed_* use_with_* validate_experimental_* validate_group_* validate_mutation_* validate_polygons
vector_* wait_* webassembly_* window_* workload workload_* write_* zstd_*
"""
_SHAPE = """
additional_result_filter aggregate_functions_null_* any_join_* count_distinct_* cross_to_* date_time_64_*
date_time_output_* default_format discard_* distinct_overflow_* empty_result_* enable_add_* enable_extended_*
enable_global_* enable_named_* enable_order_* enable_positional_* enable_scalar_* enable_scopes_* enable_unaligned_*
except_* external_table_* extremes format_* framing_* group_by_overflow_* group_by_use_* inject_* intersect_*
interval_* join_any_* join_overflow_* join_use_* joined_subquery_* limit max_analyze_* max_ast_* max_autoincrement_*
max_bytes_in_* max_bytes_to_* max_columns_* max_estimated_* max_execution_* max_expanded_* max_memory_* max_os_*
max_parser_* max_recursive_* max_result_* max_rows_in_* max_rows_to_* max_subquery_* max_temporary_*
multiple_joins_try_* offset output_format_* partial_result_* result_overflow_* rewrite_count_* set_overflow_*
single_join_* sort_overflow_* timeout_* totals_mode transfer_* union_*
"""
_MEANING = """
aggregate_function_input_* allow_custom_* allow_deprecated_error_* allow_dynamic_* allow_lossy_* allow_nonconst_*
allow_not_* allow_nullable_* allow_special_bool_* analyzer_* apply_prewhere_after_final
apply_row_policy_after_final bool_* cast_* check_conversion_* column_names_*
count_matches_* date_time_input_* date_time_overflow_* decimal_* dynamic_throw_* enable_analyzer enable_debug_*
enable_dynamic_* enable_json_type enable_nullable_* enable_streaming_queries enable_variant_* enforce_* evaluation_*
extract_* formatdatetime_* function_* functions_* geo_* h3togeo_* highlight_* input_format_* join_default_* json_*
least_* legacy_* max_hyperscan_* max_rand_* max_wkb_* normalize_* param_* parsedatetime_* precise_* prefer_column_*
promql_* regexp_max_* session_timezone splitby_* transform_* type_* use_json_* use_legacy_* use_variant_*
validate_enum_* variant_*
"""
_READING = """
analyzer_compatibility_apply_final_to_all_joined_tables do_not_merge_across_partitions_select_final final
force_data_skipping_indices force_index_by_date force_primary_key
max_bytes_to_read_leaf max_rows_to_read_leaf read_overflow_mode read_overflow_mode_leaf
"""
HONOURED: Mapping[str, str] = {
    "allow_ddl": "0: only statements that read, INSERT and OPTIMIZE are allowed; others are QUERY_IS_PROHIBITED",
    "check_query_single_value_result": "1: CHECK TABLE returns one value, 1 or 0, instead of a row for each part",
    "create_if_not_exists": "1: CREATE TABLE and CREATE DATABASE behave as with IF NOT EXISTS",
    "deduplicate_insert": "`'disable'`: no INSERT is recognized as a repetition, with or without a token",
    "deduplicate_insert_select": "The same for INSERT … SELECT; `'force_enable'`: one with neither a token nor ORDER "
    "BY ALL is DEDUPLICATION_IS_NOT_POSSIBLE",
    "describe_compact_output": "1: DESCRIBE returns only names and types of columns",
    "enable_lightweight_delete": "0: DELETE FROM is SUPPORT_IS_DISABLED",
    "enable_lightweight_update": "0: UPDATE is SUPPORT_IS_DISABLED",
    "insert_deduplicate": "No effect, as on tables without replicas in ClickHouse: `deduplicate_insert` decides",
    "insert_deduplication_token": "Token of an INSERT: a block of a partition that an earlier INSERT with this token "
    "added is not added again",
    "lightweight_deletes_sync": "1, 2, 3: DELETE FROM returns when all parts are rewritten; 0 (default here): at once. "
    "Readers see it in any case",
    "materialize_ttl_after_modify": "0: ALTER … TTL leaves what has expired by the new TTL to merges",
    "max_bytes_to_read": "Most bytes of columns that a SELECT may read from tables; TOO_MANY_BYTES; 0: no limit",
    "max_partitions_per_insert_block": "Overrides the table setting of this name for an INSERT",
    "max_partitions_to_read": "Overrides the table setting of this name for a SELECT; -1: no limit",
    "max_query_size": "Most bytes of the text of a SELECT; SYNTAX_ERROR; 0: no limit",
    "max_rows_to_read": "Most rows of each table that may be left to read after pruning; TOO_MANY_ROWS; 0: no limit",
    "mutations_max_literal_size_to_replace": "Most bytes of the results of a mutation's subqueries, as literals; 1 MiB "
    "here by default",
    "mutations_sync": "1, 2, 3: ALTER … UPDATE | DELETE and UPDATE return when all parts are rewritten; 0 (default "
    "here): at once. Readers see it in any case",
    "number_of_mutations_to_throw": "Overrides the table setting of this name for a mutation; 0: the table's",
    "optimize_on_insert": "Overrides the table setting of this name for an INSERT",
    "optimize_skip_merged_partitions": "1: OPTIMIZE FINAL leaves partitions alone that are one merged part",
    "optimize_throw_if_noop": "1: OPTIMIZE with nothing to merge is CANNOT_ASSIGN_OPTIMIZE",
    "readonly": "1, 2: only statements that read are allowed, others are READONLY. With 1 no setting can be changed; "
    "with 2 all but this one can",
    "throw_on_max_partitions_per_insert_block": "0: an INSERT may touch any number of partitions",
}
"""Settings of kind HONOURED, and what each does here: Markdown, one line, for the documentation."""
DEFAULTS: Mapping[str, str] = {
    "lightweight_deletes_sync": "0",
    "mutations_max_literal_size_to_replace": str(1 << 20),
    "mutations_sync": "0",
}
"""Settings of kind HONOURED whose default here is not ClickHouse's."""
_OFF = ("0", "")
_IN_TEXT = "Write it in the statement itself"
_WHOLE = "Ask for it in the table's own settings"
_INDEX = "EXPLAIN indexes = 1 shows which indexes a statement uses"
_PROJECTION = "What is scanned has none: ClickHouse uses projections where it reads the parts itself"
_BY_NAME = "Name the columns in the SELECT"
REFUSED_SETTINGS: Mapping[str, Refusal] = {
    "additional_table_filters": Refusal(("", "{}"), "Write the condition in WHERE"),
    "apply_deleted_mask": Refusal(("1",), "Deleted rows cannot be read"),
    "apply_mutations_on_fly": Refusal(("1",), "Reads always apply the mutations that parts lack", False),
    "apply_patch_parts": Refusal(("1",), "There are no patch parts"),
    "asterisk_include_alias_columns": Refusal(_OFF, _BY_NAME),
    "asterisk_include_materialized_columns": Refusal(_OFF, _BY_NAME),
    "asterisk_include_virtual_columns": Refusal(_OFF, _BY_NAME),
    "force_optimize_projection": Refusal(_OFF, _PROJECTION),
    "force_optimize_projection_name": Refusal(_OFF, _PROJECTION),
    "filter": Refusal(_OFF, _IN_TEXT),
    "select": Refusal(_OFF, _IN_TEXT),
    "sort": Refusal(_OFF, _IN_TEXT),
    "order": Refusal(_OFF, _IN_TEXT),
    "page": Refusal(_OFF, _IN_TEXT),
    "implicit_table_at_top_level": Refusal(_OFF, "Name the table in FROM"),
    "database": Refusal(("default", ""), "USE sets the current database"),
    "dialect": Refusal(("clickhouse",), "Statements are ClickHouse's SQL"),
    "enable_json_ast_dialect": Refusal(_OFF, "Statements are ClickHouse's SQL"),
    "enable_trino_dialect": Refusal(_OFF, "Statements are ClickHouse's SQL"),
    "polyglot_dialect": Refusal(_OFF, "Statements are ClickHouse's SQL"),
    "implicit_select": Refusal(("1",), "Statements begin with a word such as SELECT in any case"),
    "compatibility": Refusal(_OFF, "Set the settings that you mean, each by its name"),
    "format": Refusal(_OFF, "Write FORMAT in the statement"),
    "input_format": Refusal(_OFF, "Write FORMAT in the statement"),
    "output_format": Refusal(_OFF, "Write FORMAT in the statement"),
    "allow_introspection_functions": Refusal(_OFF, "They tell of this process, not of tables"),
    "allow_python_table_function": Refusal(("1",), "Tables reach ClickHouse through it"),
    "ast_fuzzer_any_query": Refusal(_OFF, "Statements run as they are written"),
    "ast_fuzzer_oracle": Refusal(_OFF, "Statements run as they are written"),
    "ast_fuzzer_runs": Refusal(_OFF, "Statements run as they are written"),
    "run_query_in_background": Refusal(_OFF, "Run it in a thread of your own"),
    "implicit_transaction": Refusal(_OFF, "Every statement is one commit"),
    "async_insert": Refusal(
        _OFF, "Inserts are not gathered: each is committed when its statement returns, so write larger ones"
    ),
    "insert_allow_materialized_columns": Refusal(_OFF, "MATERIALIZED columns are computed"),
    "insert_null_as_default": Refusal(("0",), "Write ifNull(…) in the SELECT"),
    "insert_shard_id": Refusal(_OFF, "There are no shards"),
    "parts_to_delay_insert": Refusal(_OFF, _WHOLE),
    "parts_to_throw_insert": Refusal(_OFF, _WHOLE),
    "default_table_engine": Refusal(("MergeTree",), "Write ENGINE in the statement"),
    "allow_deprecated_syntax_for_merge_tree": Refusal(
        _OFF, "Write PARTITION BY, ORDER BY and SETTINGS index_granularity in place of MergeTree(date, key, 8192)"
    ),
    "allow_suspicious_codecs": Refusal(_OFF, "End the chain with a codec that compresses, such as LZ4 or ZSTD"),
    "data_type_default_nullable": Refusal(_OFF, "Write Nullable(…)"),
    "flatten_nested": Refusal(("1",), "Declare the column as Array(Tuple(…)), which is the same"),
    "describe_include_subcolumns": Refusal(_OFF, "DESCRIBE lists columns"),
    "describe_include_virtual_columns": Refusal(_OFF, "DESCRIBE lists columns"),
    "show_create_query_identifier_quoting_rule": Refusal(("when_necessary",), "Names are quoted where they must be"),
    "show_create_query_identifier_quoting_style": Refusal(("Backticks",), "Names are quoted by back-quotes"),
    "show_table_uuid_in_table_create_query_if_not_nil": Refusal(_OFF, "system.tables has the uuid"),
}

READS_INSERTS = ("bool_", "cast_string_", "date_time_input_", "format_", "input_format_", "session_timezone")
"""Prefixes of settings that affect the parsing of the data of an INSERT."""
_OF_ROWS = ("additional_result_", "extremes", "limit", "max_bytes_", "max_result_", "max_rows_", "offset", "result_")
_CARRIER = "output_format_arrow_"
"""Prefix of settings of Arrow output: only accepted with FORMAT Arrow, because results are passed as Arrow."""


def _rules() -> dict[str, Kind]:
    of_kind = {
        Kind.SPEED: _SPEED,
        Kind.SHAPE: _SHAPE,
        Kind.MEANING: _MEANING,
        Kind.READING: _READING,
    }
    out = {name: kind for kind, names in of_kind.items() for name in names.split()}
    return out | dict.fromkeys(HONOURED, Kind.HONOURED) | dict.fromkeys(REFUSED_SETTINGS, Kind.REFUSED)


RULES: Mapping[str, Kind] = _rules()
"""Name, or prefix and `*` -> kind."""


def rule_of(name: str) -> str | None:
    """The rule of a setting: its name, or the longest prefix; None if there is none."""
    beginnings = (name[:end] + "*" for end in range(len(name), 0, -1))
    return next((rule for rule in (name, *beginnings) if rule in RULES), None)


def kind_of(name: str) -> Kind | None:
    """How a setting is handled; None for one without a rule."""
    rule = rule_of(name)
    return None if rule is None else RULES[rule]


def keeps_conditions(names: Iterable[str]) -> bool:
    """Whether scans may evaluate conditions with these settings."""
    return all(kind_of(name) not in (None, Kind.MEANING) for name in names)


def keeps_partial_answers(names: Iterable[str]) -> bool:
    """Whether a statement may be split with these settings."""
    return all(kind_of(name) not in (None, Kind.MEANING, Kind.SHAPE, Kind.READING) for name in names)


def reading(settings: Mapping[str, str]) -> str:
    """The first setting because of which ClickHouse has to read the parts itself; empty if there is none."""
    of_reading = (name for name, value in settings.items() if kind_of(name) is Kind.READING and not _is_off(value))
    return next(of_reading, "")


def _is_off(literal: str) -> bool:
    return _is_taken(plain_value(literal), (*_OFF, "throw", "default"))


def for_clickhouse(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings to pass to ClickHouse."""
    return {name: value for name, value in settings.items() if kind_of(name) not in (Kind.HONOURED, Kind.REFUSED)}


def describes(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings for describing the columns of a statement: without those that limit or select rows."""
    return {name: value for name, value in settings.items() if not name.startswith(_OF_ROWS)}


def honoured(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that are implemented here."""
    return {name: value for name, value in settings.items() if kind_of(name) is Kind.HONOURED}


def in_force(name: str) -> str | None:
    """The value by which we go whatever ClickHouse's default is; None where it is ClickHouse's."""
    refusal = REFUSED_SETTINGS.get(name)
    return DEFAULTS.get(name) if refusal is None else refusal.taken[0]


def plain_value(literal: str) -> str:
    """The value of a setting's literal as text: unquoted, `true` and `false` as 1 and 0."""
    text = unescape(literal) if literal[:1] == "'" else literal
    return {"true": "1", "false": "0"}.get(text.lower(), text)


def refuse_meaningless(settings: Mapping[str, str], *, carrier: bool = False) -> None:
    """Raise NOT_IMPLEMENTED for the first setting with a value that is not implemented.

    `carrier`: the statement has FORMAT Arrow, so settings of Arrow output are accepted.
    """
    for name, literal in settings.items():
        refusal = REFUSED_SETTINGS.get(name)
        if name.startswith(_CARRIER) and not carrier:
            raise error(
                "NOT_IMPLEMENTED",
                f"The setting {name} is taken only by a statement with FORMAT Arrow",
                "Write it in that statement's SETTINGS",
            )
        if refusal is not None and not refusal.takes(plain_value(literal)):
            raise error("NOT_IMPLEMENTED", f"The setting {name} = {literal} is not supported", refusal.hint)


def _is_taken(value: str, taken: tuple[str, ...]) -> bool:
    if value.lower() in map(str.lower, taken):
        return True
    return "0" in taken and value.strip("0x.") == ""
