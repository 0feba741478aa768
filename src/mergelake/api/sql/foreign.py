"""Names that are ClickHouse's own: every table of `system` and `information_schema`, and functions that read tables.

The embedded ClickHouse does not know the tables of the warehouse, so what it says about *its own* tables, disks or
servers must not be shown. Each name is served by `system_tables`, passed on because its content is the same in every
ClickHouse (`SAME_ANYWHERE`), or refused (`REFUSED`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mergelake.api.sql.system_tables import system_table, system_table_names
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import back_quote
from mergelake.core.types.types import parse_type
from mergelake.query.embedded import engine
from mergelake.query.select import prepare, run_select
from mergelake.query.source import ArrowSource, Source

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session

INFORMATION_SCHEMA = ("information_schema", "INFORMATION_SCHEMA")

_PROGRAM = """
aggregate_function_combinators build_options codecs collations contributors data_skipping_index_types
data_type_families database_engines dictionary_layouts dictionary_sources disk_types documentation formats functions
keywords licenses numbers numbers_mt one primes privileges table_engines table_functions time_zones tokenizers unicode
zeros zeros_mt
"""
SAME_ANYWHERE = frozenset(_PROGRAM.split())
"""Tables of `system` about the program ClickHouse, or of numbers: the embedded ClickHouse serves them."""

_PROCESS = "There is no server: each process works on its own; system.events, query_log and nodes tell of its work"
_ACCESS = "The bucket's own permissions decide who may do what"
_REPLICAS = "There are no replicas: every process reads the same bucket; see system.nodes and system.freshness"
_DISKS = "Data lies in the warehouse, at the data_paths of system.tables; system.disks has the store and its cache"
_NONE = "There is nothing of the kind here"
_WHY: Mapping[str, str] = {
    _PROCESS: """
        asynchronous_inserts asynchronous_loader background_schedule_pool backups certificates clusters
        completions dashboards dimensional_metrics distributed_ddl_queue distribution_queue dns_cache errors
        fail_points handlers histogram_metrics jemalloc_arena_bins jemalloc_bins jemalloc_profile_text
        jemalloc_sampled_allocations jemalloc_stats macros metrics query_cache query_condition_cache
        resources scheduler schema_inference_cache server_settings session_query_ids settings_changes
        stack_trace statements symbols user_processes user_query_log warnings workloads
        """,
    _ACCESS: """
        current_roles enabled_roles grants masking_policies named_collections quota_limits quota_usage quotas
        quotas_usage role_grants roles row_policies settings_profile_elements settings_profiles user_directories
        users
        """,
    _REPLICAS: """
        database_replicas part_moves_between_shards replicas replicated_fetches replicated_merge_tree_settings
        replication_queue
        """,
    _DISKS: "filesystem_cache filesystem_cache_settings moves remote_data_paths storage_policies",
    "system.projections has their definitions, mergelake part inspect what a part has of them": """
        projection_parts projection_parts_columns
        """,
    _NONE: """
        azure_queue_metadata azure_queue_metadata_cache azure_queue_settings constraints detached_tables
        dictionaries dropped_tables dropped_tables_parts graphite_retentions hypothetical_indexes
        hypothetical_projections iceberg_files iceberg_history kafka_consumers
        rocksdb s3_queue_metadata s3_queue_settings s3queue_metadata_cache
        user_defined_functions view_refreshes
        """,
}
REFUSED: Mapping[str, str] = {name: why for why, names in _WHY.items() for name in names.split()}
"""Tables of `system` that in the embedded ClickHouse are about itself: name -> hint for the error."""


def foreign_table(db: Session, database: str, name: str) -> Source | None:
    """The table of `system` or `information_schema`; None for one that ClickHouse serves.

    Raises NOT_IMPLEMENTED for a table of `REFUSED`, UNKNOWN_TABLE for any other name.
    """
    if database in INFORMATION_SCHEMA:
        return _view(db, database, name)
    source = system_table(db, name)
    if source is not None or name in SAME_ANYWHERE:
        return source
    if name in REFUSED:
        raise error("NOT_IMPLEMENTED", f"The table system.{name} is not supported", REFUSED[name])
    raise _unknown("system", name)


def foreign_names(database: str) -> list[str]:
    """Names of the tables of `system` or `information_schema` that can be read."""
    if database == "system":
        return sorted({*system_table_names(), *SAME_ANYWHERE})
    text = f"SELECT name FROM system.tables WHERE database = '{database}' ORDER BY name"
    names: list[str] = engine.run(text).table()["name"].to_pylist()
    return names


def describe_foreign(db: Session, database: str, name: str) -> Mapping[str, str]:
    """Names and types of the columns of a table that `foreign_table` finds."""
    source = foreign_table(db, database, name)
    if source is not None:
        return {column: str(kind) for column, kind in source.columns.items()}
    text = f"SELECT * FROM {back_quote(database)}.{back_quote(name)}"
    names, kinds = prepare(text, db.resolver(), db.context()).columns(db.context())
    return dict(zip(names, kinds, strict=True))


def _unknown(database: str, name: str) -> MergelakeError:
    return error(
        "UNKNOWN_TABLE", f"Table {database}.{name} does not exist", f"SHOW TABLES FROM {database} lists those that do"
    )


def _view(db: Session, database: str, name: str) -> Source:
    """A view of `information_schema`: ClickHouse's own SELECT, over our system tables."""
    if name not in foreign_names(database):
        raise _unknown(database, name)
    text = engine.run(
        f"SELECT as_select FROM system.tables WHERE database = '{database}' AND name = '{name}'", output="TSVRaw"
    ).text()
    answer = run_select(text, db.resolver(), db.context())
    types = {column: parse_type(kind) for column, kind in zip(answer.table.column_names, answer.types, strict=True)}
    return ArrowSource(answer.table, types)
