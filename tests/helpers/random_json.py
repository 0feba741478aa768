"""Rows of JSONEachRow for random tables: every spelling of a value, fields left out, unknown, null, bad ones too."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mergelake.core.types import types as t
from mergelake.core.types.arrow import tuple_names
from tests.helpers.random_inserts import Inserts

STRINGS = r"""
"" ~ "a" ~ "it's" ~ "\"\\\/\b\f\n\r\t" ~ "\u0041\u00e9\u20ac" ~ "\ud83d\ude00" ~ "é😀" ~ "a,b:c]}{[" ~ "\u0000x"
~ "null" ~ "1.50" ~ "\\N" ~ "\\\"" ~ "\u000a" ~ "\u2028" ~ " lead" ~ "\\x41" ~ "{\"a\": 1}" ~ "-- /* */ ;"
""".strip().replace("\n", " ").split(" ~ ")  # fmt: skip
ODD_STRINGS = r"""
"\ud83d" ~ "\ude00\ud83d" ~ "\ud83dx" ~ "\ud83d\u0041" ~ "\q" ~ "\x41"
~ "\u00g0" ~ "\u12" ~ 'a' ~ 1 ~ 1.50
~ -0 ~ 1e3 ~ true ~ [1, "x"] ~ {"a" : [ 1 , null ]}
~ 123456789012345678901234567890 ~ null ~ nan ~ abc ~ "a	b" ~ [] ~ {} ~ "\'" ~ "\0" ~ "\e" ~ 0.1e-7 ~ 1E400 ~ -1
""".strip().replace("\n", " ").split(" ~ ")  # fmt: skip


class JsonRows(Inserts):
    """Draws objects."""

    def space(self) -> str:
        return self.pick(["", "", "", " ", "  ", "\t", "\n"])

    def row(self, number: int, named: Mapping[str, t.DataType], odd: float) -> str:
        """An object with a key `k` and a cell for most columns."""
        fields = [("k", str(number))]
        for name, kind in named.items():
            if not self.chance(0.1):
                fields.append((name, self.cell(kind, odd)))
        if self.chance(odd / 10):
            fields.append(("nosuch", self.pick(["1", "null", '"x"', '{"a": [1, {}]}', "[[]]"])))
        if len(fields) > 1 and self.chance(0.3):
            fields = [fields[i] for i in self.rng.permutation(len(fields))]
        if self.chance(odd / 20):
            name = self.pick(list(named))
            fields.append((name, self.cell(named[name], odd)))
        return self._object(fields)

    def _object(self, fields: list[tuple[str, str]]) -> str:
        parts = [
            f"{self.space()}{_quoted(key)}{self.space()}:{self.space()}{cell}{self.space()}" for key, cell in fields
        ]
        return "{" + (",".join(parts) or self.space()) + "}"

    def _list(self, cells: list[str]) -> str:
        return "[" + (",".join(f"{self.space()}{cell}{self.space()}" for cell in cells) or self.space()) + "]"

    def cell(self, kind: t.DataType, odd: float, *, inside: bool = False) -> str:
        """A value as JSON; `odd` is the share of those that are spelled otherwise or bad."""
        if self.chance(odd / 12):
            return self.pick(["null", "{}", "[]", '""', "true", "1", '"x"', "[1]", '{"a":1}', "-1", "[null]"])
        match kind:
            case t.Nullable(inner):
                return "null" if self.chance(0.25) else self.cell(inner, odd, inside=inside)
            case t.LowCardinality(inner):
                return self.cell(inner, odd, inside=inside)
            case t.Array(inner):
                return self._list([self.cell(inner, odd, inside=True) for _ in range(self.pick([0, 1, 2, 3]))])
            case t.Tuple(elements):
                cells = [self.cell(each, odd, inside=True) for each in elements]
                if kind.names and not self.chance(odd / 6):
                    return self._object(self._elements(list(zip(tuple_names(kind), cells, strict=True)), odd))
                if self.chance(odd / 8):
                    cells = self.pick([cells[:-1], [*cells, "1"], cells])
                return self._list(cells)
            case t.Map(key, value):
                count = self.pick([0, 1, 2])
                return self._object([(self.key(key), self.cell(value, odd, inside=True)) for _ in range(count)])
        if self.chance(odd / 10):
            return "null"
        return self.pick(self.odd_json(kind) if self.chance(odd) else self.plain_json(kind))

    def _elements(self, fields: list[tuple[str, str]], odd: float) -> list[tuple[str, str]]:
        if self.chance(0.15 + odd / 4):
            del fields[int(self.rng.integers(len(fields)))]
        if self.chance(odd / 4):
            fields.append((self.pick(["z", "b", "A", ""]), self.pick(["1", "null", '{"x": []}', '"s"'])))
        if len(fields) > 1 and self.chance(0.3):
            fields.reverse()
        if fields and self.chance(odd / 20):
            fields.append(fields[0])
        return fields

    def key(self, kind: t.DataType) -> str:
        """The text of a key of a Map."""
        cell = self.pick(self.plain_json(t.inner_type(kind)))
        if not cell.startswith('"'):
            return cell
        found = json.loads(cell)
        assert isinstance(found, str)
        return found

    def plain_json(self, kind: t.DataType) -> list[str]:
        """Usual spellings."""
        if isinstance(kind, t.String):
            return STRINGS
        if isinstance(kind, t.FixedString):
            return ['"abc"', '"a"', '""', r'"\u0000z"', '"é"']
        cells = [_unquoted(cell) for cell in self.leaf(kind)]
        plain = isinstance(kind, t.Int | t.Float | t.BFloat16 | t.Decimal | t.Bool)
        return [cell if plain and self.chance(0.7) else _quoted(cell) for cell in cells]

    def odd_json(self, kind: t.DataType) -> list[str]:
        """Others, and bad ones."""
        if isinstance(kind, t.String):
            return ODD_STRINGS
        cells = [_unquoted(cell) for cell in self.odd_leaf(kind) if "(" not in cell and "*" not in cell]
        bare = [cell for cell in cells if cell and not cell.isspace()]
        more = [
            "null",
            "[1]",
            "{}",
            "true",
            "false",
            '"null"',
            '""',
            '" 1"',
            '"1 "',
            "1 2",
            "+1",
            "nan",
            "-inf",
            '"inf"',
        ]
        if isinstance(kind, t.FixedString):
            more += ['"abcd"', "1", "12345", r'"\ud83d"']
        return [*(cell if self.chance(0.5) else _quoted(cell) for cell in bare), *more]


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace("\\'", "'") if cell.startswith("'") else cell


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
