"""`python -m tests.simulation --seeds 300` runs fresh seeds; `--seed N` replays one and prints its trace.

`--stages` runs so many fresh seeds of each stage, `--real` so many worlds of real parts.

`--bugs` plants each deliberate bug and tells a seed that finds it: the last one that did, or the first from 0 on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time

from tests.simulation.bugs import BUGS, FIRST, FIRST_SEEDS
from tests.simulation.runner import STEPS, WORKERS, Violation, explain, hunt_all, run, run_parallel
from tests.simulation.stages import EVERY_STAGE, REAL_ROWS, seeds_of

HUNT_SEEDS = 4000
"""Seeds within which each deliberate bug has to be found."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many fresh seeds")
    parser.add_argument("--first", type=int, help="the first of them (default: by chance)")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--stages", action="store_true", help="of each stage")
    parser.add_argument("--real", action="store_true", help="worlds of real parts")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--bugs", action="store_true", help="look for the first seed that finds each deliberate bug")
    options = parser.parse_args()
    if options.bugs:
        return hunt_bugs(options.seeds if options.seeds != parser.get_default("seeds") else HUNT_SEEDS, options.workers)
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
    seeds = [*range(first, first + options.seeds)]
    if options.real:
        seeds = [REAL_ROWS + seed for seed in seeds]
    elif options.stages:
        stages = range(len(EVERY_STAGE))
        seeds = [seed for number in stages for seed in seeds_of(number, options.seeds, first)]
    total, failures = run_parallel(seeds, options.steps, options.workers)
    print(*failures, sep="\n\n")
    seconds = time.monotonic() - start
    print(
        f"{total.seeds} seeds from {first}, {total.steps} steps, {total.entries} log entries, "
        f"{total.requests} requests, {sum(total.faults.values())} faults in {seconds:.0f} s: {len(failures)} failed"
    )
    print("entries:", ", ".join(f"{name} {count}" for name, count in total.landed.most_common()))
    print("actions:", ", ".join(f"{name} {count}" for name, count in total.did.most_common()))
    print("faults:", ", ".join(f"{name} {count}" for name, count in total.faults.most_common()))
    return 1 if failures else 0


def hunt_bugs(seeds: int, workers: int) -> int:
    first = dict(FIRST)
    for name, seed in hunt_all(seeds, workers):
        print(f"{name}: {'not found' if seed is None else f'seed {seed}'}", flush=True)
        first.pop(name, None)
        if seed is not None:
            first[name] = seed
            FIRST_SEEDS.write_text(json.dumps({name: first[name] for name in BUGS if name in first}, indent=1) + "\n")
    missing = [name for name in BUGS if name not in first]
    print(f"{len(first)} of {len(BUGS)} found within {seeds} seeds; not found: {', '.join(missing) or 'none'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
