"""ClickHouse expressions over Arrow blocks in storage form.

::

    text --parse--> SyntaxNode --bind--> BoundNode --compile_expression--> Compiled.evaluate(block), .mask(block)

1. `parse` reads ClickHouse's grammar into literals, columns and calls (`nodes`).
2. `bind` looks names up, decides ClickHouse's result types, folds constants (`binder`, `registry`).
3. A bound call runs a kernel over numpy or Arrow data (`values`, `evaluate`): whole columns at once, a
   dictionary once per value, NULLs kept beside the data. AND evaluates later conditions only where earlier ones held.
"""

from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode, columns_of, conjuncts, walk
from mergelake.expr.compiled import Compiled, compile_expression
from mergelake.expr.functions import (
    arithmetic as _arithmetic,
    arrays as _arrays,
    cast_functions as _cast_functions,
    chance as _chance,
    comparison as _comparison,
    conditional as _conditional,
    date_arithmetic as _date_arithmetic,
    date_format as _date_format,
    date_parts as _date_parts,
    divisors as _divisors,
    hashes as _hashes,
    intervals as _intervals,
    logical as _logical,
    membership as _membership,
    rounding as _rounding,
    strings as _strings,
    subcolumns as _subcolumns,
    subseconds as _subseconds,
    token_search as _token_search,
    week_numbers as _week_numbers,
)
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode, column_name, referenced_columns
from mergelake.expr.parser import parse, parse_list
from mergelake.expr.registry import Seed, known_functions

FAMILIES = (
    _arithmetic,
    _arrays,
    _cast_functions,
    _chance,
    _comparison,
    _conditional,
    _date_arithmetic,
    _date_format,
    _date_parts,
    _divisors,
    _hashes,
    _intervals,
    _logical,
    _membership,
    _rounding,
    _strings,
    _subcolumns,
    _subseconds,
    _token_search,
    _week_numbers,
)
"""The modules that fill the table of functions; importing a module registers its functions."""

__all__ = [
    "BoundCall",
    "BoundColumn",
    "BoundLiteral",
    "BoundNode",
    "Call",
    "ColumnRef",
    "Compiled",
    "Literal",
    "Seed",
    "SyntaxNode",
    "bind",
    "column_name",
    "columns_of",
    "compile_expression",
    "conjuncts",
    "known_functions",
    "parse",
    "parse_list",
    "referenced_columns",
    "walk",
]
