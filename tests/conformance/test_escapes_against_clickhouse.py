r"""Every escape, in every place where text is quoted or escaped: what it stands for is what ClickHouse says.

A backslash before each of the 256 bytes, numbers, `\N` and doubled quotes, in string literals and identifiers of SQL,
in VALUES and TabSeparated, and inside of arrays, maps and tuples there and in CSV; and all bytes written back.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import mergelake
from mergelake.api.sql.delimited import read_csv, read_tsv
from mergelake.api.sql.values import read_values
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.text import quote_string, unescape
from mergelake.core.convert.storage import to_storage
from mergelake.core.convert.text_write import literal_text
from mergelake.core.types.types import Enum, parse_type
from mergelake.expr import compile_expression
from mergelake.expr.nodes import Literal
from mergelake.expr.parser import parse
from mergelake.query.embedded import engine

pytestmark = pytest.mark.chdb

BODIES = [
    *(b"a\\" + bytes([byte]) + b"b" for byte in range(256)),
    *(b"\\x" + digits for digits in (b"41", b"0a", b"FF", b"zz", b"g1", b"4g", b"4", b"", b"00")),
    *(rb"\N", rb"a\N", rb"\Nb", rb"\u0041", rb"\\x41", rb"\\\x41", rb"a\\", rb"\0\0", b"''", b"a''b", rb"\'"),
    *(bytes([byte]) for byte in range(33, 256) if byte not in b"\\,\"'"),
]
PLACES = {
    "String": (b"'", b"'", "cell"),
    "Array(String)": (b"['", b"']", "cell[1]"),
    "Map(String, UInt8)": (b"{'", b"': 1}", "mapKeys(cell)[1]"),
    "Tuple(String, UInt8)": (b"('", b"', 1)", "cell.1"),
}
"""Types that hold one text, what stands around it, and how ClickHouse gets at it."""
KINDS = ["String", "Array(String)", *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(PLACES)[2:])]
CUT_SHORT = (rb"\x4", rb"\x", rb"a\xb")


def theirs(sql: str) -> bytes | None:
    """What ClickHouse answers; None where it refuses."""
    try:
        return bytes(engine.run(sql, output="RawBLOB").data)
    except MergelakeError:
        return None


def read_by_clickhouse(kind: str, format_name: str, data: bytes) -> bytes | None:
    text = "".join(f"\\x{byte:02x}" for byte in data)
    return theirs(f"SELECT {PLACES[kind][2]} FROM format({format_name}, 'cell {kind}', '{text}')")


def read_here(kind: str, format_name: str, data: bytes) -> bytes | None:
    text, types = data.decode("utf-8", "surrogateescape"), {"cell": parse_type(kind)}
    try:
        if format_name == "Values":
            rows = read_values(text, types, script=text, at=0)
        else:
            rows = (read_csv if format_name == "CSV" else read_tsv)(text, types, header=False)
        array = to_storage(rows.table["cell"], types["cell"])
    except MergelakeError:
        return None
    while not pa.types.is_binary(array.type):
        array = array.flatten() if pa.types.is_list(array.type) else array.field(0)
    found: bytes = array[0].as_py()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_escapes_in_values(kind: str) -> None:
    before, after, _ = PLACES[kind]
    for body in BODIES:
        data = b"(" + before + body + after + b")"
        assert read_here(kind, "Values", data) == read_by_clickhouse(kind, "Values", data), body


@pytest.mark.parametrize("kind", KINDS)
def test_escapes_in_tabseparated(kind: str) -> None:
    before, after, _ = PLACES[kind] if kind != "String" else (b"", b"", "")
    for body in BODIES:
        if kind == "String" and body in (rb"\N", *CUT_SHORT):
            continue  # NULL; and what takes the end of the line into the escape there, and is refused here
        data = before + body + after + b"\n"
        assert read_here(kind, "TSV", data) == read_by_clickhouse(kind, "TSV", data), body


@pytest.mark.parametrize("body", CUT_SHORT)
def test_an_escape_that_is_cut_short_is_refused(body: bytes) -> None:
    assert read_here("String", "TSV", body + b"\n") is None


@pytest.mark.parametrize("kind", KINDS[:3])
def test_escapes_in_csv(kind: str) -> None:
    before, after, _ = PLACES[kind] if kind != "String" else (b"", b"", "")
    for body in BODIES:
        data = b'"' + (before + body + after).replace(b'"', b'""') + b'"\n'
        assert read_here(kind, "CSV", data) == read_by_clickhouse(kind, "CSV", data), body


@pytest.mark.parametrize("quote", ["'", "`"])
def test_escapes_in_statements(quote: str) -> None:
    for body in BODIES:
        if not body.isascii():
            continue  # a statement is text
        text = f"{quote}{body.decode()}{quote}"
        try:
            found: bytes | None = unescape(text).encode("utf-8", "surrogateescape")
        except MergelakeError:
            found = None
        if quote == "'":
            assert found == theirs(f"SELECT {text}"), body
        elif found and found.isascii() and min(body) >= 32 and body != b"`":  # a name is printable text
            answer = engine.run(f"SELECT 1 AS {text}", output="JSONCompact").text()
            assert found.decode() == json.loads(answer)["meta"][0]["name"], body


def test_escapes_in_expressions_and_types() -> None:
    for body in BODIES:
        if not body.isascii():
            continue
        literal = f"'{body.decode()}'"
        try:
            constant = parse(literal)
            found: bytes | None = constant.value if isinstance(constant, Literal) else None
        except MergelakeError:
            found = None
        assert found == theirs(f"SELECT {literal}"), body
        if found is None or not found.isascii():
            continue  # names in an Enum are text here
        kind = parse_type(f"Enum8({literal} = - 0x7)")
        assert isinstance(kind, Enum)
        assert kind.items[0] == (found.decode(), -7), body


LITERALS = [
    "x'4142'", "X'f'",
    "x''", "b'01000001'", "B'1'", "b''", "$$a'b\\n$$", "$t$a$$b$t$", "\u2018a\\nb\u2019", "''", "'a''b'",
    "1", "1_000", "0x1F", "0b101", "1.", ".5", "1e3", "1_0.0_1e1_0", "0x1.8p1", "0xp1", "1e", "18446744073709551616",
    "0x1_F", "-0x1F", "1.5abc", "DATE '2024-01-02'",
]  # fmt: skip


@pytest.mark.parametrize("literal", LITERALS)
def test_literals_of_all_forms_in_expressions(literal: str) -> None:
    """Hexadecimal, binary and dollar strings, numbers with underscores and exponents: the value, or a refusal."""
    expected = theirs(f"SELECT toString({literal})")
    try:
        column = compile_expression(f"toString({literal})", {}).evaluate(pa.table({"x": [1]}))
        found: bytes | None = column.to_pylist()[0]
    except MergelakeError:
        found = None
    assert found == expected


def test_what_is_written_in_quotes_is_what_clickhouse_writes() -> None:
    for byte in range(256):
        value = b"a" + bytes([byte]) + b"b"
        cases = {"Array(String)": ("[x]", [value]), "Map(String, UInt8)": ("map(x, 1)", [(value, 1)])}
        for kind, (made, mine) in {**cases, "Tuple(String)": ("tuple(x)", {"1": value})}.items():
            expected = theirs(f"SELECT toString({made}) FROM (SELECT unhex('{value.hex()}') AS x)")
            assert literal_text(mine, parse_type(kind)).encode(errors="surrogateescape") == expected, (kind, byte)
        text = value.decode("utf-8", "surrogateescape")
        assert unescape(quote_string(text)) == text


def test_a_pattern_with_a_bad_escape_is_taken_as_clickhouse_takes_it_or_refused() -> None:
    db = mergelake.connect("memory://escapes")
    assert db.sql(r"SHOW TABLES LIKE '\xzz'").rows() == []
    with pytest.raises(MergelakeError, match="SYNTAX_ERROR"):
        db.sql(r"SHOW TABLES LIKE '\x4'")
