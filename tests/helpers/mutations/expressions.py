"""Random expressions over the columns of a table: new values of a column, and conditions.

They raise on no row: the oracle would keep a mutation that fails, and apply it to some parts only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.helpers.mutations.kinds import INTEGERS, LITERALS, NUMBERS, is_nullable, without_wrappers
from tests.helpers.mutations.tables import DrawnColumn

_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "=", "<", ">")
_PATTERNS = ("'a%'", "'%b%'", "'_'", "'%'")
_UNORDERED = ("Array", "Map", "Tuple")


class Expressions:
    """Draws expressions."""

    def __init__(self, rng: random.Random, columns: Sequence[DrawnColumn]) -> None:
        self._rng = rng
        self._columns = columns

    def literal(self, kind: str) -> str:
        """A literal of a type."""
        return self._rng.choice(LITERALS[kind])

    def _pick(self, *plain: str, nullable: bool = True) -> str | None:
        """A column of one of these types, whatever is around them."""
        fitting = [
            c.name for c in self._columns if without_wrappers(c.kind) in plain and (nullable or not is_nullable(c.kind))
        ]
        return self._rng.choice(fitting) if fitting else None

    # -- values

    def value(self, kind: str, depth: int = 2) -> str:
        """A new value for a column of type `kind`, of that type or castable to it."""
        rng = self._rng
        if is_nullable(kind) and rng.random() < 0.25:
            return "NULL"
        plain = without_wrappers(kind)
        if rng.random() < 0.15:
            return self.literal(kind)
        if depth and rng.random() < 0.15 and not plain.startswith("Tuple"):  # where ClickHouse fails for two constants
            same = self.literal(plain)
            return f"if({self.condition(1)}, {self._same(kind)}, CAST({same} AS {plain}))"
        if plain in INTEGERS:
            return self.integer(depth, wide=plain in NUMBERS)
        match plain.partition("(")[0]:
            case "Float32" | "Float64":
                return self._one_of(self.number(plain), f"{self.integer(1)} / 4", f"toFloat64({self.integer(1)})")
            case "Decimal":
                same = self._same(plain)
                return self._one_of(same, f"{same} + 1", f"-{same}", f"{same} - toDecimal32(3, 1)", "3")
            case "String":
                return self.text(depth)
            case "FixedString":
                return self._one_of(self._same(plain), f"substring(toString({self.integer(1)}), 1, 3)", "'ab'")
            case "Date" | "Date32":
                return self.day(plain)
            case "DateTime" | "DateTime64":
                return self.time(plain)
            case "Bool":
                return self._one_of(self.condition(1, nulls=False), "true", f"NOT {self._same(plain)}")
            case "Array" if plain == "Array(Int32)":
                return self._one_of(f"[{self.integer(1)}, {self.integer(0)}]", self._same(plain), self.literal(plain))
            case "Array" if plain == "Array(String)":
                return self._one_of(f"[{self.text(1)}]", self._same(plain), self.literal(plain))
            case "Tuple" if plain == "Tuple(UInt8, String)":
                return self._one_of(f"({self.integer(1)}, {self.text(1)})", self._same(plain), self.literal(plain))
        return self._one_of(self._same(kind), self._same(plain), self.literal(kind))

    def _one_of(self, *options: str) -> str:
        return self._rng.choice(options)

    def _same(self, kind: str) -> str:
        """A column of the type or a literal."""
        name = self._pick(kind, nullable=False)
        return name if name is not None and self._rng.random() < 0.7 else f"CAST({self.literal(kind)} AS {kind})"

    def number(self, plain: str) -> str:
        """A float."""
        same = self._same(plain)
        return self._one_of(same, f"{same} + 1", f"{same} * 0.5", f"-{same}")

    def integer(self, depth: int, *, wide: bool = True) -> str:
        """An integer."""
        rng = self._rng
        column = self._pick(*(NUMBERS if wide or rng.random() < 0.5 else INTEGERS))
        if column is not None and any(c.name == column and is_nullable(c.kind) for c in self._columns):
            column = f"ifNull({column}, {rng.randrange(5)})"
        leaf = column if column is not None and rng.random() < 0.7 else str(rng.choice((0, 1, 2, 3, 7, -1, 300)))
        if not depth or not wide:
            return leaf
        other = self.integer(depth - 1)
        options = [
            *(f"{leaf} + {other}", f"{leaf} - {other}", f"{leaf} * 3", f"{leaf} + 1", f"-{leaf}", f"{leaf} % 7"),
            *(f"intDiv({leaf}, 3)", f"abs({leaf})", f"bitXor({leaf}, 5)", f"toInt16({leaf})", leaf, leaf),
            f"if({self.condition(1)}, {leaf}, 5)",
            f"multiIf({self.condition(1)}, 1, {self.condition(0)}, 2, 3)",
        ]
        if text := self._pick("String", nullable=False):
            options += [f"length({text})", f"toInt32OrZero({text})"]
        if day := self._pick("Date", "DateTime('UTC')", nullable=False):
            options += [f"toYear({day})", f"toMonth({day})"]
        if array := self._pick("Array(Int32)"):
            options += [f"{array}[1]", f"length({array})"]
        if pair := self._pick("Tuple(UInt8, String)"):
            options += [f"{pair}.1"]
        return rng.choice(options)

    def text(self, depth: int) -> str:
        """A text of up to some twenty bytes."""
        column = self._pick("String", nullable=False)
        leaf = column if column is not None and self._rng.random() < 0.7 else self.literal("String")
        if not depth:
            return leaf
        anything = self._rng.choice(self._columns)
        shown = f"toString({anything.name})"
        if is_nullable(anything.kind):
            shown = f"ifNull({shown}, 'none')"
        return self._one_of(
            leaf, f"substring(concat({leaf}, '+', {self.text(depth - 1)}), 1, 20)", f"upper({leaf})", f"lower({leaf})",
            f"substring({shown}, 1, 9)", f"if({self.condition(1)}, {leaf}, 'no')", f"reverse({leaf})",
        )  # fmt: skip

    def day(self, plain: str) -> str:
        """A date."""
        same = self._same(plain)
        options = [same, f"{same} + 3", f"{same} - 1", f"toStartOfMonth({same})", f"{same} + INTERVAL 1 MONTH"]
        if time := self._pick("DateTime('UTC')", nullable=False):
            options += [f"toDate({time})", time]
        return self._rng.choice(options)

    def time(self, plain: str) -> str:
        """A time."""
        same = self._same(plain)
        options = [same, f"{same} + 60", f"{same} - INTERVAL 1 HOUR", f"toStartOfHour({same})"]
        if day := self._pick("Date", nullable=False):
            options += [day]
        return self._rng.choice(options)

    # -- conditions

    def condition(self, depth: int = 2, *, nulls: bool = True) -> str:
        """A condition, which may be NULL where `nulls`."""
        rng = self._rng
        shape = rng.random()
        if depth and shape < 0.2:
            return f"({self.condition(depth - 1, nulls=nulls)} AND {self.condition(depth - 1, nulls=nulls)})"
        if depth and shape < 0.32:
            return f"({self.condition(depth - 1, nulls=nulls)} OR {self.condition(depth - 1, nulls=nulls)})"
        if depth and shape < 0.38:
            return f"NOT ({self.condition(depth - 1, nulls=nulls)})"
        fitting = [c for c in self._columns if nulls or not is_nullable(c.kind)]
        return self._atom(rng.choice(fitting)) if fitting else "1"

    def _atom(self, column: DrawnColumn) -> str:
        rng, name, kind = self._rng, column.name, column.kind
        plain, shape = without_wrappers(kind), rng.random()
        operator, literal = rng.choice(_OPERATORS), self.literal(plain)
        if is_nullable(kind) and shape < 0.25:
            return f"{name} IS {rng.choice(('', 'NOT '))}NULL"
        if plain.startswith(_UNORDERED):
            return self._nested_atom(name, plain)
        if shape < 0.4:
            members = ", ".join({self.literal(plain): None for _ in range(rng.randrange(1, 4))})
            return f"{name} {rng.choice(('', 'NOT '))}IN ({members})"
        if plain in NUMBERS and shape < 0.6:
            return rng.choice((
                f"{name} % 3 = {rng.randrange(3)}", f"{name} + 1 {operator} {rng.randrange(6)}",
                f"intDiv({name}, 2) {operator} {rng.randrange(4)}", f"{name} {operator} {self.integer(1)}",
            ))  # fmt: skip
        if plain == "String" and shape < 0.7:
            return rng.choice((
                f"{name} LIKE {rng.choice(_PATTERNS)}", f"length({name}) {operator} {rng.randrange(5)}",
                f"startsWith({name}, 'a')", f"{name} {operator} {self.text(1)}",
            ))  # fmt: skip
        if plain in ("Date", "DateTime('UTC')") and shape < 0.7:
            return rng.choice((f"toYYYYMM({name}) {operator} 202402", f"toYear({name}) {operator} 2024"))
        if plain == "Bool" and shape < 0.7:
            return rng.choice((name, f"NOT {name}"))
        return f"{name} {operator} {literal}"

    def _nested_atom(self, name: str, plain: str) -> str:
        rng = self._rng
        match plain:
            case "Array(Int32)":
                return rng.choice((f"has({name}, 7)", f"length({name}) > 1", f"{name}[1] = 1", f"empty({name})"))
            case "Array(String)" | "Array(LowCardinality(String))":
                return rng.choice((f"has({name}, 'a')", f"notEmpty({name})"))
            case "Tuple(UInt8, String)":
                return rng.choice((f"{name}.1 = 1", f"{name}.2 = 'b'"))
            case "Tuple(x Int32, y Nullable(String))":
                return rng.choice((f"tupleElement({name}, 'x') > 0", f"{name}.2 IS NULL", f"{name}.2 = 'a'"))
            case "Map(String, UInt8)":
                return rng.choice((f"{name}['a'] = 1", f"mapContains({name}, 'b')"))
        return f"length({name}) > {rng.randrange(2)}" if plain.startswith(("Array", "Map")) else "1"
