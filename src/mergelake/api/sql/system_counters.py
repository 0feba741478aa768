"""`system.events`, `system.disks`, `system.query_log` and `system.processes`: what this connection does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shutil import disk_usage
from typing import TYPE_CHECKING, Any

from mergelake.api.sql.query_log import LoggedQuery
from mergelake.api.sql.system_rows import Rows, Wanted, row_of, uuid_text
from mergelake.parts.read.fetch import is_remote
from mergelake.store.cache.cached import CachedStore
from mergelake.store.interface.protocol import Counters, Store

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session

_PROFILE = "Map(LowCardinality(String), UInt64)"
EVENTS: Mapping[str, str] = {"event": "String", "value": "UInt64", "description": "String", "name": "String"}
DISKS: Mapping[str, str] = {
    "name": "String",
    "path": "String",
    "free_space": "Nullable(UInt64)",
    "total_space": "Nullable(UInt64)",
    "unreserved_space": "Nullable(UInt64)",
    "keep_free_space": "UInt64",
    "type": "String",
    "object_storage_type": "String",
    "is_read_only": "UInt8",
    "is_remote": "UInt8",
    "is_broken": "UInt8",
    "cache_path": "String",
    "cache_max_bytes": "Nullable(UInt64)",
}
QUERY_LOG: Mapping[str, str] = {
    "type": "Enum8('QueryStart' = 1, 'QueryFinish' = 2, 'ExceptionBeforeStart' = 3, 'ExceptionWhileProcessing' = 4)",
    "event_date": "Date",
    "event_time": "DateTime",
    "event_time_microseconds": "DateTime64(6)",
    "query_start_time": "DateTime",
    "query_start_time_microseconds": "DateTime64(6)",
    "query_duration_ms": "UInt64",
    "read_rows": "UInt64",
    "read_bytes": "UInt64",
    "result_rows": "UInt64",
    "current_database": "LowCardinality(String)",
    "query": "String",
    "query_kind": "LowCardinality(String)",
    "exception_code": "Int32",
    "exception": "String",
    "is_initial_query": "UInt8",
    "query_id": "String",
    "ProfileEvents": _PROFILE,
    "table_requests": "Map(String, UInt64)",
    "cost": "Float64",
}
PROCESSES: Mapping[str, str] = {
    "is_initial_query": "UInt8",
    "query_id": "String",
    "elapsed": "Float64",
    "read_rows": "UInt64",
    "read_bytes": "UInt64",
    "query": "String",
    "query_kind": "String",
    "ProfileEvents": _PROFILE,
    "current_database": "String",
    "cost": "Float64",
}
_MS_PER_DAY = 86_400_000
_DESCRIBED: Mapping[str, str] = {
    "StorePutRequests": "Writes to the store: PUT, and the requests of multipart uploads",
    "StoreGetRequests": "Reads from the store; ranges that lie close together share one",
    "StoreListRequests": "Pages of listings, 1000 keys each",
    "StoreHeadRequests": "Looks at the size of an object",
    "StoreDeleteRequests": "Delete requests; one takes up to 1000 keys",
    "StoreRetries": "Requests repeated after a failure, included in the other numbers",
    "StoreBytesWritten": "Bytes written to the store",
    "StoreBytesRead": "Bytes read from the store",
    "S3ReadRequestsCount": "Number of GET and HEAD requests to S3 storage.",
    "S3WriteRequestsCount": "Number of POST, DELETE, PUT and PATCH requests to S3 storage.",
    "S3GetObject": "Number of S3 API GetObject calls.",
    "S3ListObjects": "Number of S3 API ListObjects calls.",
    "S3HeadObject": "Number of S3 API HeadObject calls.",
    "S3DeleteObjects": "Number of S3 API DeleteObject(s) calls.",
    "ReadBufferFromS3Bytes": "Bytes read from S3.",
    "WriteBufferFromS3Bytes": "Bytes written to S3.",
    "CachedReadBufferReadFromCacheHits": "Number of times the read from filesystem cache hit the cache.",
    "CachedReadBufferReadFromCacheBytes": "Bytes read from filesystem cache",
}


def profile_events(used: Counters, url: str) -> dict[str, int]:
    """The counters that are not 0, by name: those of any store, and of S3 ClickHouse's that mean the same."""
    numbers = {
        "StorePutRequests": used.put,
        "StoreGetRequests": used.get,
        "StoreListRequests": used.list,
        "StoreHeadRequests": used.head,
        "StoreDeleteRequests": used.delete,
        "StoreRetries": used.retries,
        "StoreBytesWritten": used.bytes_put,
        "StoreBytesRead": used.bytes_get,
        "CachedReadBufferReadFromCacheHits": used.cached,
        "CachedReadBufferReadFromCacheBytes": used.bytes_cached,
    }
    if url.startswith("s3:"):
        numbers |= {
            "S3ReadRequestsCount": used.get + used.head + used.list,
            "S3WriteRequestsCount": used.put + used.delete,
            "S3GetObject": used.get,
            "S3ListObjects": used.list,
            "S3HeadObject": used.head,
            "S3DeleteObjects": used.delete,
            "ReadBufferFromS3Bytes": used.bytes_get,
            "WriteBufferFromS3Bytes": used.bytes_put,
        }
    return {name: number for name, number in numbers.items() if number}


