"""Checks the schema of a new table: unsupported ones are refused with ClickHouse's code, before anything is written.

`define` builds a schema from plain Python values; `check_schema` checks the schema of every new table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mergelake.core.base.errors import error
from mergelake.core.model.engines import AGGREGATING
from mergelake.core.model.schema import Column, TableSchema, unknown_column
from mergelake.core.model.settings import TableSettings
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names
from mergelake.core.types.types import DataType, inner_type, is_nullable, parse_type
from mergelake.engines.order.keys import KeyColumn, bind_key, bind_partition_key, key_tree
from mergelake.engines.projections.projections import bind_projection
from mergelake.engines.rules.collapsing import with_version
from mergelake.engines.rules.modes import ENGINES, mode_of
from mergelake.expr.nodes import Call, ColumnRef
from mergelake.format.codecs.codec_types import check_codec
from mergelake.format.files.profile import PROFILES
from mergelake.format.serializations.state_programs import state_program
from mergelake.log.model.immutable import check_setting
from mergelake.parts.read.default_codec import default_codec
from mergelake.table.definition.define_indexes import check_deterministic, check_indexes, check_repeated, missing_column
from mergelake.table.definition.define_projections import check_mode, projection_errors
from mergelake.table.definition.define_texts import check_texts
from mergelake.table.definition.define_ttl import check_ttl
from mergelake.table.rows.blocks import check_defaults
from mergelake.table.rows.constraints import check_constraints

_OTHER_ENGINES = """
Alias ArrowStream AzureBlobStorage AzureQueue BigQuery Buffer COSN DeltaLake DeltaLakeAzure
DeltaLakeLocal DeltaLakeS3 Dictionary Distributed EmbeddedRocksDB Executable ExecutablePool File FileLog FuzzJSON
FuzzQuery GCS GenerateRandom GraphiteMergeTree HDFS Hudi Iceberg IcebergAzure IcebergHDFS IcebergLocal IcebergS3 JDBC
Join Kafka KeeperMap Log Loop MaterializedPostgreSQL MaterializedView Memory Merge MongoDB MySQL Null ODBC OSS Paimon
PaimonAzure PaimonHDFS PaimonLocal PaimonS3 PostgreSQL QueryRunner Redis Remote RemoteSecure
ReplicatedGraphiteMergeTree S3 S3Queue SQLite Set StripeLog TimeSeries TinyLog URL View
YTsaurus
"""
"""Engines of ClickHouse that are not supported; any other name is unknown."""


def define(
    columns: Mapping[str, str | DataType],
    *,
    order_by: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    primary_key: str | Sequence[str] = (),
    engine: str = "MergeTree",
    settings: Mapping[str, str | int | float | bool] | None = None,
    ttl: str | Sequence[str] | Mapping[str, str] = (),
) -> TableSchema:
    """A checked schema from names and types of columns.

    Parameters
    ----------
    columns
        Name to ClickHouse type, in order.
    order_by, partition_by, primary_key
        The keys: a column, an expression, or a sequence of them. Without `order_by` the primary key is the sorting key;
        without a `primary_key` it is the reverse.
    engine
        An engine, with its arguments: `ReplacingMergeTree(version)`; see `docs/engines.md`.
    settings
        Settings of the table, see `docs/settings-list.md`.
    ttl
        When rows expire: the elements of a TTL clause, `"ts + INTERVAL 30 DAY"`, see `docs/ttl.md`. A dict has columns
        whose values expire, and under `""` the TTL of the table.

    Raises
    ------
    MergelakeError
        What CREATE TABLE raises for such a table.

    Examples
    --------
    >>> define({"k": "UInt64", "v": "String"}, order_by="k").order_by
    ('k',)
    """
    flat: dict[str, str | DataType] = {}
    for name_given, text in columns.items():
        parts = t.nested_columns(text) if isinstance(text, str) else None
        flat.update(
            {name_given: text} if parts is None else {f"{name_given}.{part}": each for part, each in parts.items()}
        )
    column_list = tuple(
        Column(number, column, parse_type(kind) if isinstance(kind, str) else kind)
        for number, (column, kind) in enumerate(flat.items())
    )
    name, arguments = _split_engine(engine)
    of_columns = dict(ttl) if isinstance(ttl, Mapping) else {}
    of_table = of_columns.pop("", "") if isinstance(ttl, Mapping) else ttl
    for each in of_columns:
        if each not in flat:
            raise unknown_column(each, list(flat))
    column_list = tuple(replace(column, ttl=of_columns.get(column.name, "")) for column in column_list)
    schema = TableSchema(
        column_list,
        engine=name,
        engine_args=arguments,
        partition_by=_key(partition_by),
        order_by=_key(primary_key if order_by is None else order_by),
        primary_key=_key(primary_key),
        ttl=_key(of_table),
        settings=TableSettings(settings).as_text(),
    )
    return check_schema(schema)


def check_schema(schema: TableSchema) -> TableSchema:
    """The schema with explicit primary key and codecs; raises a coded error if it is not supported."""
    if not schema.stored:
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "A table needs at least one stored column")
    check_texts(schema)
    settings = TableSettings(schema.settings)
    _check_policy(settings)
    _check_profile(settings)
    default = default_codec(settings)
    columns = []
    for column in schema.columns:
        storage_type(column.type)  # refuses types that cannot be kept
        inside = tuple(t.parts(column.type))
        if any(isinstance(kind, t.Nullable) and isinstance(kind.inner, t.Tuple) for kind in inside):
            raise error("NOT_IMPLEMENTED", f"Column {column.name}: a Nullable Tuple is not supported")
        if any(isinstance(kind, t.Tuple) and not kind.elements for kind in inside):
            raise error("NOT_IMPLEMENTED", f"Column {column.name}: an empty Tuple is not supported", "Leave it out")
        if any(isinstance(kind, t.AggregateFunction) and state_program(kind) is None for kind in inside):
            raise error(
                "NOT_IMPLEMENTED",
                f"Column {column.name}: states of {column.type} cannot be told apart here",
                "docs/types.md lists the functions whose states are",
            )
        if t.holds(column.type, t.Nothing):
            raise error(
                "DATA_TYPE_CANNOT_BE_USED_IN_TABLES",
                f"Data type {column.type} of column {column.name} cannot be used in tables",
            )
        if column.default_kind == "ALIAS":
            if column.codec:
                raise error(
                    "BAD_ARGUMENTS", f"Cannot specify codec for column type ALIAS: {column.name}", "Leave it out"
                )
            columns.append(column)
            continue
        columns.append(replace(column, codec=check_codec(column.codec, column.type, default)))
    schema = _plain_engine(replace(schema, columns=tuple(columns)))
    _check_engine(schema)
    schema = with_version(schema)
    check_setting(schema)
    _check_streams(schema)
    _check_defaults(schema)
    sorting = _check_sorting_key(schema, settings)
    _check_partition_key(schema, settings)
    _check_sample(schema)
    check_indexes(schema)
    check_projections(schema)
    check_constraints(schema)
    primary = schema.primary_key or schema.order_by
    for place, text in enumerate(primary):
        if place >= len(sorting) or text != schema.order_by[place]:
            bind_key(text, schema)  # raises for an unknown column
            instead = schema.order_by[place] if place < len(sorting) else "nothing"
            raise error(
                "BAD_ARGUMENTS",
                f"Primary key must be a prefix of the sorting key, but its column {place + 1} is {text}, not {instead}",
            )
    return check_ttl(replace(schema, primary_key=primary))


def _key(expressions: str | Sequence[str]) -> tuple[str, ...]:
    return ((expressions,) if expressions else ()) if isinstance(expressions, str) else tuple(expressions)


def _split_engine(text: str) -> tuple[str, tuple[str, ...]]:
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(((?:[^()]|\([^()]*\))*)\))?\s*", text)
    if match is None:
        raise error("SYNTAX_ERROR", f"Cannot read the engine '{text}'", "Write it as in ReplacingMergeTree(version)")
    parts = re.findall(r"(?:\([^()]*\)|[^,()])+", match.group(2) or "")
    arguments = tuple(part.strip() for part in parts if part.strip())
    return match.group(1), arguments


def _check_policy(settings: TableSettings) -> None:
    policy = settings.text("merge_upload_policy")
    if policy not in ("auto", "direct", "volatile"):
        raise error(
            "BAD_ARGUMENTS", f"merge_upload_policy cannot be '{policy}'", "It is 'auto', 'direct' or 'volatile'"
        )
    target = settings.number("write_amplification_target")
    if target != 0 and not target >= 1:
        message = f"write_amplification_target cannot be {target}: the insert itself writes each byte once"
        raise error("BAD_ARGUMENTS", message, "It is at least 1, or 0 for no target")
    if settings.text("storage_policy") != "default":
        raise error("UNKNOWN_POLICY", f"Unknown storage policy '{settings.text('storage_policy')}'", "Use 'default'")


def _check_profile(settings: TableSettings) -> None:
    profile = settings.text("part_profile")
    if profile not in PROFILES:
        raise error("BAD_ARGUMENTS", f"part_profile cannot be '{profile}'", f"It is one of {', '.join(PROFILES)}")


def _plain_engine(schema: TableSchema) -> TableSchema:
    """`Replicated…` and `Shared…` as the engine itself, without path and replica: every table is shared here."""
    match = re.fullmatch(r"(?:Replicated|Shared)(\w+)", schema.engine)
    if match is None or match.group(1) not in ENGINES:
        return schema
    arguments = schema.engine_args
    quoted = sum(argument.strip().startswith("'") for argument in arguments[:2])
    if quoted == 1:
        message = f"{schema.engine} takes a path and the name of a replica, or neither"
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", message, "Leave them out")
    return replace(schema, engine=match.group(1), engine_args=arguments[quoted:])


def _check_engine(schema: TableSchema) -> None:
    name, arguments = schema.engine, schema.engine_args
    if name not in ENGINES:
        supported = f"Supported are {', '.join(ENGINES)}"
        if name in _OTHER_ENGINES.split():
            raise error("NOT_IMPLEMENTED", f"Table engine {name} is not supported (yet)", supported)
        raise error("UNKNOWN_STORAGE", f"Unknown table engine {name}", supported)
    if len(arguments) >= 3 and not (schema.order_by or schema.primary_key or schema.partition_by):
        raise error(
            "BAD_ARGUMENTS",
            f"This syntax for *MergeTree engine is deprecated: {name}({', '.join(arguments)})",
            "Write PARTITION BY, ORDER BY and SETTINGS index_granularity",
        )
    if name == "MergeTree" and arguments:
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", f"Engine {name} takes no arguments, got {', '.join(arguments)}")
    mode_of(schema)


def _check_streams(schema: TableSchema) -> None:
    """Refuse a column `n.a` beside a Tuple or Map `n` with an element `a`: their files would have the same name."""
    for column in schema.stored:
        for inner in _leaf_names(column.name, column.type):
            if schema.has(inner):
                raise error(
                    "BAD_ARGUMENTS",
                    f"Columns '{column.name} {column.type}' and '{inner} {schema.column(inner).type}' have streams "
                    "with the same file names",
                    "Rename one of them",
                )


def _leaf_names(name: str, kind: DataType) -> Iterator[str]:
    match inner_type(kind):
        case t.Array(inner):
            yield from _leaf_names(name, inner)
        case t.Map(key, value):
            yield from _leaf_names(name, t.Tuple((key, value), ("keys", "values")))
        case t.Tuple(elements) as plain:
            for element, each in zip(tuple_names(plain), elements, strict=True):
                yield f"{name}.{element}"
                yield from _leaf_names(f"{name}.{element}", each)


def _check_defaults(schema: TableSchema) -> None:
    if all(column.default_kind in ("MATERIALIZED", "ALIAS") for column in schema.columns):
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "A table needs a column that can be inserted")
    check_defaults(schema)


def _check_sorting_key(schema: TableSchema, settings: TableSettings) -> list[KeyColumn]:
    if len(schema.order_by) == 1:
        check_repeated(key_tree(schema.order_by[0], schema.names), schema)
    keys = _bound(schema, schema.order_by, "Sorting", settings)
    if len(set(schema.order_by)) != len(schema.order_by):
        raise error("BAD_ARGUMENTS", "Sorting key contains duplicate expressions")
    if schema.order_desc and len(schema.order_desc) != len(schema.order_by):
        raise error("BAD_ARGUMENTS", "Every expression of the sorting key needs a direction, or none")
    return keys


def check_projections(schema: TableSchema) -> None:
    """Refuse projections that are not supported, with ClickHouse's code; the message names the projection."""
    check_mode(schema)
    names: set[str] = set()
    for projection in schema.projections:
        if projection.name in names:
            message = f"Cannot add projection {projection.name}: projection with this name already exists."
            raise error("ILLEGAL_PROJECTION", message, "Use another name")
        names.add(projection.name)
        with projection_errors(projection):
            own = bind_projection(projection, schema).schema
            if not (own.engine == AGGREGATING and not own.order_by):
                _check_sorting_key(own, TableSettings(own.settings))


