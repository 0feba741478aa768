"""A web-analytics table like that of ClickBench, generated from a seed, the same on every machine.

Distributed like real traffic: a few counters, users, URLs and phrases make up most of the rows, most search phrases are
empty, most visitors come from a few regions. Users can try and measure queries with it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

CREATE_TABLE = """CREATE TABLE {name}
(
    WatchID UInt64,
    CounterID UInt32,
    EventDate Date,
    EventTime DateTime('UTC'),
    UserID Int64,
    URL String,
    Title String,
    Referer String,
    RegionID UInt32,
    OS UInt8,
    UserAgent UInt8,
    SearchPhrase String,
    SearchEngineID UInt16,
    AdvEngineID UInt8,
    ResolutionWidth UInt16,
    ResolutionHeight UInt16,
    IsRefresh Bool,
    MobilePhoneModel LowCardinality(String),
    Device Enum8('desktop' = 1, 'phone' = 2, 'tablet' = 3),
    Duration Float64,
    Price Decimal(18, 2),
    ClientTime DateTime64(3, 'UTC'),
    Income Nullable(Int32),
    Interests Array(UInt16),
    SessionID UUID
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(EventDate)
ORDER BY (CounterID, EventDate, intHash32(UserID), EventTime)
SAMPLE BY intHash32(UserID)
"""
"""The CREATE TABLE statement; `name` is the table's name."""

_FIRST_SECOND = 1_372_636_800
"""2013-07-01 00:00:00 UTC, where ClickBench's month begins."""
_DAYS = 61
_WORDS = [
    "weather",
    "cinema",
    "news",
    "football",
    "recipe",
    "car",
    "price",
    "map",
    "hotel",
    "train",
    "ticket",
    "music",
    "film",
    "phone",
    "review",
    "garden",
    "bank",
    "school",
    "doctor",
    "game",
    "shop",
    "sale",
    "house",
    "street",
    "winter",
    "summer",
    "kitchen",
    "python",
    "clickhouse",
    "lake",
    "bucket",
]
_HOSTS = ("example.com", "shop.example", "news.example", "maps.example", "mail.example", "video.example")
_PHONES = ("", "iPhone", "Galaxy", "Nexus", "Lumia", "Xperia")


def generate(rows: int, seed: int = 0) -> pa.Table:
    """`rows` page views in the public Arrow form of `CREATE_TABLE`'s columns, in random order."""
    rng = np.random.default_rng(seed)
    users = rng.integers(1, 1 << 62, max(1, rows // 8), dtype=np.int64)
    urls = _urls(rng, max(20, rows // 10))
    phrases = _phrases(rng, max(10, rows // 20))
    user = users[_skewed(rng, rows, len(users))]
    second = (_FIRST_SECOND + rng.integers(0, _DAYS * 86400, rows)).astype(np.int64)
    phrase_at = np.where(rng.random(rows) < 0.7, 0, _skewed(rng, rows, len(phrases)))
    phone = np.where(rng.random(rows) < 0.8, 0, rng.integers(0, len(_PHONES), rows)).astype(np.int32)
    url = urls.take(pa.array(_skewed(rng, rows, len(urls))))
    columns: dict[str, pa.Array] = {
        "WatchID": pa.array(rng.integers(0, 1 << 63, rows, dtype=np.uint64)),
        "CounterID": pa.array((_skewed(rng, rows, 200) + 1).astype(np.uint32)),
        "EventDate": pa.array((second // 86400).astype(np.int32)).cast(pa.date32()),
        "EventTime": pa.array(second).cast(pa.timestamp("s", "UTC")),
        "UserID": pa.array(user),
        "URL": url,
        "Title": _titles(rng, rows),
        "Referer": urls.take(pa.array(_skewed(rng, rows, len(urls)))),
        "RegionID": pa.array((_skewed(rng, rows, 500) + 1).astype(np.uint32)),
        "OS": pa.array(rng.integers(0, 20, rows).astype(np.uint8)),
        "UserAgent": pa.array(rng.integers(0, 60, rows).astype(np.uint8)),
        "SearchPhrase": phrases.take(pa.array(phrase_at)),
        "SearchEngineID": pa.array(np.where(phrase_at == 0, 0, rng.integers(1, 90, rows)).astype(np.uint16)),
        "AdvEngineID": pa.array(np.where(rng.random(rows) < 0.95, 0, rng.integers(1, 20, rows)).astype(np.uint8)),
        "ResolutionWidth": pa.array(rng.choice(np.array([0, 1024, 1280, 1366, 1920, 2560], np.uint16), rows)),
        "ResolutionHeight": pa.array(rng.choice(np.array([0, 768, 800, 1080, 1440], np.uint16), rows)),
        "IsRefresh": pa.array(rng.random(rows) < 0.2),
        "MobilePhoneModel": pa.DictionaryArray.from_arrays(pa.array(phone), pa.array(_PHONES)),
        "Device": pa.DictionaryArray.from_arrays(
            pa.array(rng.integers(0, 3, rows).astype(np.int8)), pa.array(["desktop", "phone", "tablet"])
        ),
        # Multiples of a quarter: their sums are exact in any order, so results can be compared exactly.
        "Duration": pa.array(rng.integers(0, 40_000, rows) / 4.0),
        "Price": _cents(rng.integers(-1_000, 1_000_000, rows)),
        "ClientTime": pa.array(second * 1000 + rng.integers(0, 1000, rows)).cast(pa.timestamp("ms", "UTC")),
        "Income": pa.array(rng.integers(0, 5000, rows).astype(np.int32), mask=rng.random(rows) < 0.3),
        "Interests": _interests(rng, rows),
        "SessionID": _uuids(rng, user),
    }
    fields = [pa.field(name, array.type, nullable=name == "Income") for name, array in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _skewed(rng: np.random.Generator, rows: int, distinct: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Random numbers in [0, distinct), small ones far more often."""
    return np.minimum((rng.random(rows) ** 4 * distinct).astype(np.int64), distinct - 1)


def _urls(rng: np.random.Generator, distinct: int) -> pa.Array:
    host, a, b = (rng.integers(0, n, distinct) for n in (len(_HOSTS), len(_WORDS), len(_WORDS)))
    return pa.array(
        [
            f"http://{_HOSTS[h]}/{_WORDS[x]}/{_WORDS[y]}?id={i}"
            for i, (h, x, y) in enumerate(zip(host, a, b, strict=True))
        ]
    )


def _phrases(rng: np.random.Generator, distinct: int) -> pa.Array:
    words = rng.integers(0, len(_WORDS), (distinct, 3))
    return pa.array(["", *(" ".join(_WORDS[w] for w in row[: 1 + i % 3]) for i, row in enumerate(words[1:]))])


def _titles(rng: np.random.Generator, rows: int) -> pa.Array:
    titles = pa.array([f"{a.title()} and {b} — {host}" for a in _WORDS for b in _WORDS[:8] for host in _HOSTS[:3]])
    return titles.take(pa.array(_skewed(rng, rows, len(titles))))


def _cents(cents: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    wide = np.stack([cents, np.where(cents < 0, -1, 0)], axis=1).astype(np.int64)
    return pa.Array.from_buffers(pa.decimal128(18, 2), len(cents), [None, pa.py_buffer(np.ascontiguousarray(wide))])


def _interests(rng: np.random.Generator, rows: int) -> pa.Array:
    lengths = rng.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.array(rng.integers(0, 100, int(offsets[-1])).astype(np.uint16))
    kind = pa.list_(pa.field("item", pa.uint16(), nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def _uuids(rng: np.random.Generator, user: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    distinct, position = np.unique(user, return_inverse=True)
    digits = [rng.bytes(16).hex() for _ in distinct]
    texts = pa.array([f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits])
    return texts.take(pa.array(position))