def events(db: Session, _: Wanted) -> Rows:
    """`system.events`: requests and bytes of this connection."""
    store = db.warehouse.store
    for name, value in sorted(profile_events(store.counters, store.url).items()):
        yield name, value, _DESCRIBED[name], name


def disks(db: Session, _: Wanted) -> Rows:
    """`system.disks`: the store, and the cache directory if there is one."""
    return disk_rows(db.warehouse.store)


def disk_rows(store: Store) -> Rows:
    """Rows of `system.disks` about a store."""
    remote = is_remote(store)
    kind, object_kind = _kind(store.url)
    cache = store.cache if isinstance(store, CachedStore) else None
    row: dict[str, Any] = {
        "name": "default",
        "path": store.url,
        "type": kind,
        "object_storage_type": object_kind,
        "is_remote": int(remote),
        "cache_path": cache.path if cache else "",
        "cache_max_bytes": cache.max_bytes if cache else None,
    }
    yield row_of(row | (_space(store.url) if kind == "Local" else {}), DISKS)
    if cache is not None:
        row = {"name": "cache", "path": cache.path, "type": "Local", "object_storage_type": "None"}
        yield row_of(row | _space(cache.path) | {"cache_max_bytes": cache.max_bytes}, DISKS)


def _kind(url: str) -> tuple[str, str]:
    """Type of the disk, and of its object storage, in ClickHouse's words where it has one."""
    scheme, marker, _ = url.partition("://")
    if not marker:
        return "Local", "None"
    kinds = {"s3": "S3", "gs": "GCS", "az": "AzureBlobStorage"}
    return ("ObjectStorage", kinds[scheme]) if scheme in kinds else ("Memory", "None")


def _space(path: str) -> dict[str, int]:
    """Free and total bytes of the file system of a directory; nothing if there is none yet."""
    try:
        usage = disk_usage(path)
    except OSError:
        return {}
    return {"free_space": usage.free, "total_space": usage.total, "unreserved_space": usage.free}


def query_log(db: Session, _: Wanted) -> Rows:
    """`system.query_log`: the last statements of this connection; one row for their begin, one for their end."""
    names = {table_id: f"{database}.{name}" for database, name, table_id in db.warehouse.catalog.state.tables()}
    rows = [row for query in db.query_log.entries() for row in _logged(db, query, names)]
    for row in sorted(rows, key=lambda row: int(row["event_time_microseconds"])):
        yield row_of(row, QUERY_LOG)


def _logged(db: Session, query: LoggedQuery, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    start = {
        "type": "QueryStart",
        **_times(query.started_ms),
        "query_start_time": query.started_ms // 1000,
        "query_start_time_microseconds": query.started_ms * 1000,
        "current_database": query.database,
        "query": query.text,
        "query_kind": query.kind,
        "is_initial_query": 1,
        "query_id": uuid_text(query.id),
        "ProfileEvents": [],
        "table_requests": [],
    }
    if query.type != "ExceptionBeforeStart":
        yield start
    if query.type and query.ended_ms is not None:
        used = query.tally.counters
        yield {
            **start,
            "type": query.type,
            **_times(query.ended_ms),
            "query_duration_ms": round(query.duration_s * 1000),
            "read_rows": query.rows_read,
            "read_bytes": query.bytes_read,
            "result_rows": query.result_rows,
            "exception_code": query.exception_code,
            "exception": query.exception,
            "ProfileEvents": list(profile_events(used, query.tally.url).items()),
            "table_requests": [(names.get(name, name), each.requests) for name, each in sorted(used.tables.items())],
            "cost": db.warehouse.prices.cost(used),
        }


def _times(now_ms: int) -> dict[str, int]:
    return {
        "event_date": now_ms // _MS_PER_DAY,
        "event_time": now_ms // 1000,
        "event_time_microseconds": now_ms * 1000,
    }


def processes(db: Session, _: Wanted) -> Rows:
    """`system.processes`: the statements of this connection that run now."""
    now_s = db.warehouse.clock.monotonic_s()
    for query in db.query_log.running():
        used = query.tally.counters
        rows, size = query.read_so_far()
        yield row_of(
            {
                "is_initial_query": 1,
                "query_id": uuid_text(query.id),
                "elapsed": now_s - query.started_s,
                "read_rows": rows,
                "read_bytes": size,
                "query": query.text,
                "query_kind": query.kind,
                "ProfileEvents": list(profile_events(used, query.tally.url).items()),
                "current_database": query.database,
                "cost": db.warehouse.prices.cost(used),
            },
            PROCESSES,
        )
