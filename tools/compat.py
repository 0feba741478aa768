"""`make compat`: do older ClickHouse builds take the parts that we write?

Each type is written as two parts with each of LZ4, NONE and ZSTD; column codecs and forms of keys follow. Every build
(chdb from PyPI, in a virtual environment of its own under .cache/compat) attaches the same bytes, reads them, runs CHECK
TABLE, merges them by OPTIMIZE FINAL and reads them again. The text of all rows must be the newest build's, which the
conformance tests compare with ours bit by bit. The table goes to docs/compatibility.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import venv
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mergelake.core.clock import SystemClock  # noqa: E402
from mergelake.core.ids import RandomIds  # noqa: E402
from mergelake.core.names import PartInfo  # noqa: E402
from mergelake.core.types import parse_type  # noqa: E402
from mergelake.sql.part_files import _schema  # noqa: E402
from mergelake.store.directory import DirectoryStore  # noqa: E402
from mergelake.table.insert import write_blocks  # noqa: E402
from tests.helpers.random_arrays import random_array  # noqa: E402

BUILDS = ("0.15.0", "1.4.1", "2.1.1", "3.7.2")
ROWS = 3000
LONG = "c" * 140

TYPES = (
    "Int8", "Int16", "Int32", "Int64", "Int128", "Int256", "UInt8", "UInt16", "UInt32", "UInt64", "UInt128", "UInt256",
    "Float32", "Float64", "BFloat16", "Bool", "String", "FixedString(3)", "Date", "Date32", "DateTime('UTC')",
    "DateTime('Asia/Kolkata')", "DateTime64(3, 'UTC')", "DateTime64(9, 'UTC')", "Time", "Time64(3)",
    "Enum8('a' = -3, 'b' = 0, 'c' = 7)", "Enum16('x' = 1, 'y' = 300)", "UUID", "IPv4", "IPv6",
    "Decimal(9, 2)", "Decimal(18, 4)", "Decimal(38, 6)", "Decimal(76, 20)",
    "Nullable(Int32)", "Nullable(String)", "Nullable(UUID)", "Nullable(DateTime64(6, 'UTC'))", "Nullable(Decimal(38, 6))",
    "LowCardinality(String)", "LowCardinality(Nullable(String))", "LowCardinality(FixedString(3))",
    "Array(UInt16)", "Array(String)", "Array(Nullable(String))", "Array(Array(Int64))", "Array(LowCardinality(String))",
    "Map(String, UInt64)", "Map(LowCardinality(String), Array(Nullable(UInt64)))",
    "Tuple(x UInt8, y Array(String))", "Tuple(UInt8, Nullable(String))", "Array(Tuple(a UInt8, b String))",
    "Nested(a UInt8, b String)", "SimpleAggregateFunction(sum, UInt64)", "IntervalDay", "Point", "Ring", "Polygon",
)  # fmt: skip
CODECS = {
    "Delta, ZSTD": "Int64", "DoubleDelta": "DateTime('UTC')", "DoubleDelta, LZ4": "Int64", "Gorilla": "Float64",
    "Gorilla, ZSTD": "Float32", "T64": "UInt32", "T64('bit'), LZ4": "Int16", "FPC": "Float64", "GCD, LZ4": "UInt64",
    "LZ4HC": "String", "ZSTD(9)": "String", "NONE": "Nullable(Int32)", "Delta(4), LZ4": "Array(UInt32)",
}  # fmt: skip
FORMS = {
    "PARTITION BY month, three key columns": (
        {"d": "Date", "s": "String"}, "PARTITION BY toYYYYMM(d) ORDER BY (d, s, k)"),
    "PARTITION BY tuple of String and expression": (
        {"s": "LowCardinality(String)"}, "PARTITION BY (s, k % 2) ORDER BY (s, k)"),
    "PRIMARY KEY shorter than ORDER BY": ({"e": "UInt8"}, "PRIMARY KEY e ORDER BY (e, k)"),
    "expressions in the key": ({"t": "DateTime('UTC')"}, "ORDER BY (toStartOfHour(t), cityHash64(k))"),
    "Nullable in the key": ({"n": "Nullable(Int32)"}, "ORDER BY (n, k) SETTINGS allow_nullable_key = 1"),
    "ORDER BY tuple()": ({"s": "String"}, "ORDER BY tuple()"),
    "many granules": ({"s": "String"}, "ORDER BY k SETTINGS index_granularity = 16"),
    "a column name of 140 letters": ({LONG: "Array(Nullable(String))"}, "ORDER BY k"),
    "names that need escaping": ({"a b.c-ü": "Nullable(String)", "n.x": "Array(UInt8)"}, "ORDER BY k"),
}  # fmt: skip


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        jobs = _write(Path(folder))
        (Path(folder) / "jobs.json").write_text(json.dumps(jobs))
        found = [_run(python, Path(folder)) for python in (*map(_environment, BUILDS), sys.executable)]
    newest = found[-1]["answers"]
    bad = [
        f"{answer['version']} {job['name']}: {answer['answers'].get(job['name'])}"
        for answer in found
        for job in jobs
        if _verdict(job, answer["answers"].get(job["name"], {}), newest[job["name"]]) not in ("ok", "")
    ]
    (ROOT / "docs" / "compatibility.md").write_text(_page(jobs, found))
    print("\n".join(bad) or "All builds agree.")
    print(f"{len(jobs)} tables, {len(found)} builds, {time.monotonic() - started:.0f} s; see docs/compatibility.md")
    sys.exit(bool(bad))


def _environment(build: str) -> Path:
    """The Python of a virtual environment with this chdb; made at the first call."""
    home = ROOT / ".cache" / "compat" / f"chdb-{build}"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    if not list(home.glob("lib/python*/site-packages/chdb")):
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"chdb=={build}"], check=True)
    return python


def _run(python: str | Path, folder: Path) -> dict:
    """One build's answers; a build that ends in the middle answers as far as it came."""
    answers = folder / "answers.json"
    answers.unlink(missing_ok=True)
    worker = Path(__file__).with_name("compat_worker.py")
    ended = subprocess.run(
        [python, worker, folder / "jobs.json", answers], capture_output=True, text=True, errors="replace", timeout=1800
    )
    if not answers.exists():
        sys.exit(f"{python} did not answer:\n{ended.stderr[-2000:]}")
    print(python, "ended with", ended.returncode, flush=True)
    return json.loads(answers.read_text())


