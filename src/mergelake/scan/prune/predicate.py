"""A request's conditions as one list of bound conjuncts.

ALIAS columns are replaced by their expressions, WHERE and PREWHERE are split at their ANDs, and the range of the
sampling key is added. The same text binds to the same conjuncts in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mergelake.core.base.errors import error
from mergelake.core.base.sized_cache import sized_cache
from mergelake.core.model.schema import TableSchema, unknown_column
from mergelake.core.types import types as t
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundColumn, BoundNode, EvaluationContext, columns_of, conjuncts
from mergelake.expr.nodes import Call, Literal
from mergelake.expr.parser import parse
from mergelake.expr.values import Vec
from mergelake.scan.prune.request import VIRTUAL_COLUMNS, ScanRequest


def all_types(schema: TableSchema) -> dict[str, t.DataType]:
    """Types of the columns of a row, then of the virtual columns that no column of the same name hides."""
    return {**VIRTUAL_COLUMNS, **schema.readable}


def bound_conjuncts(request: ScanRequest, schema: TableSchema) -> tuple[tuple[BoundNode, ...], tuple[BoundNode, ...]]:
    """(conjuncts of PREWHERE, conjuncts of WHERE and SAMPLE), bound against the table's columns.

    Raises the errors of parsing and binding, and ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER for a condition that is no number.
    """
    types = all_types(schema)
    known = _Known(schema, types)
    first = _pieces(request.prewhere, known, request.now_ms) if request.prewhere else ()
    rest = _pieces(request.where, known, request.now_ms) if request.where else ()
    if request.sample is not None:
        rest += sample_conjuncts(request.sample, request.sample_offset, schema, types)
    return first, rest


class _Known:
    """What a condition may refer to: a cache key, equal where the text would be bound to the same tree."""

    def __init__(self, schema: TableSchema, types: Mapping[str, t.DataType]) -> None:
        self.schema, self.types = schema, types
        aliases = tuple(column.default for column in schema.columns if column.default_kind == "ALIAS")
        self._key = (tuple(types.items()), aliases)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


# Cached: the stages of one SELECT (plan, steps, every piece) bind the same conditions.
@sized_cache(256, 32 << 20, lambda text, *_: len(text))
def _pieces(text: str, known: _Known, now_ms: int | None) -> tuple[BoundNode, ...]:
    bound = bind(expand_aliases(parse(text), known.schema), known.types, now_ms)
    inner = t.inner_type(bound.type)
    if not isinstance(inner, (t.Int, t.Float, t.Bool, t.Nothing)):
        raise error(
            "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER",
            f"The condition {bound} has type {bound.type}",
            "A filter must be a number or a Bool: compare it with something",
        )
    pieces = conjuncts(bound)
    if len(pieces) > 1 and any(
        not isinstance(t.inner_type(p.type), (t.Int, t.Float, t.Bool, t.Nothing)) for p in pieces
    ):
        return (bound,)
    return pieces


def sample_conjuncts(
    fraction: float, offset: float, schema: TableSchema, types: Mapping[str, t.DataType]
) -> tuple[BoundNode, ...]:
    """Conditions for the range of the sampling key that SAMPLE `fraction` OFFSET `offset` selects.

    Source: ClickHouse, `MergeTreeDataSelectExecutor::getSampling`.
    """
    if not schema.sample_by:
        raise error("SAMPLING_NOT_SUPPORTED", "The table has no sampling key", "Create it with SAMPLE BY")
    key = expand_aliases(parse(schema.sample_by), schema)
    data_type = t.inner_type(bind(key, types).type)
    if not isinstance(data_type, t.Int) or data_type.signed or data_type.bits > 64:
        raise error(
            "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER", f"The sampling key has type {data_type}, not an unsigned integer"
        )
    universe = 1 << data_type.bits
    lower, upper = int(offset * universe), int((offset + fraction) * universe)
    out: list[BoundNode] = []
    if lower > 0:
        out.append(bind(Call("greaterOrEquals", (key, Literal(lower, data_type))), types))
    if upper < universe:
        out.append(bind(Call("less", (key, Literal(upper, data_type))), types))
    return tuple(out)


def split_by_key(
    pieces: Sequence[BoundNode], sorting: Sequence[BoundNode]
) -> tuple[tuple[BoundNode, ...], tuple[BoundNode, ...]]:
    """(conjuncts on the sorting key alone, which have one value for all rows of a key; the others)."""
    plain = {node.name for node in sorting if isinstance(node, BoundColumn)}
    early = tuple(piece for piece in pieces if columns_of(piece) and set(columns_of(piece)) <= plain)
    return early, tuple(piece for piece in pieces if piece not in early)


def conjunction(pieces: tuple[BoundNode, ...]) -> BoundNode | None:
    """The pieces joined by AND, to be analyzed but not evaluated; None if there are none."""
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    return BoundCall("and", pieces, t.UINT8, _never)


def _never(_: EvaluationContext) -> Vec:
    raise AssertionError("a conjunction is evaluated piece by piece")


def requested_columns(request: ScanRequest, schema: TableSchema) -> tuple[str, ...]:
    """The columns of the result; `SELECT *` omits MATERIALIZED, ALIAS and EPHEMERAL ones."""
    if request.columns is None:
        return tuple(c.name for c in schema.columns if c.default_kind not in ("MATERIALIZED", "ALIAS", "EPHEMERAL"))
    known = all_types(schema)
    for name in request.columns:
        if name not in known:
            raise unknown_column(name, list(schema.names))
    return request.columns
