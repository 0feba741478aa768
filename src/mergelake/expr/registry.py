"""The table of all functions: name -> rule.

A rule takes the bound arguments and returns a `Resolved`: the result type and how to compute it. There are two
kinds: `function` registers one for which NULL in means NULL out (the rule and its kernel see types and data
without Nullable and LowCardinality); `special` registers one that treats NULLs or evaluation order itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.evaluate import Kernel
from mergelake.expr.values import Vec


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument as a rule sees it: its type without wrappers, and its node, which holds a literal's value."""

    type: t.DataType
    node: BoundNode

    @property
    def is_constant(self) -> bool:
        """Whether the value is known at binding."""
        return isinstance(self.node, BoundLiteral)

    @property
    def value(self) -> Any:
        """The storage value of a constant; None for others."""
        return self.node.value if isinstance(self.node, BoundLiteral) else None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A function chosen for its argument types."""

    type: t.DataType
    kernel: Kernel | None = None
    """For `function`: plain data in, plain data out."""
    run: Callable[[EvaluationContext], Vec] | None = None
    """For `special`: evaluates the whole call."""
    can_raise: bool = False
    cost: int = 1
    """Rough nanoseconds per row."""
    varies: bool = False
    """Whether each row has its own value, whatever the arguments; such a call is never folded."""
    args: tuple[BoundNode, ...] | None = None
    """The arguments, if the rule changed them (a literal parsed to the other side's type)."""
    node: BoundNode | None = None
    """A node that replaces the call; the other fields are then ignored."""


Seed = Callable[[], int]
"""Returns a number that was never given before, at each call."""
Bind = Callable[[str, tuple[BoundNode, ...]], BoundNode]


@dataclass(frozen=True, slots=True)
class BindingEnvironment:
    """What a rule may need beyond its arguments."""

    call: Bind
    """Binds another function by canonical name."""
    now_ms: int | None
    """The time that now() returns; None refuses now()."""
    seed: Seed | None = None
    """Seeds rand() and similar functions; None refuses them."""


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of the table."""

    name: str
    rule: Callable[..., Resolved]
    """(operands or nodes, environment) -> Resolved."""
    propagates: bool
    arguments: tuple[int, int]
    """Fewest and most arguments."""


FUNCTIONS: dict[str, Function] = {}
_ANY_CASE: dict[str, str] = {}

Rule = Callable[[tuple[Operand, ...], BindingEnvironment], Resolved]
SpecialRule = Callable[[tuple[BoundNode, ...], BindingEnvironment], Resolved]


def function(
    name: str, least: int, most: int | None = None, *, aliases: tuple[str, ...] = (), any_case: bool = False
) -> Callable[[Rule], Rule]:
    """Register a rule for a function of `least` to `most` arguments through which NULLs propagate."""

    def add(rule: Rule) -> Rule:
        _add(Function(name, rule, True, (least, least if most is None else most)), aliases, any_case)
        return rule

    return add


def special(
    name: str, least: int, most: int | None = None, *, aliases: tuple[str, ...] = (), any_case: bool = False
) -> Callable[[SpecialRule], SpecialRule]:
    """Register a rule for a function that treats NULLs or the order of evaluation itself."""

    def add(rule: SpecialRule) -> SpecialRule:
        _add(Function(name, rule, False, (least, least if most is None else most)), aliases, any_case)
        return rule

    return add


def _add(entry: Function, aliases: tuple[str, ...], any_case: bool) -> None:
    FUNCTIONS[entry.name] = entry
    for alias in aliases:
        _ANY_CASE[alias.lower()] = entry.name  # ClickHouse's aliases from other dialects ignore case
    if any_case:
        _ANY_CASE[entry.name.lower()] = entry.name


def find_function(name: str) -> Function:
    """The entry called `name` or an alias of it. Raises UNKNOWN_FUNCTION with the nearest names."""
    entry = FUNCTIONS.get(name) or FUNCTIONS.get(_ANY_CASE.get(name.lower(), ""))
    if entry is None:
        near = difflib.get_close_matches(name, list(FUNCTIONS), n=2)
        hint = "mergelake does not know every ClickHouse function"
        hint += f"; maybe you meant: {', '.join(near)}" if near else ""
        raise error("UNKNOWN_FUNCTION", f"Unknown function {name}", hint)
    return entry


def canonical_name(name: str) -> str:
    """ClickHouse's own name of a function; the name itself if the function is not known."""
    try:
        return find_function(name).name
    except MergelakeError:
        return name


def known_functions() -> tuple[str, ...]:
    """Canonical names of all functions, sorted."""
    return tuple(sorted(FUNCTIONS))


def illegal(name: str, *types: t.DataType) -> MergelakeError:
    """ILLEGAL_TYPE_OF_ARGUMENT for a function and the types that it was given."""
    shown = ", ".join(map(str, types))
    plural = "types" if len(types) != 1 else "type"
    return error("ILLEGAL_TYPE_OF_ARGUMENT", f"Illegal {plural} of arguments ({shown}) of function {name}")
