"""Subcolumns: the streams of a column under names of their own, as `n.null`, `arr.size0`, `m.keys`, `t.a.size`.

=====================  =====================================================  =========================
type of the column     name                                                   what it stands for
=====================  =====================================================  =========================
Nullable(T)            `null`; those of T                                     isNull(x)
String                 `size`                                                 length(x)
Tuple                  its elements, and theirs                               tupleElement(x, 'a')
Array(T)               `size0`; `size1` and so on of inner arrays; those of   length(x); getSubcolumn
                       T for each element
Map                    `size0`, `keys`, `values`, `key_k`                     mapKeys(x), x['k']
=====================  =====================================================  =========================

A subcolumn that equals a function of the column is bound as that function, so a key of one form serves conditions
on the other. Subcolumns of Variant, Dynamic and JSON are refused.

Source: ClickHouse, `ISerialization::enumerateStreams` and `getName` of substreams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.functions.arrays import offsets_of
from mergelake.expr.registry import Bind, BindingEnvironment, Resolved, illegal, special
from mergelake.expr.values import Vec, from_arrow, to_arrow

_ITEM = "item"


def find_subcolumn(name: str, columns: Mapping[str, t.DataType], call: Bind) -> BoundNode | None:
    """The subcolumn called `name` (`column.path`) of the column with the longest matching name, or None."""
    at = name.rfind(".")
    while at > 0:
        head = name[:at]
        if head in columns:
            subcolumn = _of(BoundColumn(head, columns[head]), name[at + 1 :], call)
            if subcolumn is not None:
                return subcolumn
        at = name.rfind(".", 0, at)
    return None


def _of(node: BoundNode, path: str, call: Bind) -> BoundNode | None:
    """The subcolumn `path` of `node`."""
    match node.type:
        case t.Nullable(inner):
            if path == "null":
                return call("isNull", (node,))
            return _of_text(node, path, call) if isinstance(inner, t.String) else None
        case t.String():
            return _of_text(node, path, call)
        case t.Tuple() as kind:
            return _of_tuple(node, kind, path, call)
        case t.Array(inner):
            return call("length", (node,)) if path == "size0" else _of_elements(node, inner, path, call)
        case t.Map() as kind:
            return _of_map(node, kind, path, call)
        case t.Variant() | t.Dynamic() | t.Json() as kind:
            message = f"Subcolumns of type {kind} are not supported in expressions here: {path}"
            raise error("NOT_IMPLEMENTED", message, "Keep the value in a column of its own")
    return None


def _of_text(node: BoundNode, path: str, call: Bind) -> BoundNode | None:
    return call("length", (node,)) if path == "size" else None


def _of_tuple(node: BoundNode, kind: t.Tuple, path: str, call: Bind) -> BoundNode | None:
    for place, name in enumerate(tuple_names(kind)):
        if path != name and not path.startswith(f"{name}."):
            continue
        literal = BoundLiteral(name.encode(), t.STRING) if kind.names else BoundLiteral(place + 1, t.UINT8)
        element = call("tupleElement", (node, literal))
        subcolumn = element if path == name else _of(element, path[len(name) + 1 :], call)
        if subcolumn is not None:
            return subcolumn
    return None


def _of_map(node: BoundNode, kind: t.Map, path: str, call: Bind) -> BoundNode | None:
    if path in ("keys", "values"):
        return call(f"map{path.capitalize()}", (node,))
    if path == "size0":
        return call("length", (call("mapKeys", (node,)),))
    if path.startswith("key_"):
        try:
            key = call("CAST", (BoundLiteral(path[4:].encode(), t.STRING), _literal_of(str(t.inner_type(kind.key)))))
        except MergelakeError:
            return None
        return call("arrayElement", (node, key))
    return None


def _literal_of(text: str) -> BoundLiteral:
    return BoundLiteral(text.encode(), t.STRING)


def _of_elements(node: BoundNode, inner: t.DataType, path: str, call: Bind) -> BoundNode | None:
    """The subcolumn `path` of each element of an array, as an array."""
    deeper = re.fullmatch(r"size([1-9]\d{0,2})((?:\..*)?)", path)
    within = f"size{int(deeper.group(1)) - 1}{deeper.group(2)}" if deeper else path
    element_node = _of(BoundColumn(_ITEM, inner), within, call)
    if element_node is None or isinstance(element_node, BoundLiteral):
        return None
    each, result = element_node, t.Array(element_node.type)
    target = storage_type(result)

    def run(ctx: EvaluationContext) -> Vec:
        lists = ctx.eval(node).broadcast(ctx.rows).data
        items = EvaluationContext(len(lists.values), lambda _: from_arrow(lists.values, inner))
        values = to_arrow(items.eval(each), each.type, len(lists.values))
        return Vec(pa.ListArray.from_arrays(pa.array(offsets_of(lists), pa.int32()), values, type=target))

    return BoundCall("getSubcolumn", (node, _literal_of(path)), result, run, cost=20)


@special("getSubcolumn", 2)
def _get_subcolumn(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    column, path = args
    if not isinstance(path, BoundLiteral) or not isinstance(path.value, bytes):
        raise illegal("getSubcolumn", column.type, path.type)
    subcolumn = _of(column, path.value.decode(errors="replace"), environment.call)
    if subcolumn is None:
        message = f"There is no subcolumn {path.value.decode(errors='replace')} in type {column.type}"
        raise error("ILLEGAL_COLUMN", message)
    return Resolved(subcolumn.type, node=subcolumn)
