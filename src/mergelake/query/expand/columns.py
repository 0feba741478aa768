"""The columns of a view or a union, as the parts of a statement around it need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import DataType
from mergelake.expr.compiled import compile_expression

PUSHED_MAX = 4000
"""Maximum characters of a condition that is moved into a subquery."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns with their types: a `Readable`."""

    columns: Mapping[str, DataType]
    hidden: frozenset[str] = frozenset()
    computed: Mapping[str, tuple[DataType, str]] = field(default_factory=dict)

    def can_filter(self, predicate: str) -> bool:
        """Whether a condition has one meaning wherever it is computed: no `rand()`, no function unknown here."""
        if len(predicate) > PUSHED_MAX:
            return False
        try:
            return bool(compile_expression(predicate, dict(self.columns), now_ms=0).columns)
        except MergelakeError:
            return False