def _write(folder: Path) -> list[dict]:
    """All tables, their parts as directories."""
    jobs: list[dict] = []
    for kind in TYPES:
        for codec in ("LZ4", "NONE", "ZSTD"):
            jobs.append(_table(folder, len(jobs), kind, {"c": kind}, "ORDER BY k", default=codec))
    for codec, kind in CODECS.items():
        jobs.append(_table(folder, len(jobs), f"{kind} CODEC({codec})", {"c": kind}, "ORDER BY k", codec=codec))
    for what, (columns, clauses) in FORMS.items():
        jobs.append(_table(folder, len(jobs), what, columns, clauses))
    return jobs


def _table(
    folder: Path, number: int, label: str, columns: dict[str, str], clauses: str, default: str = "LZ4", codec: str = ""
) -> dict:
    random = np.random.default_rng(number)
    kinds = {"k": "UInt64", **columns}
    text = ", ".join(f"`{n}` {k}{f' CODEC({codec})' if codec and n != 'k' else ''}" for n, k in kinds.items())
    schema = _schema(f"CREATE TABLE t ({text}) ENGINE = MergeTree {clauses}", None)
    settings = {**schema.settings, "default_compression_codec": default, "max_partitions_per_insert_block": "0"}
    settings.setdefault("index_granularity", "700")
    schema = type(schema)(**{**{f: getattr(schema, f) for f in schema.__dataclass_fields__}, "settings": settings})
    parts: dict[str, str] = {}
    for half in (0, 1):
        rows = pa.table({"k": pa.array(random.permutation(np.arange(half, ROWS, 2)).astype(np.uint64))})
        for name, kind in columns.items():
            rows = rows.append_column(name, _values(random, kind, rows.num_rows))
        home = folder / f"t{number}"
        written = write_blocks(
            DirectoryStore(str(home)), "", schema, [rows], ids=RandomIds(), clock=SystemClock(),
            name_part=lambda partition, level, half=half: str(PartInfo(partition.id, half + 1, half + 1, level)),
        )  # fmt: skip
        parts |= {manifest.id: str(home / manifest.id) for manifest in written}
    return {
        "name": f"t{number}", "label": label, "codec": default, "columns": text, "clauses": clauses, "parts": parts,
        "where": "k >= 1000 AND k < 1100", "expected": ["100", str(sum(range(1000, 1100)))],
    }  # fmt: skip


