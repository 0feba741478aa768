"""`make compat`: do older ClickHouse builds take the parts that we write?

A table of all types that the build knows is written as two parts, with each of LZ4, NONE and ZSTD, and in each
layout and profile; column codecs, skip indexes and forms of keys follow. Every build (chdb from PyPI, in a virtual
environment of its own under .cache/compat) attaches the parts, reads them, runs CHECK TABLE, merges them by OPTIMIZE
FINAL and reads them again. The text of every column must be the newest build's, which the conformance tests compare
with ours bit by bit. The page is docs/compatibility.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mergelake.api.sql.part_files import part_schema  # noqa: E402
from mergelake.core.base.clock import SystemClock  # noqa: E402
from mergelake.core.base.ids import RandomIds  # noqa: E402
from mergelake.core.model.names import PartInfo  # noqa: E402
from mergelake.core.types.types import parse_type  # noqa: E402
from mergelake.store.objects.directory import DirectoryStore  # noqa: E402
from mergelake.table.write.insert import write_blocks  # noqa: E402
from tests.helpers.random_arrays import random_array  # noqa: E402

BUILDS = ("0.15.0", "1.4.1", "2.1.1", "3.7.2")
ROWS = 3000
LONG = "c" * 140
GOOD = ("ok", "–", "no")
LIMITS = {("23.6", "a column name of 140 letters"): "no"}
"""What a build cannot do, and why, stands under the table."""

TYPES = (
    "Int8", "Int16", "Int32", "Int64", "Int128", "Int256", "UInt8", "UInt16", "UInt32", "UInt64", "UInt128", "UInt256",
    "Float32", "Float64", "BFloat16", "Bool", "String", "FixedString(3)", "Date", "Date32", "DateTime('UTC')",
    "DateTime('Asia/Kolkata')", "DateTime64(3, 'UTC')", "DateTime64(9, 'UTC')", "Time", "Time64(3)",
    "Enum8('a' = -3, 'b' = 0, 'c' = 7)", "Enum16('x' = 1, 'y' = 300)", "UUID", "IPv4", "IPv6",
    "Decimal(9, 2)", "Decimal(18, 4)", "Decimal(38, 6)", "Decimal(76, 20)",
    "Nullable(Int32)", "Nullable(String)", "Nullable(UUID)", "Nullable(DateTime64(6, 'UTC'))",
    "Nullable(Decimal(38, 6))",
    "LowCardinality(String)", "LowCardinality(Nullable(String))", "LowCardinality(FixedString(3))",
    "Array(UInt16)", "Array(String)", "Array(Nullable(String))", "Array(Array(Int64))", "Array(LowCardinality(String))",
    "Map(String, UInt64)", "Map(LowCardinality(String), Array(Nullable(UInt64)))",
    "Tuple(x UInt8, y Array(String))", "Tuple(UInt8, Nullable(String))", "Array(Tuple(UInt8, String))",
    "Nested(a UInt8, b String)", "SimpleAggregateFunction(sum, UInt64)", "IntervalDay", "Point", "Ring", "Polygon",
)  # fmt: skip
CODECS = {
    "Delta, ZSTD": "Int64", "DoubleDelta": "DateTime('UTC')", "DoubleDelta, LZ4": "Int64", "Gorilla": "Float64",
    "Gorilla, ZSTD": "Float32", "T64": "UInt32", "T64('bit'), LZ4": "Int16", "FPC": "Float64", "GCD, LZ4": "UInt64",
    "LZ4HC": "String", "ZSTD(9)": "String", "NONE": "Nullable(Int32)", "Delta(4), LZ4": "Array(UInt32)",
}  # fmt: skip
YOUNG = [i for i, codec in enumerate(CODECS) if "GCD" in codec]
"""Codecs that some builds lack; the others stand in one table."""
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


INDEXES = (
    "INDEX a k TYPE minmax, INDEX b k TYPE set(0) GRANULARITY 2, INDEX c k TYPE bloom_filter(0.01), "
    "INDEX d s TYPE tokenbf_v1(64, 2, 0), INDEX e s TYPE ngrambf_v1(3, 64, 2, 0) GRANULARITY 3, "
    "INDEX f lower(s) TYPE set(10)"
)
INDEXED = "skip indexes of each type"
LAYOUTS = {
    "classic, Wide": {},
    "classic, Compact": {"min_rows_for_wide_part": "1000000"},
    "modern, Wide": {"part_profile": "modern"},
    "modern, Compact": {"part_profile": "modern", "min_rows_for_wide_part": "1000000"},
}
"""Settings under which we write each of them."""


@dataclass
class Build:
    """One ClickHouse: what it knows and what it answered."""

    python: Path
    families: set[str]
    jobs: list[dict]
    version: str
    answers: dict[str, dict]


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        pythons = [*map(_environment, BUILDS), Path(sys.executable)]
        with ThreadPoolExecutor(2) as pool:  # old builds wait more than they work
            builds = list(pool.map(lambda python: _run(python, Path(folder)), pythons))
    newest = builds[-1]
    cells = {build.version: _cells(build, newest) for build in builds}
    bad = [
        f"{version} {label}: {cell}"
        for version, found in cells.items()
        for label, cell in found.items()
        if cell not in GOOD
    ]
    (ROOT / "docs" / "compatibility.md").write_text(_page(builds, cells))
    print("\n".join(bad) or "All builds agree.")
    for build in builds:
        for job in build.jobs:
            answer = build.answers.get(job["name"], {})
            if "failure" in answer or "unknown" in answer:
                print(build.version, job["name"], answer)
    print(f"{len(builds)} builds, {time.monotonic() - started:.0f} s; see docs/compatibility.md")
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


def _run(python: Path, folder: Path) -> Build:
    """One build's answers; a build that ends in the middle answers as far as it came."""
    started = time.monotonic()
    worker = Path(__file__).with_name("compat_worker.py")
    told = subprocess.run([python, worker, "families"], capture_output=True, text=True, check=True).stdout
    families = set(json.loads(told.strip().splitlines()[-1]))
    home = folder / python.parts[-3]
    home.mkdir()
    jobs = _write(home, families)
    (home / "jobs.json").write_text(json.dumps(jobs))
    ended = subprocess.run(
        [python, worker, home / "jobs.json", home / "answers.json"],
        capture_output=True, text=True, errors="replace", timeout=1800,
    )  # fmt: skip
    if not (home / "answers.json").exists():
        sys.exit(f"{python} did not answer:\n{ended.stderr[-2000:]}")
    found = json.loads((home / "answers.json").read_text())
    print(
        f"{found['version']}: {len(jobs)} tables, {time.monotonic() - started:.0f} s, code {ended.returncode}",
        flush=True,
    )
    return Build(python, families, jobs, found["version"], found["answers"])


