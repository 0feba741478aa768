"""A generated, realistic service log, for the demo and the benchmarks.

Every block is a function of (seed, block number), so Spark tasks generate their own blocks and any block can be
generated again. Distributions are those of real logs: a few busy services and hosts, mostly INFO, log-normal latencies,
errors in bursts, messages of about 200 bytes that share templates and differ in ids and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CREATE = """CREATE TABLE {name} (
    timestamp DateTime64(3, 'UTC'),
    level LowCardinality(String),
    service LowCardinality(String),
    host LowCardinality(String),
    user_id UInt64,
    trace_id UUID,
    status UInt16,
    latency Float64,
    url String,
    message String
) ENGINE = MergeTree PARTITION BY {partition} ORDER BY (service, timestamp)"""

START_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
LEVELS = ["DEBUG", "INFO", "WARN", "ERROR"]
SERVICES = [
    *("api-gateway", "auth", "billing", "cart", "catalog", "checkout", "email", "fraud", "images", "inventory"),
    *("ledger", "notifications", "orders", "payments", "pricing", "profile", "related", "reviews", "search", "shop"),
]  # fmt: skip
ROUTES = [
    *("/v1/orders/", "/v1/cart/", "/v1/users/", "/v2/search?q=item-", "/v1/payments/", "/v1/items/", "/health?n="),
    *("/v1/sessions/", "/v2/recommendations/", "/v1/reviews?item=", "/v1/shipments/", "/static/img/"),
]  # fmt: skip
TEMPLATES = [
    ("request completed: upstream answered and the response was sent in full, connection kept; route=", " bytes="),
    ("cache miss for the requested key, falling back to the primary store and refreshing the entry; key=", " ttl_ms="),
    ("retrying the call to the downstream service after a transient failure with back-off; call=", " attempt="),
    ("connection pool is close to its limit, waiting for a free slot before serving this request; pool=", " waiting="),
    ("token verified against the issuer's published keys, session extended for this client; session=", " age_s="),
    ("timeout while waiting for the upstream: giving up and answering with an error; route=", " waited_ms="),
    ("slow statement: the query took longer than the configured threshold, plan kept; plan=", " rows="),
    ("payload validation failed for one or more fields of the document, rejecting it; document=", " errors="),
]
_TAIL = " region=eu-central-1 build=2026.01.3 thread=worker"


def log_block(block: int, rows: int, *, seed: int = 1, rows_per_second: int = 500) -> pa.Table:
    """Block number `block` of the log: `rows` rows in public Arrow form, in order of time."""
    random = np.random.default_rng([seed, block])
    step_ms = 1000 / rows_per_second
    times = START_MS + ((block * rows + np.arange(rows)) * step_ms + random.integers(0, 400, rows)).astype(np.int64)
    service = _skewed(random, len(SERVICES), rows, 1.1)
    host = service * 8 + random.integers(0, 8, rows)
    level = random.choice(len(LEVELS), rows, p=[0.12, 0.76, 0.09, 0.03])
    status = np.where(
        level == 3, random.choice([500, 502, 503, 504], rows), random.choice([200, 201, 204, 304, 404], rows)
    )
    latency = np.round(random.lognormal(2.2, 0.9, rows) * np.where(level == 3, 12, 1), 3)
    hosts = [f"{name}-{i:02d}.eu.example.net" for name in SERVICES for i in range(8)]
    item = random.integers(0, 200_000, rows)
    url = _join(_dictionary(_skewed(random, len(ROUTES), rows, 0.9), ROUTES), _digits(item))
    template = np.where(level == 3, random.integers(5, 8, rows), random.integers(0, 5, rows))
    heads, middles = zip(*TEMPLATES, strict=True)
    number = random.integers(0, 1_000_000, rows)
    message = _join(
        _dictionary(template, list(heads)), url, _dictionary(template, list(middles)), _digits(number),
        _constant(_TAIL, rows), _digits(random.integers(0, 64, rows)),
    )  # fmt: skip
    return pa.table(
        {
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
            "level": _dictionary(level, LEVELS),
            "service": _dictionary(service, SERVICES),
            "host": _dictionary(host, hosts),
            "user_id": pa.array(_skewed(random, 50_000, rows, 0.6).astype(np.uint64)),
            "trace_id": _uuids(random, rows),
            "status": pa.array(status.astype(np.uint16)),
            "latency": pa.array(latency),
            "url": url,
            "message": message,
        }
    )


def _skewed(random: np.random.Generator, values: int, rows: int, power: float) -> npt.NDArray[np.int64]:
    """`rows` random numbers from 0…values-1 with a Zipf-like distribution."""
    weight = 1 / np.arange(1, values + 1) ** power
    return np.searchsorted(np.cumsum(weight) / weight.sum(), random.random(rows)).clip(0, values - 1)


def _dictionary(codes: npt.NDArray[np.int64], names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names))


def _digits(values: npt.NDArray[np.int64]) -> pa.Array:
    return pc.cast(pa.array(values), pa.string())


def _constant(text: str, rows: int) -> pa.Array:
    return pa.repeat(text, rows)


def _join(*pieces: pa.Array) -> pa.Array:
    plain = [p.dictionary_decode() if pa.types.is_dictionary(p.type) else p for p in pieces]
    return pc.binary_join_element_wise(*plain, "")


def _uuids(random: np.random.Generator, rows: int) -> pa.Array:
    """Random version-4 UUIDs as canonical text."""
    raw = random.integers(0, 256, (rows, 16), dtype=np.uint8)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    hexdigits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    text = np.empty((rows, 36), dtype=np.uint8)
    places = [i for i in range(36) if i not in (8, 13, 18, 23)]
    text[:, [8, 13, 18, 23]] = ord("-")
    text[:, places[0::2]] = hexdigits[raw >> 4]
    text[:, places[1::2]] = hexdigits[raw & 15]
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))


SPARK_COLUMNS = (
    "timestamp timestamp, level string, service string, host string, user_id bigint, trace_id string, "
    "status int, latency double, url string, message string"
)


def spark_log_frame(spark: SparkSession, first_block: int, blocks: int, rows: int, **options: int) -> DataFrame:
    """The log as a Spark DataFrame of `blocks` blocks, generated by tasks; `options` as for `log_block`."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0).to_pylist():
                yield from _as_spark(log_block(first_block + block, rows, **options)).to_batches(max_chunksize=20_000)

    return spark.range(0, blocks, 1, blocks).mapInArrow(make, SPARK_COLUMNS)


def _as_spark(block: pa.Table) -> pa.Table:
    """Spark's types: no dictionaries, no unsigned numbers, microseconds."""
    types = {"timestamp": pa.timestamp("us", "UTC"), "user_id": pa.int64(), "status": pa.int32()}
    columns = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in block.columns]
    names = block.column_names
    return pa.table({n: c.cast(types.get(n, c.type)) for n, c in zip(names, columns, strict=True)})
