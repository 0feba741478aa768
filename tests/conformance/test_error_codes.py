"""The numbers of errors are ClickHouse's: people search for them."""

from __future__ import annotations

from mergelake.core.base.errors import CLICKHOUSE_CODES


def test_every_error_name_has_clickhouses_number(oracle):
    text = "SELECT number, errorCodeToName(number) AS name FROM numbers(2000) WHERE name != ''"
    names = dict(line.split("\t") for line in str(oracle.query(text, "TSV")).split("\n") if line)
    wrong = {name: code for name, code in CLICKHOUSE_CODES.items() if names.get(str(code)) != name}
    assert not wrong
