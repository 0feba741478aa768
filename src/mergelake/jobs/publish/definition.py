"""The statement by which a ClickHouse attaches a published table, read-only and live.

It needs a server of version 25.4 or newer, and nothing but this statement: no configuration, no keeper, no copy.
New parts appear, and merged ones replace their sources, within `refresh_seconds` of being published.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from mergelake.core.base.durations import check_seconds
from mergelake.core.base.errors import error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.model.schema import Column, TableSchema
from mergelake.engines.rules.collapsing import without_version
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.handle import TableHandle

HIDDEN = "[HIDDEN]"
"""Replaces a secret, as in ClickHouse's own SHOW CREATE TABLE."""
_PROJECTION_MODE = "deduplicate_merge_projection_mode"
_TABLE_SETTINGS = (_PROJECTION_MODE, "index_granularity", "allow_nullable_key", "allow_dimensions_outside_sorting_key")


def create_statement(
    handle: TableHandle,
    database: str,
    table: str,
    *,
    refresh_seconds: int = 1,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    show_secrets: bool = False,
) -> str:
    """`CREATE TABLE database.table` for a stock ClickHouse, over this table's directory.

    It contains the given keys (a server should have its own, with read access only); with empty ones the server uses
    its environment. Those of the store are hidden as ClickHouse hides them, unless `show_secrets`. Raises
    NOT_IMPLEMENTED for a store that ClickHouse cannot reach.
    """
    check_seconds("refresh_seconds", refresh_seconds, whole=True)
    if secret_access_key is None and not show_secrets and dict(handle.store.spec.options).get("secret_access_key"):
        secret_access_key = HIDDEN
    return attach_text(
        handle.schema, f"{back_quote(database)}.{back_quote(table)}",
        disk_text(handle.store, handle.directory, access_key_id, secret_access_key, handle.schema.version),
        refresh_seconds,
    )  # fmt: skip


def disk_text(
    store: Store,
    directory: str,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    schema_version: int = 1,
) -> str:
    """`disk(…)` for a table's directory in a store.

    ClickHouse keeps a disk, and what it has listed of it, as long as it runs, and knows it again by its arguments. So
    one for a later `schema_version` says which: a server that attached the table before lists it anew.
    """
    version = {"schema_version": str(schema_version)} if schema_version > 1 else {}
    scheme, marker, rest = store.url.partition("://")
    if not marker:
        return _disk("local", path=f"{store.url.rstrip('/')}/{directory}/", **version)
    if scheme != "s3":
        raise error(
            "NOT_IMPLEMENTED",
            f"A ClickHouse statement for {scheme}:// is not supported",
            "Publish a table in a directory or on S3",
        )
    options = dict(store.spec.options)
    bucket, _, prefix = rest.partition("/")
    path = "/".join(piece for piece in (prefix.strip("/"), directory) if piece)
    endpoint = options.get("endpoint", "").rstrip("/")
    if endpoint:
        # Path style, unless the endpoint is the bucket's own host already.
        own_host = urlsplit(endpoint).netloc.startswith(f"{bucket}.")
        url = f"{endpoint}/{path}/" if own_host else f"{endpoint}/{bucket}/{path}/"
    else:
        url = f"https://{bucket}.s3.{options.get('region', 'us-east-1')}.amazonaws.com/{path}/"
    key = options.get("access_key_id", "") if access_key_id is None else access_key_id
    secret = options.get("secret_access_key", "") if secret_access_key is None else secret_access_key
    if key:
        return _disk("s3", endpoint=url, access_key_id=key, secret_access_key=secret, **version)
    return _disk("s3", endpoint=url, use_environment_credentials="1", **version)


def attach_text(schema: TableSchema, name: str, disk: str, refresh_seconds: int) -> str:
    """CREATE TABLE over a published directory; `name` is quoted, `disk` is the text of its disk."""
    settings = [f"refresh_parts_interval = {refresh_seconds}", "table_disk = 1", f"disk = {disk}"]
    return definition(f"CREATE TABLE {name}", schema, settings)


def definition(head: str, schema: TableSchema, settings: Sequence[str]) -> str:
    """A table definition of ClickHouse: `head` begins the statement, `settings` follow those of the table's data."""
    schema = without_version(schema)
    arguments = f"({', '.join(schema.engine_args)})" if schema.engine_args else ""
    clauses = [f"ENGINE = {schema.engine}{arguments}"]
    if schema.partition_by:
        clauses.append(f"PARTITION BY {_key(schema.partition_by)}")
    flags = schema.order_desc or (False,) * len(schema.order_by)
    ordered = [f"{text} DESC" if down else text for text, down in zip(schema.order_by, flags, strict=True)]
    if schema.primary_key and schema.primary_key != schema.order_by:
        clauses.append(f"PRIMARY KEY {_key(schema.primary_key)}")
    clauses.append(f"ORDER BY {_key(ordered)}")
    if schema.sample_by:
        clauses.append(f"SAMPLE BY {schema.sample_by}")
    of_data = [f"{key} = {_setting(schema.settings[key])}" for key in _TABLE_SETTINGS if key in schema.settings]
    if any(flags):
        of_data.append("allow_experimental_reverse_key = 1")
    inside = [_column(column) for column in schema.columns]
    inside += [
        f"INDEX {back_quote(i.name)} {i.expression} TYPE {i.type} GRANULARITY {i.granularity}" for i in schema.indices
    ]
    inside += [f"PROJECTION {back_quote(each.name)} ({each.query})" for each in schema.projections]
    columns = ",\n".join(f"    {line}" for line in inside)
    return f"{head}\n(\n{columns}\n)\n" + "\n".join(clauses) + f"\nSETTINGS {', '.join([*of_data, *settings])}"


def _column(column: Column) -> str:
    default = f" {column.default_kind} {column.default}".rstrip() if column.default_kind else ""
    return f"{back_quote(column.name)} {column.type}{default}"


def _key(expressions: list[str] | tuple[str, ...]) -> str:
    if not expressions:
        return "tuple()"
    return expressions[0] if len(expressions) == 1 and " DESC" not in expressions[0] else f"({', '.join(expressions)})"


def _disk(kind: str, **arguments: str) -> str:
    shown = ", ".join(f"{name} = {quote_string(value)}" for name, value in arguments.items())
    return (
        f"disk(type = object_storage, object_storage_type = {kind}, metadata_type = plain_rewritable, "
        f"readonly = 1, {shown})"
    )


def _setting(text: str) -> str:
    return text if text.lstrip("-").isdecimal() else quote_string(text)
