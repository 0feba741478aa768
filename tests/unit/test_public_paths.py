"""Import paths that the docs print stay, wherever the code behind them moves."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mergelake

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.parent.name != "design")]
PATHS = {
    "mergelake.core.errors": ["MergelakeError", "ConflictError", "CorruptDataError", "InvalidInputError", "error"],
    "mergelake.lake.cost": ["TableCost", "Written", "table_cost"],
    "mergelake.lake.seal": ["seal_logs"],
    "mergelake.lake.work": ["plan_work", "work", "commit_work", "work_and_commit", "work_on_spark"],
    "mergelake.query.result": ["Stats"],
    "mergelake.scan.stats": ["ScanStats"],
    "mergelake.spark": ["merge_into"],
    "mergelake.spark.session": ["session"],
    "mergelake.spark.upsert": ["merge_into"],
    "mergelake.store": ["open_store", "Store", "StoreSpec"],
    "mergelake.store.meter": ["Tally"],
    "mergelake.store.prices": ["Prices"],
    "mergelake.store.protocol": ["Store", "Stored", "Lost", "OutcomeUnknown", "ObjectMeta", "Counters"],
    "mergelake.store.spec": ["StoreSpec"],
    "mergelake.testing.faulty_store": ["FaultyStore"],
    "mergelake.testing.logtable": ["log_block", "spark_log_frame"],
    "mergelake.testing.store_contract": ["StoreContract"],
}
"""Module -> names: what was printed once, and must be importable for ever."""
LOGGERS = {"mergelake.lake"}
"""Names of loggers, which are no paths."""


@pytest.mark.parametrize("module", PATHS)
def test_a_path_that_was_printed_has_its_names(module: str) -> None:
    found = importlib.import_module(module)
    for name in PATHS[module]:
        assert getattr(found, name) is not None
    with pytest.raises(AttributeError, match="nosuch"):
        _ = found.nosuch


def test_a_public_path_gives_the_same_objects_as_the_code() -> None:
    """An error that is raised within is caught by the name that users import."""
    from mergelake.core import errors
    from mergelake.lake.cost import TableCost
    from mergelake.store import StoreSpec, spec

    assert errors.MergelakeError is mergelake.MergelakeError
    assert spec.StoreSpec is StoreSpec
    assert TableCost.__module__ == "mergelake.api.python.cost"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_docs_print_public_paths_alone(page: Path) -> None:
    text = re.sub(
        r"^::: \S+\n    options:\n      members: false\n      show_root_heading: false$",
        "",
        page.read_text(),
        flags=re.MULTILINE,
    )
    printed = {
        *re.findall(r"^\s*(?:from|import) (mergelake[\w.]*)", text, re.MULTILINE),
        *re.findall(r"^::: (mergelake\.[\w.]+)", text, re.MULTILINE),
        *re.findall(r"`(mergelake\.[\w.]+)(?:\(.*?\))?`", text),
    }
    public = {"mergelake", *PATHS, *(f"mergelake.{name}" for name in mergelake.__all__), *LOGGERS}
    assert {path for path in printed if path not in public and path.rpartition(".")[0] not in PATHS} == set()


def test_the_command_line_starts_from_its_public_path() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "mergelake.cli", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Usage" in shown.stdout


def test_a_public_path_loads_no_more_than_it_needs() -> None:
    """Processes that Spark starts import the session alone."""
    script = "import sys, mergelake.spark.session; print(*{'chdb', 'llvmlite', 'pandas'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == []
