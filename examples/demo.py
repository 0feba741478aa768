"""The main job on a directory, from nothing to a served table, with progress and a report.

1. Ingest a service log through Spark: half of it in bulk, half in batches of 20,000 rows (the hard case), while a
   node merges in the background.
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
import tempfile
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import mergelake as ml
from mergelake.cli.timeline import part_lives, render_timeline
from mergelake.spark.session import session
from mergelake.testing.logtable import CREATE, spark_log_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mergelake.node.runner import Node

BATCH_ROWS = 20_000
BULK_ROWS = 100_000
ROWS_PER_SECOND = 10
QUERIES = {
    "Errors by service": """
        SELECT service, count() AS errors, round(quantileExact(0.5)(latency), 3) AS p50
        FROM logs WHERE level = 'ERROR' GROUP BY service ORDER BY errors DESC, service LIMIT 5""",
    "Slowest routes": """
        SELECT extract(url, '^/[a-z0-9]+/[a-z]+') AS route, count() AS n, round(max(latency), 1) AS worst
        FROM logs WHERE status >= 500 GROUP BY route ORDER BY worst DESC, route LIMIT 5""",
    "Requests by day": """
        SELECT toDate(timestamp) AS day, count() AS n, uniqExact(user_id) AS users
        FROM logs GROUP BY day ORDER BY day""",
    "One service, ten minutes": """
        SELECT count() AS n, round(avg(latency), 6) AS mean
        FROM logs WHERE service = 'payments'
        AND timestamp >= '2026-01-01 06:00:00' AND timestamp < '2026-01-01 06:10:00'""",
    "Text search": """
        SELECT level, count() AS n
        FROM logs WHERE message LIKE '%connection pool%' GROUP BY level ORDER BY level""",
}


@dataclass
class Figures:
    """What the report shows."""

    batches: int = 0
    batch_rows: int = 0
    batch_seconds: float = 0
    bulk_rows: int = 0
    bulk_seconds: float = 0
    merge_seconds: float = 0
    small_insert: str = ""
    same_answers: int = 0


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

    with console.status("Starting Spark on this machine"):
        spark = session()
        db = ml.connect(url, spark=spark)
        db.sql(CREATE.format(name="logs", partition="toDate(timestamp)"))
        table = db.table("logs")
        warm_up(spark)
    figures = Figures()
    node = db.warehouse.node("demo", poll_s=0.2)
    stop = threading.Event()
    background = threading.Thread(target=node.run, args=(stop,), name="node")
    background.start()
    try:
        with progress_bars(console) as progress:
            ingest_bulk(spark, table, options.rows // 2, figures, progress)
            ingest_batches(spark, table, options.rows - figures.bulk_rows, figures, progress)
            wait_for_merges(table, node, figures, progress)
    finally:
        stop.set()
        background.join()
    if node.status.merges_failed:
        console.print(f"[red]{node.status.merges_failed} merges failed:[/] {node.status.last_error}")

    small_insert(db, figures)
    ours = ask(db, console)
    with console.status("Publishing, and attaching ClickHouse to the same directory"):
        table.publish()
        theirs = ask_clickhouse(table, options.out)
    compare(ours, theirs, figures, console)
    report(table, figures, options.out, console)
    spark.stop()
    return 0 if figures.same_answers == len(QUERIES) and not node.status.merges_failed else 1


def progress_bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<52}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def warm_up(spark: SparkSession) -> None:
    """Spark's workers start and load the kernels, in a table of their own: not what the demo measures."""
    with tempfile.TemporaryDirectory(prefix="mergelake-warm-up-") as folder:
        db = ml.connect(folder, spark=spark)
        db.sql(CREATE.format(name="logs", partition="tuple()"))
        table = db.table("logs")
        table.append(spark_log_frame(spark, 0, 2, 1000))
        spark_log_frame(spark, 0, 2, 1000).write.format("mergelake").mode("append").save(table.path)


def ingest_batches(spark: SparkSession, table: ml.Table, rows: int, figures: Figures, progress: Progress) -> None:
    """Small batches, one Spark job and one commit each: what makes parts pile up."""
    batches, first = rows // BATCH_ROWS, figures.bulk_rows // BATCH_ROWS
    title = f"Ingest in batches of {BATCH_ROWS:,} rows"
    bar = progress.add_task(title, total=batches)
    started = time.monotonic()
    for batch in range(batches):
        table.append(spark_log_frame(spark, first + batch, 1, BATCH_ROWS, rows_per_second=ROWS_PER_SECOND))
        progress.update(bar, advance=1, description=f"{title} · {table.parts().num_rows} parts")
    figures.batch_seconds = time.monotonic() - started
    figures.batches, figures.batch_rows = batches, batches * BATCH_ROWS


def ingest_bulk(spark: SparkSession, table: ml.Table, rows: int, figures: Figures, progress: Progress) -> None:
    """The rest through the data source: one job, one commit."""
    blocks = rows // BULK_ROWS
    bar = progress.add_task(f"Bulk load of {blocks * BULK_ROWS:,} rows, one commit", total=1)
    frame = spark_log_frame(spark, 0, blocks, BULK_ROWS, rows_per_second=ROWS_PER_SECOND)
    started = time.monotonic()
    frame.coalesce(2).write.format("mergelake").mode("append").save(table.path)
    figures.bulk_seconds, figures.bulk_rows = time.monotonic() - started, blocks * BULK_ROWS
    table.refresh()
    progress.update(bar, advance=1)


