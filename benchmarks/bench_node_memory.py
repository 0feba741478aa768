"""Resident memory of a node over many merges: does it reach a plateau?

    python benchmarks/bench_node_memory.py [merges] [rows of a part] [seconds] [default]

One process inserts into 40 partitions and merges them, as `mergelake node` does: threads, allocators (`default`: those
that Python and Arrow choose). Printed now and again, after a round of collection, so that what is kept for older
versions is not counted: resident memory, what Arrow's pool holds, what glibc's arenas do. The run ends after so many
seconds at the latest.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import threading
import time

import numpy as np
import pyarrow as pa

import mergelake as ml
from mergelake.jobs.node.memory import bound_memory
from mergelake.jobs.node.status import resident_bytes

PARTITIONS = 40
_LINES = 15
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def arenas() -> tuple[int, int]:
    """Bytes in use, and free, in the arenas of glibc; zeros elsewhere."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0, 0
    mallinfo2.restype = _Mallinfo
    info = mallinfo2()
    return info.uordblks, info.fordblks


def block(rng: np.random.Generator, rows: int) -> dict[str, object]:
    """The rows of one part in each partition."""
    count = rows * PARTITIONS
    return {
        "p": np.tile(np.arange(PARTITIONS, dtype=np.uint16), rows),
        "k": rng.integers(0, 1 << 40, count, dtype=np.uint64),
        "service": [f"service-{n}" for n in rng.integers(0, 20, count)],
        "v": rng.random(count),
        "message": [f"request {n} took a while" for n in rng.integers(0, 10_000, count)],
    }


def main() -> None:
    """Run and print."""
    merges, rows, seconds = (int(text) for text in [*sys.argv[1:4], *("1500", "50", "3600")[len(sys.argv[1:4]) :]])
    if sys.argv[4:5] != ["default"]:
        bound_memory()
    with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
        warehouse = ml.connect(f"{folder}/lake").warehouse
        columns = {
            "p": "UInt16",
            "k": "UInt64",
            "service": "LowCardinality(String)",
            "v": "Float64",
            "message": "String",
        }
        settings = {"merge_upload_policy": "volatile", "write_amplification_target": 0, "gc_grace_seconds": 5}
        settings["history_retention_seconds"] = 5
        table = warehouse.create_table("t", columns, order_by="k", partition_by="p", settings=settings)
        node = warehouse.node("n", local=f"{folder}/disk", roles=["merge", "upload"], poll_s=0.05)
        stop, rng = threading.Event(), np.random.default_rng(1)
        loop = threading.Thread(target=node.run, args=(stop, 0.0))
        loop.start()
        began, printed = time.monotonic(), 0
        print(f"Arrow allocates by {pa.default_memory_pool().backend_name}")
        print("merges    s  resident MB  Arrow  arenas   free")
        while node.status.merges_done < merges and time.monotonic() - began < seconds:
            if table.handle.refresh().partitions.most < 12:
                table.append(block(rng, rows))
            else:
                time.sleep(0.05)
            if node.status.merges_done >= printed:
                printed += max(1, merges // _LINES)
                table.gc()
                used, free = arenas()
                sizes = (resident_bytes(), pa.total_allocated_bytes(), used, free)
                figures = " ".join(f"{each / 1e6:{width}.0f}" for each, width in zip(sizes, (12, 6, 7, 6), strict=True))
                print(f"{node.status.merges_done:6d} {time.monotonic() - began:4.0f} {figures}", flush=True)
        stop.set()
        loop.join()


if __name__ == "__main__":
    main()
