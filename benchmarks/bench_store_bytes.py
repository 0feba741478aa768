"""Bytes that a real S3 server gets for each byte inserted, counted in front of it: volatile, direct, with faults.

    python -m benchmarks.bench_store_bytes [GB] [ROWS]     # default: 3 GB in batches of 95,000 rows, about 6 MB

Batches of log rows go into one partition of a table on the server as fast as one process inserts them, while a node of
its own process merges. All requests pass a proxy, which counts the bytes of their bodies and lets a share of them fail:
the server gets the bodies that are not refused, and what is sent beyond those was sent again.
`max_bytes_to_merge_volatile` is scaled to the run (a twelfth of it), and all parts are LZ4, so that no codec helps.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import mergelake as ml
from mergelake.testing.logtable import CREATE, log_block
from tests.helpers.services import service

RUNS = (("volatile", 0.0, 1.0), ("volatile", 0.0005, 0.3), ("volatile", 0.05, 0.3), ("direct", 0.0, 1.0))
"""(`merge_upload_policy`, share of the requests that fail, share of the bytes)."""
SCRIPT = Path(__file__).resolve().parents[1] / "tools/services/s3_fault_proxy.py"
REST_S = 10
"""Seconds without inserts after which a partition is uploaded, in these tables."""


def main(total: int, rows: int) -> None:
    """Print a line for each run."""
    shown = Table(title=f"{total / 1e9:.1f} GB in batches of {rows:,} rows, on an S3 server")
    for name in (
        "merges",
        "requests that fail",
        "inserted",
        "to the server",
        "per byte",
        "sent again",
        "failed",
        "parts",
        "merges",
        "s",
    ):
        shown.add_column(name, justify="right")
    for policy, share, part in RUNS:
        with service("s3", S3_STORE="bluestore", S3_SIZE_GB="40") as s3:
            figures = run(s3, policy, share, int(total * part), rows)
        print(json.dumps(figures), file=sys.stderr, flush=True)
        shown.add_row(
            policy,
            f"{share:.2%}",
            f"{figures['inserted'] / 1e6:,.0f} MB",
            f"{figures['accepted'] / 1e6:,.0f} MB",
            f"{figures['accepted'] / figures['inserted']:.3f}",
            f"{figures['refused'] / 1e6:,.1f} MB",
            f"{figures['failed']} of {figures['requests']:,}",
            f"{figures['parts']}",
            f"{figures['merged']} of {figures['planned']}",
            f"{figures['seconds']:.0f}",
        )
    Console(width=130).print(shown)


def run(s3: dict[str, str], policy: str, share: float, total: int, rows: int) -> dict[str, Any]:
    """Insert `total` bytes under a node; what was inserted, sent, and failed."""
    url = f"s3://{s3['S3_BUCKET']}/{policy}-{share}"
    keys = {"access_key_id": s3["AWS_ACCESS_KEY_ID"], "secret_access_key": s3["AWS_SECRET_ACCESS_KEY"]}
    with fault_proxy(s3["S3_ENDPOINT"]) as proxy, tempfile.TemporaryDirectory(prefix="mergelake-disk-") as disk:
        db = ml.connect(url, {"endpoint": proxy.url, **keys})
        settings = {
            "merge_upload_policy": f"'{policy}'",
            "max_bytes_to_merge_volatile": total // 12,
            "volatile_upload_age_seconds": REST_S,
            "default_compression_codec": "'LZ4'",
        }
        text = CREATE.format(name="logs", partition="tuple()").rstrip()
        db.sql(text + " SETTINGS " + ", ".join(f"{name} = {value}" for name, value in settings.items()))
        proxy.rules = [{"do": "status", "status": 503, "prob": share}] if share else []
        started, inserted, batches = time.perf_counter(), 0, 0
        with node(url, proxy.url, keys, disk if policy == "volatile" else "") as report:
            while inserted < total:
                inserted += db.table("logs").append(log_block(batches % 40, rows)).bytes
                batches += 1
            settle(db.table("logs"))
        stats = proxy.report()
        table = db.table("logs")
        table.refresh()
        found = db.sql("SELECT count() FROM logs").rows()
        assert found == [(batches * rows,)], found
        return {
            "policy": policy,
            "share": share,
            "inserted": inserted,
            "accepted": stats["bytes_up"] - stats["bytes_refused"],
            "refused": stats["bytes_refused"],
            "failed": stats["fired"],
            "requests": stats["requests"],
            "parts": table.parts().num_rows,
            "planned": report["merges_started"] - report["merges_lost"],
            "merged": report["merges_done"],
            "seconds": time.perf_counter() - started,
            "amplification": table.write_amplification,
            "node": report,
        }


def settle(table: ml.Table) -> None:
    """Wait until nothing was committed for a while, and no merge is under way."""
    quiet_since, version = time.perf_counter(), -1
    while time.perf_counter() - quiet_since < 3 * REST_S:
        time.sleep(0.5)
        table.refresh()
        state = table.handle.log.state
        if (state.version, bool(state.volatile)) != (version, False):
            quiet_since, version = time.perf_counter(), state.version


@contextmanager
def node(url: str, endpoint: str, keys: dict[str, str], disk: str) -> Iterator[dict[str, Any]]:
    """A node in a process of its own; what it reports at its end is in the mapping then."""
    program = (
        "import json, signal, sys, threading\n"
        "import mergelake as ml\n"
        "url, options, disk = json.loads(sys.argv[1])\n"
        "stop = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"
        "node = ml.Warehouse(url, options).node('n', local=disk or None)\n"
        "node.run(stop)\n"
        "names = [n for n in node.status.__slots__ if not n.startswith('_')]\n"
        "print(json.dumps({name: getattr(node.status, name) for name in names}))\n"
    )
    given = json.dumps([url, {"endpoint": endpoint, **keys}, disk])
    process = subprocess.Popen([sys.executable, "-c", program, given], stdout=subprocess.PIPE, text=True)
    report: dict[str, Any] = {}
    try:
        yield report
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=600)
        report |= json.loads(out.splitlines()[-1]) if out.strip() else {}


@contextmanager
def fault_proxy(endpoint: str) -> Iterator[Any]:
    """The proxy before the server; its `rules` are what fails."""
    spec = importlib.util.spec_from_file_location("s3_fault_proxy", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.FaultProxy(endpoint) as proxy:
        yield proxy


if __name__ == "__main__":
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    main(int(gigabytes * 1e9), int(sys.argv[2]) if len(sys.argv) > 2 else 95_000)
