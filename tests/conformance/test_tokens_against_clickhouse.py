"""Random texts are cut into tokens exactly as ClickHouse's own lexer cuts them, up to its first error."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.lexer import tokenize
from mergelake.query.embedded import engine

pytestmark = pytest.mark.chdb
_PIECES = [
    *"'\"`()[]{}.,;:$#!-/*\\ \n\t0123456789eExXbBpP_+a<>=|@?%^&~",
    *(
        "--",
        "//",
        "/*",
        "*/",
        "$a$",
        "$$",
        "$a b$",
        "\u2018",
        "\u2019",
        "\u201c",
        "\u201d",
        "\u200b",
        "\u00a0",
        "\ufeff",
    ),
    *(
        "\u3000",
        "\u2028",
        "\u1680",
        "é",
        "x'",
        "b'",
        "X'1F'",
        "file(",
        "''",
        "\\'",
        "t.1.2",
        "1e",
        "0x",
        "0b1",
        "1_000",
    ),
    *("@@", "\\G", "->", "<=>", "# ", "#!", "#x", "\x00", "\x0c", "\x85", "1.5abc", "$x", "a$b", "\x1c", "|>", "!~*"),
]
_KINDS = {
    "BareWord": "word",
    "QuotedIdentifier": "quoted",
    "StringLiteral": "string",
    "HereDoc": "string",
    "Number": "number",
}
_SKIPPED = ("Whitespace", "Comment", "EndOfStream")


@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_cut_as_clickhouse_cuts_them(seed: int) -> None:
    rnd = random.Random(seed)
    texts = ["x " + "".join(rnd.choices(_PIECES, k=rnd.randint(1, 14))) + " " for _ in range(4000)]
    given = pa.table({"q": pa.array([text.encode() for text in texts], pa.binary())})
    sql = (
        "SELECT q, arrayMap(t -> substring(q, t.begin + 1, t.end - t.begin), tokenizeQuery(q)) AS texts,"
        " arrayMap(t -> toString(t.type), tokenizeQuery(q)) AS kinds FROM Python(given)"
    )
    cut = 0
    for row in engine.run(sql, {"given": given}).table().to_pylist():
        text = row["q"].decode() if isinstance(row["q"], bytes) else row["q"]
        kinds = row["kinds"]
        first_error = next((i for i, kind in enumerate(kinds) if kind.startswith("Error")), len(kinds))
        theirs = [
            (_KINDS.get(kind, "sign"), piece)
            for kind, piece in zip(kinds[:first_error], row["texts"][:first_error], strict=True)
            if kind not in _SKIPPED
        ]
        try:
            ours = [(token.kind, token.text) for token in tokenize(text)[:-1]]
        except MergelakeError:
            assert first_error < len(kinds), text
            continue
        assert ours[: len(theirs)] == theirs, text
        assert first_error < len(kinds) or len(ours) == len(theirs), text
        cut += len(theirs)
    assert cut > 5_000
