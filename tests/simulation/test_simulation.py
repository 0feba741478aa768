"""Histories of many processes on one log, each from its seed, with every invariant checked after every entry."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.bugs import BUGS, COMMON, COMMON_MAX, FIRST
from tests.simulation.runner import Violation, explain, hunt, run, run_parallel, seeds_for, shorten
from tests.simulation.stages import CROWD_AT, CROWD_EVERY, LEADERS_AT, REAL_ROWS

SEEDS = int(os.environ.get("SEEDS", "200"))
REAL_SEEDS = int(os.environ.get("REAL_SEEDS", "16"))


@pytest.mark.slow
def test_no_schedule_of_faults_breaks_an_invariant(capsys):  # M-020, M-094
    total, failures = run_parallel(range(SEEDS))
    assert not failures, "\n\n".join(failures)
    with capsys.disabled():
        print(f"\n{total.seeds} seeds, {total.steps} steps, {total.entries} log entries, {total.requests} requests")
    # The histories are worth something: all kinds of operations landed, all kinds of faults befell them.
    assert min(total.landed[kind] for kind in KINDS) > 0
    assert min(total.faults.values()) > 0


KINDS = (
    *("AddParts", "AddVolatile", "CancelVolatile", "AdoptVolatile", "RenewLease", "ReleaseLease", "Mutation"),
    "Member",
    *(
        "KillMutation",
        "DropDetached",
        "Tag",
        "Untag",
        "AdvanceGcHorizon",
        "AlterMetadata",
        "AddReference",
        "DropReference",
        "DropTable",
    ),
    "UndropTable",
    *("MarkMutated", "FinishMutations", "MutationFailed", "RowsUnchanged"),
    *(f"Publish {kind}" for kind in ("direct", "volatile", "mutation")),
    *(f"DropParts {kind}" for kind in ("drop", "expire", "detach")),
    *(f"DropRange {kind}" for kind in ("drop", "truncate", "detach", "replace")),
)


@pytest.mark.slow
def test_real_parts_hold_what_python_makes_of_the_same_mutations(capsys):
    surgeons = range(REAL_ROWS + 500, REAL_ROWS + 500 + REAL_SEEDS // 4)
    total, failures = run_parallel([*range(REAL_ROWS, REAL_ROWS + REAL_SEEDS), *surgeons])
    assert not failures, "\n\n".join(failures)
    with capsys.disabled():
        print(f"\n{total.seeds} worlds of real parts, {total.entries} log entries, {total.requests} requests")
    kinds = ("AddParts", "Mutation", "KillMutation", "Publish direct", "Publish volatile", "Publish mutation")
    assert min(total.landed[kind] for kind in (*kinds, "MarkMutated", "FinishMutations", "CancelVolatile")) > 0


def test_writers_of_several_processes_share_entries():
    """In a crowd; what each was told is checked by `Table.watch`."""
    shared = [run(CROWD_AT + CROWD_EVERY * n).landed["Member"] for n in range(4)]
    assert sum(shared) > 10
    assert sum(map(bool, shared)) >= 2


def test_commits_pass_through_leaders_and_some_are_given_up():
    results = [run(64 * n + at) for n in range(3) for at in LEADERS_AT]
    assert sum(result.did["passed on"] for result in results) > 20
    assert sum(result.landed["given up"] for result in results) > 0


def test_the_same_seed_gives_the_same_trace():
    code = "from tests.simulation.runner import run; print(run(7).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "99"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == run(7).digest == run(7).digest != run(8).digest


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMON)
def test_the_simulation_finds(name):
    """Each deliberate bug breaks an invariant; the rarer ones are looked for by `make simulate BUGS=1`."""
    if hunt(name, seeds_for(name, 4 * COMMON_MAX)) is None:
        pytest.fail("no seed found it")


def test_most_bugs_were_found():
    assert FIRST.keys() <= BUGS.keys()
    assert len(FIRST) >= 120


def test_a_failing_history_is_made_shorter_and_told():
    with BUGS["a_checkpoint_lacks_live_volatile_parts"]():
        found = next(filter(None, (violation(seed) for seed in range(20))))
        text = explain(found)
        assert len(shorten(found).turns) < len(found.turns)
    assert f"SEED={found.seed}" in text
    assert "AddVolatile" in text


def violation(seed):
    try:
        run(seed)
    except Violation as failure:
        return failure
    return None
