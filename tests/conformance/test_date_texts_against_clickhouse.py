"""Texts of dates and times of every odd kind mean what ClickHouse says they mean, or are refused as there.

`read_datetime` is compared over random texts; the doors (a cast, VALUES, TabSeparated, CSV, JSONEachRow) over a list.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.sql.delimited import read_csv, read_tsv
from mergelake.api.sql.json_rows import read_json_rows
from mergelake.api.sql.values import read_values
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.text import quote_string
from mergelake.core.convert.datetime_text import read_datetime
from mergelake.core.convert.storage import to_storage
from mergelake.core.convert.text_write import to_text
from mergelake.core.types.types import parse_type
from mergelake.query.embedded import engine
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

DAYS = (
    "2026-02-30|2026-02-28|2024-02-29|2023-02-29|2026-13-01|2026-00-01|2026-01-00|2026-1-2|2026/01/02|2026.1.02|20260102|"
    "1969-12-31|2149-06-07|2299-12-31|26-01-02|2026-01|2026|01/02/2026|13.02.26|2 Jan 2026|Jan 2 2026|January 2, 2026|"
    "Fri, 2 Jan 2026|02-01-2026|202601|2026 Jan|02-Feb-2026|2-February-86|1234567890|1234567890123"
)
TIMES = (
    "|T| | 10:00:00|T10:00:00| 24:00:00| 23:60:00| 23:59:60| 10:00| 10| 1:2:3| 10:00:00.5| 10:00:00.123456789|"
    " 10:00:00.| 100000|T100000|100000|, 10:00|.5"
)
ZONES = "||Z| Z|+02:00|-0330|+02| UTC| MSK|GMT| PM| am| x|x| |+123|,"
SIGNS = "0123456789 -/.:TZ+,JanPMamtuesx"
LAST = 9_223_372_036
"""The last second that nanoseconds in 64 bits reach."""


def drawn(rng: np.random.Generator) -> str:
    text = "".join(str(rng.choice(part.split("|"))) for part in (DAYS, TIMES, ZONES))
    if rng.random() < 0.2 and text:
        at = int(rng.integers(len(text)))
        text = text[:at] + str(rng.choice(list(SIGNS))) + text[at + int(rng.integers(2)) :]
    return text


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_random_texts(zone: str) -> None:
    rng = np.random.default_rng(len(zone))
    texts = pa.table({"x": sorted({drawn(rng) for _ in range(rounds(3000, 60_000))})})
    sql = f"SELECT x, reinterpretAsInt64(parseDateTime64BestEffortOrNull(x, 9, '{zone}')) AS v FROM Python(texts)"
    found = engine.run(sql, {"texts": texts}).table().to_pydict()
    stricter = 0
    for text, expected in zip(found["x"], found["v"], strict=True):
        try:
            seconds, fraction, end = read_datetime(text.encode(), zone)
        except MergelakeError as failure:
            stricter += expected is not None and "without a year" not in str(failure)
            continue
        if not -2_208_988_800 <= seconds < LAST:
            continue  # beyond what nanoseconds can hold, or what ClickHouse's calendar has
        mine = seconds * 10**9 + int(fraction[:9].ljust(9, b"0")) if end == len(text.encode()) else None
        assert mine == expected, text
    assert stricter < len(texts) / 50  # a few texts in which something stands twice


TEXTS = (
    "2026-02-30|2026-02-29|2024-02-29|2026-13-01|2026-00-00|0000-00-00|2026-1-2|20260102|1899-12-31|1900-01-01|2149-06-06|"
    "2149-06-07|2299-12-31|2300-01-01|1969-12-31|1970-01-01|2026-02-30 00:00:00|2026-02-28 24:00:00|2026-01-02 10:00|"
    "2026-01-02T10:00:00Z|2026-01-02 10:00:00.5|2026-01-02 10:00:00+02:00|2026-01-02 10:00:00 x|2106-02-07 06:28:15|"
    "2106-02-07 06:28:16|1234567890|2026-01-02 | 2026-01-02|2026-01-02 10-00-00|2026-1-2 10:00:00.1|abc||2 Jan 2026|"
    "2026-01-02 10:00:00.123456789123|1234567890.5|123|2026-01-02xxxxxxxxx"
)
KINDS = ["Date", "Date32", "DateTime('UTC')", "DateTime('Asia/Tokyo')", "DateTime64(3, 'UTC')", "DateTime64(9, 'UTC')"]
UNREADABLE = {
    *("CANNOT_PARSE_DATE", "CANNOT_PARSE_DATETIME", "CANNOT_PARSE_TEXT", "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
    *("ATTEMPT_TO_READ_AFTER_EOF", "CANNOT_READ_ALL_DATA", "INCORRECT_DATA"),
}
"""Which of them ClickHouse gives differs from door to door."""


def theirs(sql: str) -> str:
    try:
        return engine.run(sql, output="TSV").text().rstrip("\n")
    except MergelakeError as failure:
        return "unreadable" if failure.name in UNREADABLE else failure.name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", ["cast", "Values", "TSV", "CSV", "JSONEachRow"])
def test_a_text_means_the_same_at_every_door(door: str, kind: str) -> None:
    types = {"cell": parse_type(kind)}
    for text in TEXTS.split("|"):
        data = {
            "Values": f"({quote_string(text)})",
            "TSV": f"{text}\n",
            "CSV": f'"{text}"\n',
            "JSONEachRow": json.dumps({"cell": text}),
            "cast": "",
        }[door]
        if door == "cast":
            expected = theirs(f"SELECT CAST(materialize({quote_string(text)}), {quote_string(kind)})")
        else:
            structure = quote_string(f"cell {kind}")
            expected = theirs(f"SELECT cell FROM format({door}, {structure}, {quote_string(data)})")
        try:
            match door:
                case "Values":
                    column = read_values(data, types, script=data, at=0).table["cell"]
                case "TSV":
                    column = read_tsv(data, types, header=False).table["cell"]
                case "CSV":
                    column = read_csv(data, types, header=False).table["cell"]
                case "JSONEachRow":
                    column = read_json_rows(data, types).table["cell"]
                case _:
                    column = pa.array([text])
            found = to_text(to_storage(column, types["cell"]), types["cell"])[0].as_py().decode()
        except MergelakeError as failure:
            found = "unreadable" if failure.name in UNREADABLE else failure.name
        if (door, kind, found) == ("CSV", "Date32", "1900-01-01") and text != found:
            assert expected == "1970-01-01"  # what is no day at all is the type's first one at every other door
        else:
            assert found == expected, text
