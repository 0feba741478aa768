"""ClickHouse expressions over Arrow blocks in storage form.

::

    text --parse--> SyntaxNode --bind--> BoundNode --compile_expression--> Compiled.evaluate(block), .mask(block)

1. `parse` reads ClickHouse's grammar into literals, columns and calls (`nodes`).
2. `bind` looks names up, decides ClickHouse's result types, folds constants (`binder`, `registry`).
3. A bound call runs a kernel over numpy or Arrow data (`values`, `evaluate`): whole columns, dictionaries
   computed on once, NULLs beside the data. AND looks at later conditions only where earlier ones held.
"""

from mergelake.expr import (
    arithmetic as _arithmetic,
)
from mergelake.expr import (
    arrays as _arrays,
)
from mergelake.expr import (
    cast_functions as _cast_functions,
)
from mergelake.expr import (
    chance as _chance,
)
from mergelake.expr import (
    comparison as _comparison,
)
from mergelake.expr import (
    conditional as _conditional,
)
from mergelake.expr import (
    date_arithmetic as _date_arithmetic,
)
from mergelake.expr import (
    date_format as _date_format,
)
from mergelake.expr import (
    date_parts as _date_parts,
)
from mergelake.expr import (
    divisors as _divisors,
)
from mergelake.expr import (
    hashes as _hashes,
)
from mergelake.expr import (
    intervals as _intervals,
)
from mergelake.expr import (
    logical as _logical,
)
from mergelake.expr import (
    membership as _membership,
)
from mergelake.expr import (
    rounding as _rounding,
)
from mergelake.expr import (
    strings as _strings,
)
from mergelake.expr import (
    subcolumns as _subcolumns,
)
from mergelake.expr import (
    subseconds as _subseconds,
)
from mergelake.expr import (
    token_search as _token_search,
)
from mergelake.expr import (
    week_numbers as _week_numbers,
)
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode, columns_of, conjuncts, walk
from mergelake.expr.compiled import Compiled, compile_expression
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
"""The modules that fill the table of functions; importing them is what registers."""

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
