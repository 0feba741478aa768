"""ClickHouse expressions over Arrow blocks in storage form.

::

    text --parse--> Node --bind--> BoundNode --compile_expression--> Compiled.evaluate(block), .mask(block)

1. `parse` reads ClickHouse's grammar into literals, columns and calls (`nodes`).
2. `bind` looks names up, decides ClickHouse's result types, folds constants (`binder`, `registry`).
3. A bound call runs a kernel over numpy or Arrow data (`values`, `evaluate`): whole columns, dictionaries
   computed on once, NULLs beside the data. AND looks at later conditions only where earlier ones held.

`monotonic` and `range_of` tell the scan what a function does to an interval of its argument.
"""

from mergelake.expr import (
    arithmetic as _arithmetic,
    arrays as _arrays,
    cast_functions as _cast_functions,
    comparison as _comparison,
    conditional as _conditional,
    date_arithmetic as _date_arithmetic,
    date_parts as _date_parts,
    hashes as _hashes,
    intervals as _intervals,
    logical as _logical,
    membership as _membership,
    strings as _strings,
)
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode, columns_of, conjuncts, walk
from mergelake.expr.compiled import Compiled, compile_expression
from mergelake.expr.monotonic import monotonic, range_of
from mergelake.expr.nodes import Call, ColumnRef, Literal, Node, column_name, referenced_columns
from mergelake.expr.parser import parse, parse_list
from mergelake.expr.registry import known_functions

FAMILIES = (
    _arithmetic,
    _arrays,
    _cast_functions,
    _comparison,
    _conditional,
    _date_arithmetic,
    _date_parts,
    _hashes,
    _intervals,
    _logical,
    _membership,
    _strings,
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
    "Node",
    "bind",
    "column_name",
    "columns_of",
    "compile_expression",
    "conjuncts",
    "known_functions",
    "monotonic",
    "parse",
    "parse_list",
    "range_of",
    "referenced_columns",
    "walk",
]