def wait_for_merges(table: ml.Table, node: Node, figures: Figures, progress: Progress) -> None:
    """Until the node finds nothing more worth merging."""
    start = table.parts().num_rows
    bar = progress.add_task("Background merges settle", total=None)
    started = time.monotonic()
    while not node.idle():
        table.refresh()
        progress.update(bar, description=f"Background merges settle · {table.parts().num_rows} parts")
        time.sleep(0.2)
    table.refresh()
    figures.merge_seconds = time.monotonic() - started
    title = f"Background merges settled: {start} -> {table.parts().num_rows} parts"
    progress.update(bar, total=1, completed=1, description=title)


def small_insert(db: ml.Database, figures: Figures) -> None:
    """What one small insert costs in requests, in a table of its own."""
    db.sql("CREATE TABLE small (k UInt64, v String) ENGINE = MergeTree ORDER BY k")
    table = db.table("small")
    before = table.handle.store.counters
    commit = table.append({"k": [1, 2, 3], "v": ["a", "b", "c"]})
    after = table.handle.store.counters
    figures.small_insert = (
        f"{after.put - before.put} PUT, {after.get - before.get} GET, {after.list - before.list} LIST, "
        f"{commit.bytes:,} bytes of data"
    )


def ask(db: ml.Database, console: Console) -> dict[str, str]:
    """Each query through mergelake, shown with its answer."""
    answers = {}
    for title, query in QUERIES.items():
        result = db.sql(query)
        answers[title] = result.text("JSONCompactEachRow")
        stats = result.stats
        console.print(f"\n[bold]{title}[/]  [dim]{stats.elapsed_s:.3f} s, {stats.rows_read:,} rows read[/]")
        console.print(textwrap.dedent(query).strip(), style="dim", markup=False, highlight=False)
        result.show()
    return answers


def ask_clickhouse(table: ml.Table, folder: Path) -> dict[str, str]:
    """The same queries in a ClickHouse that knows nothing of us: one CREATE TABLE over the directory."""
    statement = table.attach_statement("default.logs")
    (folder / "attach.sql").write_text(statement + ";\n")
    script = (
        "import json, sys, chdb.session\n"
        "work = json.load(sys.stdin)\n"
        "clickhouse = chdb.session.Session()\n"
        "clickhouse.query(work['attach'])\n"
        "ask = lambda query: clickhouse.query(query, 'JSONCompactEachRow').bytes().decode()\n"
        "print(json.dumps({title: ask(query) for title, query in work['queries'].items()}))"
    )
    work = json.dumps({"attach": statement, "queries": QUERIES})
    done = subprocess.run([sys.executable, "-c", script], input=work, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def compare(ours: dict[str, str], theirs: dict[str, str], figures: Figures, console: Console) -> None:
    """The answers side by side."""
    shown = Table(title="Answers of a stock ClickHouse on the same directory", title_justify="left")
    shown.add_column("query")
    shown.add_column("mergelake and ClickHouse")
    for title in QUERIES:
        same = ours[title].strip() == theirs[title].strip()
        figures.same_answers += same
        shown.add_row(title, "[green]same answer[/]" if same else "[red]different[/]")
    console.print()
    console.print(shown)


def report(table: ml.Table, figures: Figures, folder: Path, console: Console) -> None:
    """The figures, on the terminal and as a page with the picture."""
    lives = part_lives(table.parts(active_only=False), table.history())
    written = [life for life in lives if not life.merged]
    merged = [life for life in lives if life.merged]
    first_bytes = sum(life.bytes for life in written)
    amplification = (first_bytes + sum(life.bytes for life in merged)) / first_bytes
    facts = [
        ("Rows", f"{table.snapshot().rows:,}"),
        (
            f"Ingest in batches of {BATCH_ROWS:,} rows",
            f"{figures.batch_rows / figures.batch_seconds:,.0f} rows/s, {figures.batches} commits",
        ),
        ("Bulk load through Spark", f"{figures.bulk_rows / figures.bulk_seconds:,.0f} rows/s, 1 commit"),
        ("Parts", f"{len(written)} inserted, {len(merged)} merges, {table.parts().num_rows} active at the end"),
        ("Bytes of an average inserted part", f"{first_bytes / len(written):,.0f}"),
        ("A small insert costs", figures.small_insert),
        ("Write amplification (bytes written / bytes inserted)", f"{amplification:.2f}"),
        (
            "Kept for older versions",
            f"{table.retained_bytes:,} bytes of replaced parts",
        ),
        ("Answers equal to ClickHouse's", f"{figures.same_answers} of {len(QUERIES)}"),
    ]
    shown = Table(title="What it cost", title_justify="left", show_header=False)
    for name, value in facts:
        shown.add_row(name, value)
    console.print()
    console.print(shown)
    page = folder / "report.html"
    page.write_text(render_timeline("How parts grew and merged", lives, facts))
    console.print(f"\nPicture to open in a browser: [bold]{page.resolve()}[/]", soft_wrap=True)
    console.print(f"Attach a ClickHouse with:     [bold]{(folder / 'attach.sql').resolve()}[/]", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