def _known(kind: str, families: set[str]) -> bool:
    return set(re.findall(r"\b[A-Z]\w*", re.sub(r"'[^']*'", "", kind))) <= families


def _write(folder: Path, families: set[str]) -> list[dict]:
    """The tables for a build with these types, their parts as directories."""
    types = {f"c{i}": kind for i, kind in enumerate(TYPES) if _known(kind, families)}
    jobs = [_table(folder, f"types_{codec}", types, "ORDER BY k", default=codec) for codec in ("LZ4", "NONE", "ZSTD")]
    columns = {f"c{i}": kind for i, kind in enumerate(CODECS.values()) if i not in YOUNG}
    jobs.append(_table(folder, "codecs", columns, "ORDER BY k", codecs={f"c{i}": c for i, c in enumerate(CODECS)}))
    for i in YOUNG:
        codec, kind = list(CODECS.items())[i]
        jobs.append(_table(folder, f"codec_{i}", {"c": kind}, "ORDER BY k", codecs={"c": codec}))
    for i, (columns, clauses) in enumerate(FORMS.values()):
        jobs.append(_table(folder, f"form_{i}", columns, clauses))
    clauses = "ORDER BY tuple() SETTINGS index_granularity = 64"
    jobs.append(_table(folder, "indexed", {"s": "String"}, clauses, indexes=INDEXES))
    for i, settings in enumerate(LAYOUTS.values()):
        jobs.append(_table(folder, f"layout_{i}", types, "ORDER BY k", settings=settings))
    return jobs