def _check_partition_key(schema: TableSchema, settings: TableSettings) -> None:
    for key in _bound(schema, schema.partition_by, "Partition", settings):
        kind = inner_type(key.type)
        if kind == key.type and isinstance(kind, (t.Float, t.BFloat16)):
            raise error("BAD_ARGUMENTS", f"Floating point partition key is not supported: {key.text}")
        if isinstance(kind, t.IPv4) and key.type != kind:  # ClickHouse names such a partition '1.2.3.4', in quotes
            raise error("NOT_IMPLEMENTED", f"A partition key of type {key.type} is not supported: {key.text}")


def _check_ordered(tree: Call, schema: TableSchema, key_kind: str) -> None:
    """DATA_TYPE_CANNOT_BE_USED_IN_KEY for an array or a tuple of columns whose values have no order."""
    for arg in tree.args:
        kind = schema.types.get(arg.name) if isinstance(arg, ColumnRef) else None
        if kind is not None and any(isinstance(part, (t.Variant, t.Dynamic, t.Json)) for part in t.parts(kind)):
            message = f"Column {tree} cannot be in a {key_kind.lower()} key: {arg} has type {kind}"
            raise error("DATA_TYPE_CANNOT_BE_USED_IN_KEY", message)


def _bound(schema: TableSchema, texts: tuple[str, ...], key_kind: str, settings: TableSettings) -> list[KeyColumn]:
    bind = bind_partition_key if key_kind == "Partition" else bind_key
    for text in texts:
        tree = key_tree(text, schema.names)
        check_deterministic(tree)
        if isinstance(tree, Call) and tree.function in ("array", "tuple"):
            _check_ordered(tree, schema, key_kind)
    keys = [bind(text, schema) for text in texts]
    stored = {column.name for column in schema.stored}
    for key in keys:
        if not key.columns:
            raise error("ILLEGAL_COLUMN", f"{key_kind} key cannot contain constants: {key.text}")
        for name in key.columns:
            if schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
                raise missing_column(schema.column(name), key.text)
            if name not in stored:
                raise error("ILLEGAL_COLUMN", f"{key_kind} key uses the column {name}, which is not stored")
        refused = any(isinstance(kind, t.UNORDERED) and not isinstance(kind, t.Map) for kind in t.parts(key.type))
        if (refused and key.type != t.Nullable(t.Nothing())) or (
            key_kind == "Sorting" and isinstance(key.type, t.SimpleAggregateFunction)
        ):
            raise error(
                "DATA_TYPE_CANNOT_BE_USED_IN_KEY",
                f"Column {key.text} of type {key.type} cannot be in a {key_kind.lower()} key",
            )
        if any(map(is_nullable, t.parts(key.type))) and not settings.integer("allow_nullable_key"):
            raise error(
                "ILLEGAL_COLUMN",
                f"{key_kind} key contains nullable columns, but merge tree setting `allow_nullable_key` is disabled",
                f"Make {key.text} not Nullable, or set allow_nullable_key = 1",
            )
    return keys


def _check_sample(schema: TableSchema) -> None:
    if not schema.sample_by:
        return
    key = bind_key(schema.sample_by, schema)  # raises for an unknown column
    for name in key.columns:
        if schema.column(name).default_kind in ("ALIAS", "EPHEMERAL"):
            raise missing_column(schema.column(name), schema.sample_by)
    if schema.sample_by not in (schema.primary_key or schema.order_by):
        raise error("BAD_ARGUMENTS", f"Sampling expression {schema.sample_by} must be present in the primary key")
    if not isinstance(key.type, t.Int) or key.type.signed or key.type.bits > 64:
        message = f"The sampling column must be one unsigned integer, and {schema.sample_by} is {key.type}"
        raise error("ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER", message)
