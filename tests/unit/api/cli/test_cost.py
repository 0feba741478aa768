"""`mergelake cost`, in this process: what it prints of a warehouse and of a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mergelake.api.sql.database import connect
from tests.unit.api.cli.test_commands import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    db = connect(str(tmp_path / "warehouse"))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); OPTIMIZE TABLE t FINAL")
    return str(tmp_path / "warehouse")


def test_a_warehouse_is_a_row_for_each_table(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cost", url) == 0
    captured = capsys.readouterr()
    assert "│ default.t │" in captured.out
    assert "too early to tell" in captured.out
    assert "Stored in all: " in captured.out
    assert "A directory bills nothing" in captured.err
    assert "Not in them: reads" in captured.err


def test_a_table_is_told_in_detail(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "ours.toml"
    prices.write_text('put = 5\ncurrency = "EUR"\n')
    assert run("cost", url, "t", "--measure", "--prices", str(prices)) == 0
    captured = capsys.readouterr()
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in captured.out.splitlines() if "│" in line]
    rows = {line[0]: line[1:] for line in lines}
    assert rows["inserts"][:2] == ["2", "2"]
    assert rows["OPTIMIZE"][:2] == ["1", "1"]
    assert rows["log entries"][1] == "4"
    assert (rows["in all"][1], rows["in all"][3]) == ("7", "0.0350 EUR")
    assert "all objects, listed" in captured.out
    assert "Prices: ours.toml" in captured.err


def test_programs_get_numbers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cost", url, "--format", "json", "--measure") == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert (table["table"], table["currency"], table["written"]["insert"]["puts"]) == ("default.t", "USD", 2)
    assert table["written_cost"] == pytest.approx(7 * 0.005 / 1000)
    assert table["object_bytes"] > table["stored_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--days", "0"], "days"), (["nosuch"], "nosuch"), (["--prices", "/no/such"], "cannot be read")],
)
def test_what_cannot_be_is_refused(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run("cost", url, *arguments) == 1
    assert says in capsys.readouterr().err
