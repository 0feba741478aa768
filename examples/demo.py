"""The main job on a directory, from nothing to a served table, with progress and a report.

1. Ingest a service log through Spark: half of it in bulk, half in batches of 20,000 rows (the hard case), while a
   node merges in the background, on a disk of its own first. That disk is then deleted.
2. Query it with ClickHouse's SQL.
3. Publish it, let a stock ClickHouse attach the same directory, and compare the answers.
4. Insert the same rows once more where merges go straight to the bucket, to see what the node's disk saves.
5. Report what it cost, and draw parts, bytes, merges and answers in one picture.

Run `make demo`, or `python examples/demo.py --rows 2000000 --out demo-output`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import mergelake as ml
from mergelake.api.cli.picture.drawing import plural, size
from mergelake.api.cli.picture.sheet import render_page, render_sheet
from mergelake.api.cli.picture.timeline import MergeFate, MergeLife, PartLife, merge_lives, part_lives
from mergelake.api.cli.picture.values import Phase, QueryAnswer, Sheet, amplification, same_answers
from mergelake.lake.cost import table_cost
from mergelake.spark.session import session
from mergelake.store.prices import Prices
from mergelake.testing.logtable import CREATE, log_block, spark_log_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mergelake.jobs.node.runner import Node

BATCH_ROWS = 20_000
BULK_ROWS = 100_000
ROWS_PER_SECOND = 10
RUNS = 5
"""Each query is asked so often on either side; its fastest time is shown."""
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

    phases: list[Phase] = field(default_factory=list)
    batches: int = 0
    batch_rows: int = 0
    batch_seconds: float = 0
    bulk_rows: int = 0
    bulk_seconds: float = 0
    small_insert: tuple[str, str] = ("", "")
    direct: float = 0
    """Bytes written to the bucket, by bytes inserted, where the same rows are merged without a disk."""
    versions: str = ""


@dataclass
class Asked:
    """What one side answered to a query."""

    text: str
    seconds: float
    rows_read: int = 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--out", type=Path, default=Path("demo-output"))
    options = arguments.parse_args()
    if options.rows < 2 * BULK_ROWS:
        arguments.error(f"--rows is {options.rows:,}; the demo needs {2 * BULK_ROWS:,} at least")
    console = Console(soft_wrap=True, highlight=False)
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    url, disk = (options.out / "warehouse").resolve(), (options.out / "node-disk").resolve()
    console.print(f"[bold]mergelake[/]: {options.rows:,} log rows into {url}")

    with console.status("Starting Spark on this machine"):
        spark = session()
        db = ml.connect(str(url), spark=spark)
        db.sql(CREATE.format(name="logs", partition="toDate(timestamp)"))
        table = db.table("logs")
        warm_up(spark)
    figures = Figures()
    node = db.warehouse.node("demo", poll_s=0.2, local=str(disk))
    stop = threading.Event()
    background = threading.Thread(target=node.run, args=(stop,), name="node")
    background.start()
    try:
        with progress_bars(console) as progress:
            ingest_bulk(spark, table, options.rows // 2, figures, progress)
            ingest_batches(spark, table, options.rows - figures.bulk_rows, figures, progress)
            finish_merges(table, node, stop, background, figures, progress)
    finally:
        stop.set()
        background.join()
    if node.status.merges_failed:
        console.print(f"[red]{node.status.merges_failed} merges failed:[/] {node.status.last_error}")
    shutil.rmtree(disk, ignore_errors=True)  # to show that no row depends on it

    small_insert(db, figures)
    with console.status("Inserting the same rows where merges go straight to the bucket"):
        merged_directly(options.out / "direct", figures)
    with console.status("Asking mergelake"):
        ours = ask(db, options.out / "answers.txt")
    with console.status("Publishing, and asking a ClickHouse that attaches the same directory"):
        table.publish()
        theirs = ask_clickhouse(table, options.out, figures)
    answers = compare(ours, theirs)
    report(table, figures, ours, answers, options.out, console)
    spark.stop()
    return 0 if all(answer.same for answer in answers) and not node.status.merges_failed else 1


def progress_bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<56}"),
        BarColumn(bar_width=24),
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
    started, started_ms = time.monotonic(), table.handle.clock.now_ms()
    for batch in range(batches):
        table.append(spark_log_frame(spark, first + batch, 1, BATCH_ROWS, rows_per_second=ROWS_PER_SECOND))
        progress.update(bar, advance=1, description=f"{title}: {plural(table.parts().num_rows, 'part')}")
    figures.batch_seconds = time.monotonic() - started
    figures.batches, figures.batch_rows = batches, batches * BATCH_ROWS
    name = f"{batches} batches of {BATCH_ROWS:,} rows, a commit each"
    figures.phases.append(Phase(name, started_ms, table.handle.clock.now_ms()))


def ingest_bulk(spark: SparkSession, table: ml.Table, rows: int, figures: Figures, progress: Progress) -> None:
    """The rest through the data source: one job, one commit."""
    blocks = rows // BULK_ROWS
    bar = progress.add_task(f"Bulk load of {blocks * BULK_ROWS:,} rows, one commit", total=1)
    frame = spark_log_frame(spark, 0, blocks, BULK_ROWS, rows_per_second=ROWS_PER_SECOND)
    started, started_ms = time.monotonic(), table.handle.clock.now_ms()
    frame.coalesce(2).write.format("mergelake").mode("append").save(table.path)
    figures.bulk_seconds, figures.bulk_rows = time.monotonic() - started, blocks * BULK_ROWS
    figures.phases.append(Phase("bulk load", started_ms, table.handle.clock.now_ms()))
    table.refresh()
    progress.update(bar, advance=1)


def finish_merges(
    table: ml.Table,
    node: Node,
    stop: threading.Event,
    background: threading.Thread,
    figures: Figures,
    progress: Progress,
) -> None:
    """Until the node finds nothing more worth merging; then it uploads what is on its disk, and leaves."""
    start, started_ms = table.parts().num_rows, table.handle.clock.now_ms()
    bar = progress.add_task("The node merges and uploads what is left", total=1)
    while not node.idle():
        time.sleep(0.1)
    stop.set()
    background.join()
    table.refresh()
    figures.phases.append(Phase("the node uploads what is left", started_ms, table.handle.clock.now_ms()))
    title = f"The node uploads what is left: from {start} to {plural(table.parts().num_rows, 'part')}"
    progress.update(bar, completed=1, description=title)


def small_insert(db: ml.Database, figures: Figures) -> None:
    """What one small insert costs in requests, in a table of its own."""
    db.sql("CREATE TABLE small (k UInt64, v String) ENGINE = MergeTree ORDER BY k")
    table = db.table("small")
    with db.warehouse.metered() as spent:
        commit = table.append({"k": [1, 2, 3], "v": ["a", "b", "c"]})
    used, prices = spent.counters, db.warehouse.prices
    requests = f"{used.put} PUT, {used.get} GET, {used.list} LIST"
    money = f"{prices.cost(used):.5f} {prices.currency}"
    figures.small_insert = (requests, f"a small insert of 3 rows, {size(commit.bytes)}, {money}")


def merged_directly(folder: Path, figures: Figures) -> None:
    """The same rows in the same batches, under a node without a disk; the figure alone is kept."""
    db = ml.connect(str(folder.resolve()))
    db.sql(CREATE.format(name="logs", partition="toDate(timestamp)"))
    table, node = db.table("logs"), db.warehouse.node("direct")
    for rows, first, blocks in (
        (BULK_ROWS, 0, figures.bulk_rows // BULK_ROWS),
        (BATCH_ROWS, figures.bulk_rows // BATCH_ROWS, figures.batches),
    ):
        for block in range(first, first + blocks):
            table.append(log_block(block, rows, rows_per_second=ROWS_PER_SECOND))
            while rows == BATCH_ROWS and (node.step() or not node.idle()):
                time.sleep(0.005)
    node.drain()
    table.refresh()
    inserted, written = amplification(part_lives(table.parts(active_only=False), list(table.handle.log.entries())))
    figures.direct = written / inserted
    shutil.rmtree(folder)


def ask(db: ml.Database, page: Path) -> dict[str, Asked]:
    """Each query through mergelake; the answers go to a file."""
    answers = {}
    with page.open("w") as file:
        for title, query in QUERIES.items():
            seconds = []
            for _ in range(RUNS):
                started = time.perf_counter()
                result = db.sql(query)
                text = result.text("JSONCompactEachRow")
                seconds.append(time.perf_counter() - started)
            answers[title] = Asked(text, min(seconds), result.stats.rows_read)
            file.write(f"{title}\n{query}\n{result.drawn()}\n\n")
    return answers


def ask_clickhouse(table: ml.Table, folder: Path, figures: Figures) -> dict[str, Asked]:
    """The same queries in a ClickHouse that knows nothing of us: one CREATE TABLE over the directory."""
    statement = table.attach_statement("default.logs")
    (folder / "attach.sql").write_text(statement + ";\n")
    script = (
        "import json, sys, time, chdb.session\n"
        "work = json.load(sys.stdin)\n"
        "clickhouse = chdb.session.Session()\n"
        "clickhouse.query(work['attach'])\n"
        "def ask(query):\n"
        "    seconds = []\n"
        "    for _ in range(work['runs']):\n"
        "        started = time.perf_counter()\n"
        "        text = clickhouse.query(query, 'JSONCompactEachRow').bytes().decode()\n"
        "        seconds.append(time.perf_counter() - started)\n"
        "    return text, min(seconds)\n"
        "version = ask('SELECT version()')[0]\n"
        "print(json.dumps([version, {title: ask(query) for title, query in work['queries'].items()}]))"
    )
    work = json.dumps({"attach": statement, "runs": RUNS, "queries": QUERIES})
    done = subprocess.run([sys.executable, "-c", script], input=work, capture_output=True, text=True, check=True)
    clickhouse, answers = json.loads(done.stdout)
    figures.versions = (
        f"mergelake {version('mergelake')}, ClickHouse {json.loads(clickhouse)[0]}, Spark {version('pyspark')}, "
        f"Python {platform.python_version()}, {plural(os.cpu_count() or 1, 'core')}"
    )
    return {title: Asked(*answer) for title, answer in answers.items()}


def compare(ours: dict[str, Asked], theirs: dict[str, Asked]) -> list[QueryAnswer]:
    """The answers side by side."""
    return [
        QueryAnswer(
            title,
            query,
            len(ours[title].text.splitlines()),
            ours[title].seconds,
            theirs[title].seconds,
            ours[title].text.strip() == theirs[title].text.strip(),
        )
        for title, query in QUERIES.items()
    ]


def report(
    table: ml.Table,
    figures: Figures,
    ours: dict[str, Asked],
    answers: list[QueryAnswer],
    folder: Path,
    console: Console,
) -> None:
    """The figures, a line each, and the picture."""
    entries = list(table.handle.log.entries())
    lives = part_lives(table.parts(active_only=False), entries)
    merges = merge_lives(lives, entries)
    for name, value in facts(table, figures, lives, merges):
        console.print(f"{name:<32} {value}")
    for each in answers:
        times = f"{each.seconds * 1000:,.0f} ms, ClickHouse {each.clickhouse_seconds * 1000:,.0f} ms"
        read = f"{plural(ours[each.title].rows_read, 'row')} read, {plural(each.rows, 'row')} found"
        verdict = "[green]the same answer[/]" if each.same else "[red]another answer[/]"
        console.print(f"{'Query: ' + each.title:<32} {times}; {read}; {verdict}")
    picture = sheet(table, figures, lives, merges, answers, len(entries))
    (folder / "report.html").write_text(render_page(picture))
    (folder / "report.svg").write_text(render_sheet(picture))
    console.print(f"{'Answers':<32} {(folder / 'answers.txt').resolve()}")
    console.print(f"{'Attach a ClickHouse with':<32} {(folder / 'attach.sql').resolve()}")
    console.print(f"{'Picture, for a browser':<32} [bold]{(folder / 'report.html').resolve()}[/] (and report.svg)")
    console.print(f"[bold]{same_answers(answers)}[/]")


def facts(table: ml.Table, figures: Figures, lives: list[PartLife], merges: list[MergeLife]) -> list[tuple[str, str]]:
    """What is told on the terminal: names and figures."""
    inserted, written = amplification(lives)
    stored = sum(merge.outcome is MergeFate.BUCKET for merge in merges)
    on_disk = sum(merge.bytes for merge in merges if merge.volatile)
    parts = sum(not life.merged for life in lives)
    done = f"{len(merges)}, of which {stored} reached the bucket; {size(on_disk)}"
    return [
        ("Rows", f"{table.snapshot().rows:,}"),
        ("Bulk load through Spark", f"{figures.bulk_rows / figures.bulk_seconds:,.0f} rows/s, 1 commit"),
        (
            f"Batches of {BATCH_ROWS:,} rows",
            f"{figures.batch_rows / figures.batch_seconds:,.0f} rows/s, {plural(figures.batches, 'commit')}",
        ),
        (
            "Parts",
            f"{parts} inserted ({size(inserted / parts)} on average), {table.parts().num_rows} active at the end",
        ),
        ("Merges", f"{done} merged on the node's disk" if merges else "none was due"),
        ("Node's disk", "deleted before the queries: every row is in the bucket"),
        (
            "Write amplification",
            (
                f"{written / inserted:.2f}: {size(written)} written to the bucket, {size(inserted)} inserted "
                f"(merged straight to the bucket: {figures.direct:.2f})"
            ),
        ),
        ("Requests", ": ".join(figures.small_insert)),
        ("Writing it all", money(table)),
        ("Kept for older versions", f"{size(table.retained_bytes)} of replaced parts"),
    ]


def money(table: ml.Table) -> str:
    """What the table took to write and takes to keep, were it in S3."""
    prices, cost = Prices(), table_cost(table.name, table.handle.log, table.handle.clock.now_ms(), 1)
    written = f"{plural(cost.total.puts, 'PUT')}, {cost.total.cost(prices):.4f} {prices.currency}"
    kept = f"{size(cost.stored_bytes)} kept, {prices.month(cost.stored_bytes):.4f} {prices.currency} a month"
    return f"{written}; {kept} ({prices.name})"


def sheet(
    table: ml.Table,
    figures: Figures,
    lives: list[PartLife],
    merges: list[MergeLife],
    answers: list[QueryAnswer],
    entries: int,
) -> Sheet:
    """What is drawn."""
    rows, (inserted, written) = table.snapshot().rows, amplification(lives)
    parts = sum(not life.merged for life in lives)
    return Sheet(
        f"{rows:,} log rows through Spark into a bucket (here a directory), merged in the background",
        (
            (plural(rows, "row"), f"in {plural(figures.batches + 1, 'commit')}: {plural(parts, 'part')} inserted"),
            (f"{figures.bulk_rows / figures.bulk_seconds:,.0f} rows/s", f"bulk load of {figures.bulk_rows:,} rows"),
            (f"{figures.batch_rows / figures.batch_seconds:,.0f} rows/s", f"in batches of {BATCH_ROWS:,} rows"),
            (f"{written / inserted:.2f} ×", f"bytes written, by bytes inserted; {figures.direct:.2f} without the disk"),
            figures.small_insert,
        ),
        figures.phases,
        lives,
        merges,
        answers,
        f"Time on the clock, the fastest of {RUNS} runs, one after the other on this machine.",
        f"Read from the table's log ({entries} entries). {figures.versions}.",
    )


if __name__ == "__main__":
    sys.exit(main())
