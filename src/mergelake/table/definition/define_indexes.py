"""Checks the INDEX declarations of a new table, for `table.definition.define`.

Source: ClickHouse, `IndicesDescription.cpp`, `MergeTreeData::checkProperties`, the validator of each index type.
"""

from __future__ import annotations

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import Column, SkipIndex, TableSchema
from mergelake.core.types import types as t
from mergelake.expr.bound import columns_of
from mergelake.expr.nodes import Call, SyntaxNode, referenced_columns, walk
from mergelake.expr.registry import canonical_name
from mergelake.format.indexes.skip_types import check_index_types, parse_index_type
from mergelake.parts.write.indexing import bind_index, index_expressions

_VARYING = frozenset(
    {
        "now",
        "now64",
        "today",
        "yesterday",
        "rand",
        "rand32",
        "rand64",
        "generateUUIDv4",
        "currentDatabase",
        "version",
    }
)
"""Functions that do not give the same for the same row again."""


def check_indexes(schema: TableSchema) -> None:
    """Refuse unsupported indexes, with ClickHouse's code; the message names the index."""
    names: set[str] = set()
    stored = frozenset(column.name for column in schema.stored)
    for index in schema.indices:
        if index.name in names:
            raise error(
                "ILLEGAL_INDEX", f"Duplicated index name {index.name} is not allowed", "Please use a different name"
            )
        names.add(index.name)
        try:
            _check(index, schema, stored)
        except MergelakeError as refused:
            refused.message = f"{refused.message}: When validating secondary index `{index.name}`"
            raise


def _check(index: SkipIndex, schema: TableSchema, stored: frozenset[str]) -> None:
    if index.granularity < 1:
        raise error("BAD_ARGUMENTS", "Index GRANULARITY must be a positive integer")
    kind = parse_index_type(index.type)
    trees = index_expressions(index)
    for tree in trees:
        check_deterministic(tree)
    if len(trees) == 1:
        check_repeated(trees[0], schema)
    if len(set(trees)) != len(trees):
        raise error("BAD_ARGUMENTS", "Secondary index contains a duplicate expression")
    bound = bind_index(index, schema)
    for node, tree, text in zip(bound.nodes, trees, bound.texts, strict=True):
        names = [name for name in bound.columns if name not in stored]
        if names and schema.column(names[0]).default_kind == "ALIAS":
            raise error(
                "NOT_IMPLEMENTED",
                f"An index of the ALIAS column {names[0]} is not supported",
                f"Write its expression, {schema.column(names[0]).default}",
            )
        if names and schema.column(names[0]).default_kind == "EPHEMERAL":
            raise missing_column(schema.column(names[0]), text)
        if names:
            raise error("ILLEGAL_COLUMN", f"A secondary index uses the column {names[0]}, which is not stored")
        if not columns_of(node) and node.type == t.Nullable(t.Nothing()) and referenced_columns(tree):
            raise error("NOT_IMPLEMENTED", f"An index of {text}, which is NULL in every row, is not supported")
        if not columns_of(node):
            raise error("INCORRECT_QUERY", f"Secondary index '{index.name}' cannot contain constants: {text}")
    check_index_types(kind, bound.types)


def missing_column(column: Column, within: str) -> MergelakeError:
    """The error for a key or an index over an ALIAS or EPHEMERAL column."""
    hint = f"{column.name} is an ALIAS column: write its expression, {column.default}"
    if column.default_kind == "EPHEMERAL":
        hint = f"{column.name} is an EPHEMERAL column, which is not stored"
    return error("UNKNOWN_IDENTIFIER", f"Missing columns: '{column.name}' while processing: '{within}'", hint)


def varying_function(tree: SyntaxNode) -> str | None:
    """A function in an expression that does not give the same for the same row again, if there is one.

    By its own name: `NOW()` is `now`.
    """
    functions = {canonical_name(node.function) for node in walk(tree) if isinstance(node, Call)}
    return min(functions & _VARYING, default=None)


def check_deterministic(tree: SyntaxNode) -> None:
    """Refuse a key or an index that is not deterministic."""
    if (varying := varying_function(tree)) is not None:
        message = f"Expression must be deterministic but it contains non-deterministic part `{varying}()`"
        raise error("BAD_ARGUMENTS", message)


def check_repeated(tree: SyntaxNode, schema: TableSchema) -> None:
    """Refuse equal arguments, as in `nullIf(k, k)`, in a key or index of one expression, unless a setting allows it."""
    if schema.settings.get("allow_suspicious_indices", "0") not in ("0", "false"):
        return
    if isinstance(tree, Call) and len(set(tree.args)) != len(tree.args):
        raise error(
            "BAD_ARGUMENTS",
            f"Primary key or secondary index contains a duplicate expression: {tree}",
            "Set allow_suspicious_indices = 1 if it is meant",
        )