def _table(
    folder: Path,
    name: str,
    columns: dict[str, str],
    clauses: str,
    default: str = "LZ4",
    codecs: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    indexes: str = "",
) -> dict:
    random = np.random.default_rng(sum(name.encode()))
    kinds = {"k": "UInt64", **columns}
    codecs = codecs or {}
    text = ", ".join(f"`{n}` {k}{f' CODEC({codecs[n]})' if n in codecs else ''}" for n, k in kinds.items())
    text += f", {indexes}" if indexes else ""
    schema = part_schema(f"CREATE TABLE t ({text}) ENGINE = MergeTree {clauses}")
    own = {"default_compression_codec": default, "max_partitions_per_insert_block": "0", **(settings or {})}
    schema = replace(schema, settings={"index_granularity": "700", **schema.settings, **own})
    parts: dict[str, str] = {}
    for half in (0, 1):
        rows = pa.table({"k": pa.array(random.permutation(np.arange(half, ROWS, 2)).astype(np.uint64))})
        for column, kind in columns.items():
            own = np.random.default_rng([half, *f"{name} {kind}".encode()])  # the same in every build's table
            values = _values(own, kind, rows.num_rows)
            if "PARTITION" in clauses:  # few partitions
                few = _values(np.random.default_rng([*kind.encode()]), kind, 3)
                values = few.take(pa.array(own.integers(0, 3, rows.num_rows)))
            for found, array in _flat(column, kind, values):
                rows = rows.append_column(found, array)
        home = folder / name
        written = write_blocks(
            DirectoryStore(str(home)), "", schema, [rows], ids=RandomIds(), clock=SystemClock(),
            name_part=lambda partition, level, half=half: str(PartInfo(partition.id, half + 1, half + 1, level)),
        )  # fmt: skip
        parts |= {manifest.id: str(home / manifest.id) for manifest in written}
    return {
        "name": name, "columns": text, "clauses": clauses, "parts": parts, "names": _shown_columns(kinds),
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


def _flat(name: str, kind: str, array: pa.Array) -> list[tuple[str, pa.Array]]:
    """A Nested column as the arrays that it is, of one length in each row."""
    if not kind.startswith("Nested"):
        return [(name, array)]
    elements = array.values
    return [
        (
            f"{name}.{field.name}",
            pa.ListArray.from_arrays(array.offsets, elements.field(i), type=pa.list_(field.with_name("item"))),
        )
        for i, field in enumerate(elements.type)
    ]


def _shown_columns(kinds: dict[str, str]) -> list[str]:
    """The column of ours to which each column of SELECT * belongs."""
    wide = {name: 2 if kind.startswith("Nested") else 1 for name, kind in kinds.items()}
    return [name for name, count in wide.items() for _ in range(count)]


def _cells(build: Build, newest: Build) -> dict[str, str]:
    """Label of each row of the page -> `ok`, `–` for what the build does not know, else what is wrong."""
    out = {}
    jobs = {job["name"]: job for job in build.jobs}
    others = {job["name"]: job for job in newest.jobs}

    def judge(name: str, column: str | None = None) -> str:
        return _verdict(jobs[name], build.answers.get(name, {}), others[name], newest.answers.get(name, {}), column)

    for i, kind in enumerate(TYPES):
        if not _known(kind, build.families):
            out[kind] = "–"
            continue
        verdicts = {judge(f"types_{codec}", f"c{i}") for codec in ("LZ4", "NONE", "ZSTD")}
        out[kind] = ", ".join(sorted(verdicts - {"ok"})) or "ok"
    for i, (codec, kind) in enumerate(CODECS.items()):
        out[f"{kind} CODEC({codec})"] = judge(f"codec_{i}") if i in YOUNG else judge("codecs", f"c{i}")
    for i, label in enumerate(FORMS):
        out[label] = LIMITS.get((".".join(build.version.split(".")[:2]), label)) or judge(f"form_{i}")
    out[INDEXED] = judge("indexed")
    for i, label in enumerate(LAYOUTS):
        answer = build.answers.get(f"layout_{i}", {})
        refused = "failure" in answer or answer.get("before", {}).get("rows") == 0
        out[label] = "no" if refused and "modern" in label else judge(f"layout_{i}")
    return out


def _verdict(job: dict, answer: dict, other_job: dict, other: dict, column: str | None) -> str:
    if "unknown" in answer:
        return "–"
    if "after" not in answer:
        return "failed"
    theirs = _texts(other_job, other.get("before", {}))
    for state in (answer["before"], answer["after"]):
        if state["rows"] != ROWS:
            return "rows"
        if state["check"] != "1":
            return "CHECK TABLE"
        if state["range"] != job["expected"]:
            return "primary key"
        texts = _texts(job, state)
        if any(texts[name] != theirs.get(name) for name in ([column] if column else texts)):
            return "values"
    return "ok" if answer["parts"] == answer["partitions"] else "merge"


def _texts(job: dict, state: dict) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name, text in zip(job["names"], state.get("text", ()), strict=False):
        out.setdefault(name, []).append(text)
    return out


def _page(builds: list[Build], cells: dict[str, dict[str, str]]) -> str:
    lines = [
        "# Which ClickHouse reads our parts",
        "",
        "<!-- Written by `make compat` (tools/compat.py). Do not edit. -->",
        "",
        f"Run on {datetime.now(UTC):%Y-%m-%d} with ClickHouse {', '.join(cells)}",
        f"(chdb {', '.join(BUILDS)} from PyPI, and the one that this project runs with).",
        "",
        "Tables of two parts that mergelake wrote: all types that a build knows, with LZ4, NONE and ZSTD, and in each",
        "layout and profile; column codecs; forms of keys and names. All but the last table is about Wide parts of the",
        "classic profile, which is the default.",
        "",
        "**ok**: the build attached the parts (`ATTACH PART`), `CHECK TABLE` passed, a range of the primary key gave",
        "the right rows, the text of the column was the newest build's, `OPTIMIZE … FINAL` merged the parts, and all",
        "of it held once more afterwards. **–**: the build does not know the type or codec.",
        "",
    ]
    kinds = {
        "Type": list(TYPES),
        "Codec": [f"{kind} CODEC({codec})" for codec, kind in CODECS.items()],
        "Form": [*FORMS, INDEXED],
        "Profile and layout, all types": list(LAYOUTS),
    }
    for title, labels in kinds.items():
        lines += [f"| {title} | {' | '.join(cells)} |", f"| --- |{' --- |' * len(cells)}"]
        for label in labels:
            found = [cells[build.version][label] for build in builds]
            shown = f"`{label}`" if title in ("Type", "Codec") else label
            lines.append(f"| {shown} | {' | '.join(cell if cell in GOOD else f'**{cell}**' for cell in found)} |")
        lines.append("")
    lines += [
        "**no**: the build refuses such parts when they are attached; none reads them wrongly. Stream names of more",
        "than 127 bytes are written under their hash, which ClickHouse learned after 23.6; the modern profile is for",
        "ClickHouse 25.11 and newer.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
