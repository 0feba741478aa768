"""The decisions in tests/cases/scan_pruning.txt."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mergelake.core.model.schema import Column
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import STRING, parse_type
from mergelake.scan.prune.analyze import analyze
from mergelake.scan.prune.describe import describe
from mergelake.scan.prune.hyperrectangles import KeyTable
from mergelake.scan.prune.keys import scan_keys
from mergelake.scan.prune.predicate import bound_conjuncts, conjunction
from mergelake.scan.prune.prune import mark_ranges, search_algorithm
from mergelake.scan.prune.request import ScanRequest
from tests.helpers.scans import make_schema

CASES = Path(__file__).parents[2] / "cases" / "scan_pruning.txt"


def read_cases() -> list[dict[str, str]]:
    cases: list[dict[str, str]] = []
    for line in CASES.read_text().splitlines():
        text = line.split("  #")[0].strip() if line.startswith("case") else line.strip()
        if not text or text.startswith("#"):
            continue
        word, rest = text.split(" ", 1)
        if word == "case":
            cases.append({})
        cases[-1][word] = rest.strip()
    return cases


def decide(case: dict[str, str]) -> str:
    """What pruning makes of a case, in the words of the file."""
    pairs = [key.strip().rsplit(" ", 1) for key in case["key"].split(",")]
    expressions = tuple(expression for expression, _ in pairs)
    columns = {"ts": "DateTime('UTC')"} | {e: kind for e, kind in pairs if e.isidentifier()}
    schema = make_schema(columns, order_by=expressions)
    assert all(isinstance(column, Column) for column in schema.columns)
    types = [parse_type(kind) for _, kind in pairs]
    marks = [[cell.strip("'") for cell in mark.split()] for mark in case["marks"].split("|")]
    arrays = [
        pa.array([m[i].encode() if kind == STRING else int(m[i]) for m in marks], storage_type(kind))
        for i, kind in enumerate(types)
    ]
    pieces = bound_conjuncts(ScanRequest(where=case["where"]), schema)[1]
    key = scan_keys(schema).primary
    condition = analyze(conjunction(pieces), key)
    ranges = mark_ranges(KeyTable(arrays, types), condition)
    shown = " ".join(f"[{begin},{end})" for begin, end in ranges) or "nothing"
    algorithm = search_algorithm(condition, len(types)) or "nothing"
    return f"{shown} by {algorithm} for {describe(condition, key.names)[0]}"


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case["case"])
def test_decision_is_the_one_in_the_case_file(case: dict[str, str]) -> None:
    assert decide(case) == case["expect"]
