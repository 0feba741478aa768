"""The main job on a directory, from nothing to a served table, with progress and a report.

1. Ingest a service log through Spark: half of it in batches of 20,000 rows (the hard case), half in bulk,
   while a node merges in the background.
2. Query it with ClickHouse's SQL.
3. Publish it, let a stock ClickHouse attach the same directory, and compare the answers.
4. Report what it cost, and draw how parts grew and merged.

Run `make demo`, or `python examples/demo.py --rows 2000000 --out demo-output`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import mergelake as ml
from mergelake.cli.timeline import part_lives, render_timeline
from mergelake.node.runner import Node
from mergelake.spark.session import session
from mergelake.testing.logtable import CREATE, log_block

BATCH_ROWS = 20_000
BULK_BLOCK_ROWS = 100_000
QUERIES = {
    "Errors by service": "SELECT service, count() AS errors, round(quantileExact(0.5)(latency), 3) AS p50 FROM logs "
    "WHERE level = 'ERROR' GROUP BY service ORDER BY errors DESC, service LIMIT 5",
    "Slowest routes": "SELECT extract(url, '^/[a-z0-9]+/[a-z]+') AS route, count() AS n, round(max(latency), 1) AS worst "
    "FROM logs WHERE status >= 500 GROUP BY route ORDER BY worst DESC, route LIMIT 5",
    "Requests by day": "SELECT toDate(timestamp) AS day, count() AS n, uniqExact(user_id) AS users FROM logs GROUP BY day ORDER BY day",
    "One service, ten minutes": "SELECT count() AS n, round(avg(latency), 6) AS mean FROM logs WHERE service = 'payments' "
    "AND timestamp >= '2026-01-01 06:00:00' AND timestamp < '2026-01-01 06:10:00'",
    "Text search": "SELECT level, count() AS n FROM logs WHERE message LIKE '%connection pool%' GROUP BY level ORDER BY level",
}


@dataclass
class Figures:
    """What the report shows."""

    rows: int = 0
    batch_rows: int = 0
    batches: int = 0
    batch_seconds: float = 0
    bulk_seconds: float = 0
    puts_per_insert: float = 0
    bytes_per_insert: float = 0
    same_answers: int = 0
    queries: int = 0
    merge_seconds: float = 0
    notes: list[str] = field(default_factory=list)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--out", type=Path, default=Path("demo-output"))
    options = arguments.parse_args()
    console = Console()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    url = str((options.out / "warehouse").resolve())
    console.print(Panel(f"[bold]mergelake[/]: {options.rows:,} log rows into {url}", expand=False))

    with console.status("Starting Spark (local)"):
        spark = session()
    db = ml.connect(url, spark=spark)
    db.sql(CREATE.format(name="logs", partition="toDate(timestamp)"))
    table = db.table("logs")
    figures = Figures(rows=options.rows)
    columns = Progress(
        SpinnerColumn(), TextColumn("{task.description:<46}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console,
    )  # fmt: skip
    node = Node("demo", db, spark=spark, poll_s=0.2, slots=2)
    stop = threading.Event()
    background = threading.Thread(target=node.run, args=(stop,), name="node")
    background.start()
    try:
        with columns as progress:
            ingest_batches(spark, db, table, options.rows // 2, figures, progress)
            ingest_bulk(spark, table, options.rows - figures.batch_rows, figures, progress)
            wait_for_merges(table, node, figures, progress)
    finally:
        stop.set()
        background.join()

    ours = ask(db, console)
    with console.status("Publishing, and attaching ClickHouse to the same directory"):
        table.publish()
        theirs = ask_clickhouse(table, options.out)
    compare(ours, theirs, figures, console)
    report(table, figures, options.out, console)
    spark.stop()
    return 0 if figures.same_answers == figures.queries else 1


def frame(spark, first_block: int, blocks: int, rows: int):
    """The log as a Spark DataFrame: its tasks make the rows."""

    def make(batches):
        for batch in batches:
            for block in batch.column(0).to_pylist():
                made = log_block(first_block + block, rows, rows_per_second=10)
                plain = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in made.columns]
                made = pa.table(plain, names=made.column_names)
                made = made.set_column(0, "timestamp", made["timestamp"].cast(pa.timestamp("us", "UTC")))
                made = made.set_column(4, "user_id", made["user_id"].cast(pa.int64()))
                made = made.set_column(6, "status", made["status"].cast(pa.int32()))
                yield from made.to_batches(max_chunksize=BATCH_ROWS)

    ddl = (
        "timestamp timestamp, level string, service string, host string, user_id bigint, trace_id string, "
        "status int, latency double, url string, message string"
    )
    return spark.range(0, blocks, 1, blocks).mapInArrow(make, ddl)


def ingest_batches(spark, db, table, rows: int, figures: Figures, progress: Progress) -> None:
    """Small batches, one commit each: what makes parts pile up."""
    batches = rows // BATCH_ROWS
    bar = progress.add_task(f"Ingest in batches of {BATCH_ROWS:,} rows", total=batches)
    before, parts = db.counters(), 0
    started = time.monotonic()
    for batch in range(batches):
        parts += len(table.append(frame(spark, batch, 1, BATCH_ROWS)).parts)
        progress.update(bar, advance=1, description=f"Ingest in batches of {BATCH_ROWS:,} rows · {len(table.parts())} parts")
    figures.batch_seconds = time.monotonic() - started
    figures.batches, figures.batch_rows = batches, batches * BATCH_ROWS


def ingest_bulk(spark, table, rows: int, figures: Figures, progress: Progress) -> None:
    """The rest through the data source: one job, one commit."""
    blocks = rows // BULK_BLOCK_ROWS
    first = figures.batch_rows // BULK_BLOCK_ROWS
    bar = progress.add_task("Bulk load, one commit", total=1)
    started = time.monotonic()
    frame(spark, first, blocks, BULK_BLOCK_ROWS).coalesce(2).write.format("mergelake").mode("append").save(table.url)
    figures.bulk_seconds = time.monotonic() - started
    progress.update(bar, advance=1)


def wait_for_merges(table, node: Node, figures: Figures, progress: Progress) -> None:
    """Until the node finds nothing more worth merging."""
    start = len(table.parts())
    bar = progress.add_task("Background merges settle", total=None)
    started = time.monotonic()
    while not node.idle():
        progress.update(bar, description=f"Background merges settle · {len(table.parts())} parts")
        time.sleep(0.2)
    figures.merge_seconds = time.monotonic() - started
    progress.update(bar, total=1, completed=1, description=f"Background merges settled: {start} -> {len(table.parts())} parts")


def ask(db, console: Console) -> dict[str, str]:
    """Each query through mergelake, shown with its answer."""
    answers = {}
    for title, query in QUERIES.items():
        result = db.sql(query)
        answers[title] = result.text("JSONCompactEachRow")
        console.print(f"\n[bold]{title}[/]  [dim]{query}[/]")
        result.show()
    return answers