def _values(random: np.random.Generator, kind: str, rows: int) -> pa.Array:
    """Random values that every version prints alike: none outside of what the type promises."""
    if kind in ("Date32", "Time", "Time64(3)"):
        low, high = {"Date32": (-25567, 120529), "Time": (-3599999, 3599999)}.get(kind, (-3599999000, 3599999000))
        return pa.array(random.integers(low, high, rows), pa.int64() if kind == "Time64(3)" else pa.int32())
    if kind == "BFloat16":
        return pa.array((random.normal(size=rows).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
    return random_array(random, parse_type(kind), rows)


def _verdict(job: dict, answer: dict, newest: dict) -> str:
    """`ok`, empty where the build does not know the type, else what is wrong."""
    if "unknown" in answer:
        return ""
    if "after" not in answer:
        return "failed"
    if answer["rows"] != str(ROWS):
        return "rows"
    for state in (answer["before"], answer["after"]):
        if state["check"] != "1":
            return "CHECK TABLE"
        if state["range"] != job["expected"]:
            return "primary key"
        if state["text"] != newest.get("before", {}).get("text"):
            return "values"
    return "ok" if answer["parts"] == answer["partitions"] else "merge"


def _page(jobs: list[dict], found: list[dict]) -> str:
    versions = [".".join(answer["version"].split(".")[:2]) for answer in found]
    newest = found[-1]["answers"]
    rows: dict[str, list[dict]] = {}
    for job in jobs:
        rows.setdefault(job["label"], []).append(job)
    lines = [
        "# Which ClickHouse reads our parts",
        "",
        "<!-- Written by `make compat` (tools/compat.py). Do not edit. -->",
        "",
        f"Run on {datetime.now(UTC):%Y-%m-%d} with ClickHouse {', '.join(answer['version'] for answer in found)}",
        f"(chdb {', '.join(BUILDS)} from PyPI, and the one that this project runs with).",
        "",
        "Each row is a table of two parts that `mergelake` wrote; types are written three times, with LZ4, NONE and ZSTD.",
        "**ok**: the build attached both parts (`ATTACH PART`), `CHECK TABLE` passed, the text of all rows was the newest",
        "build's, a range of the primary key gave the right rows, `OPTIMIZE … FINAL` merged the parts, and all of it held",
        "once more afterwards. **–**: the build does not know the type or codec.",
        "",
    ]
    kinds = [("Type", TYPES), ("Codec", [f"{k} CODEC({c})" for c, k in CODECS.items()]), ("Form", list(FORMS))]
    for title, labels in kinds:
        lines += [f"| {title} | {' | '.join(versions)} |", f"| --- |{' --- |' * len(versions)}"]
        for label in labels:
            cells = []
            for answer in found:
                verdicts = {
                    _verdict(job, answer["answers"].get(job["name"], {}), newest[job["name"]]) for job in rows[label]
                }
                wrong = sorted(verdicts - {"ok", ""})
                cells.append(f"**{', '.join(wrong)}**" if wrong else "ok" if "ok" in verdicts else "–")
            shown = f"`{label}`" if title != "Form" else label
            lines.append(f"| {shown} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
