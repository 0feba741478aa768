"""What compiled code costs a process: the first after an installation, and all later ones.

    python -m benchmarks.bench_start

A process writes and reads a small part with all kinds of columns and skip indexes. Counted is the processor time that
goes into LLVM and the cache: importing llvmlite, compiling kernels, loading them. The first process has an empty cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

_PROGRAM = """
import sys, time, tempfile, builtins
from pathlib import Path
import numpy, pyarrow, pyarrow.compute
place = Path(sys.argv[1])
spent = [0.0, 0]
start = time.process_time()
import llvmlite.binding
import mergelake.core.jit.kernel as kernel
import mergelake.core.jit.native as native
spent[0] += time.process_time() - start
native._places = lambda: iter([place])
load = kernel.Kernel._load
def timed(self, kinds):
    start = time.process_time()
    try:
        return load(self, kinds)
    finally:
        spent[0] += time.process_time() - start
        spent[1] += 1
kernel.Kernel._load = timed
import pyarrow as pa
import mergelake as ml
n = 30_000
columns = {
    "id": pa.array(numpy.arange(n)),
    "s": pa.array([f"word {i % 100}" for i in range(n)]),
}
indexes = ""
types = "id Int64, s String"
if sys.argv[2] == "wide":
    columns |= {
        "l": columns["s"], "n": pa.array(numpy.arange(n), mask=numpy.arange(n) % 3 == 0),
        "a": pa.array([[i, i + 1] for i in range(n)]), "d": columns["id"],
    }
    types += ", l LowCardinality(String), n Nullable(Int64), a Array(Int64), d Int64 CODEC(Delta, LZ4)"
    indexes = (", INDEX m d TYPE minmax, INDEX b s TYPE bloom_filter, INDEX k s TYPE tokenbf_v1(512, 3, 0),"
               " INDEX v l TYPE set(100)")
with tempfile.TemporaryDirectory() as folder:
    ddl = f"CREATE TABLE t ({types}{indexes}) ENGINE = MergeTree ORDER BY id"
    (part,) = ml.write_part(pa.table(columns), folder, ddl)
    assert ml.read_part(part.path).arrow().num_rows == n
print(spent[1], spent[0])
"""


def main() -> None:
    """Print the table."""
    print(f"{'':44} kernels   first process   later processes")
    for label, what in (("Int64 and String", "plain"), ("six kinds of columns, four skip indexes", "wide")):
        with tempfile.TemporaryDirectory() as place:
            found = []
            for _ in range(4):
                command = [sys.executable, "-c", _PROGRAM, place, what]
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                found.append((int(out[0]), float(out[1])))
            later = min(seconds for _, seconds in found[1:])
            print(f"{label:44} {found[0][0]:7} {found[0][1]:13.2f} s {later:15.2f} s")


if __name__ == "__main__":
    main()
