"""`python -m tests.simulation --seeds 300` runs fresh seeds; `--seed N` replays one and prints its trace."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.simulation.runner import STEPS, WORKERS, Violation, explain, run, run_parallel


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many fresh seeds")
    parser.add_argument("--first", type=int, help="the first of them (default: by chance)")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    options = parser.parse_args()
    if options.seed is not None:
        lines: list[str] = []
        try:
            result = run(options.seed, options.steps, lines=lines)
        except Violation as violation:
            print(explain(violation))
            return 1
        print("\n".join(lines))
        print(f"seed {options.seed}: {result.entries} entries, {result.requests} requests, trace {result.digest}")
        return 0
    first = options.first if options.first is not None else random.SystemRandom().randrange(10**9)
    start = time.monotonic()
    total, failures = run_parallel(range(first, first + options.seeds), options.steps, options.workers)
    print(*failures, sep="\n\n")
    seconds = time.monotonic() - start
    print(
        f"{options.seeds} seeds from {first}, {total.steps} steps, {total.entries} log entries, "
        f"{total.requests} requests, {sum(total.faults.values())} faults in {seconds:.0f} s: {len(failures)} failed"
    )
    print("entries:", ", ".join(f"{name} {count}" for name, count in total.landed.most_common()))
    print("actions:", ", ".join(f"{name} {count}" for name, count in total.did.most_common()))
    print("faults:", ", ".join(f"{name} {count}" for name, count in total.faults.most_common()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
