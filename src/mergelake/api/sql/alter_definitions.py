"""ALTER TABLE … ADD | DROP CONSTRAINT and INDEX, MATERIALIZE | CLEAR INDEX, MODIFY ORDER BY, SAMPLE BY and COMMENT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import constraint, index, key_list
from mergelake.api.sql.mutation_statements import in_partition
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.comments import ModifyComment
from mergelake.table.definition.constraints import AddConstraint, DropConstraint
from mergelake.table.definition.indexes import AddIndex, DropIndex
from mergelake.table.definition.keys import ModifyOrderBy, ModifySampleBy, RemoveSampleBy


def _add_constraint(cursor: Cursor, name: s.Name) -> AddConstraint:
    if_not_exists = cursor.if_not_exists()
    return AddConstraint(constraint(cursor), if_not_exists)


def _drop_constraint(cursor: Cursor, name: s.Name) -> DropConstraint:
    if_exists = cursor.if_exists()
    return DropConstraint(cursor.identifier("the name of a constraint"), if_exists)


def _add_index(cursor: Cursor, name: s.Name) -> AddIndex:
    if_not_exists = cursor.if_not_exists()
    new = index(cursor)
    after = None
    if cursor.accept("FIRST"):
        after = ""
    elif cursor.accept("AFTER"):
        after = cursor.identifier("the name of an index")
    return AddIndex(new, after, if_not_exists)


def _drop_index(cursor: Cursor, name: s.Name) -> DropIndex:
    if_exists = cursor.if_exists()
    return DropIndex(cursor.identifier("the name of an index"), if_exists)


def _order_by(cursor: Cursor, name: s.Name) -> ModifyOrderBy:
    return ModifyOrderBy(key_list(cursor, frozenset())[0])


def _sample_by(cursor: Cursor, name: s.Name) -> ModifySampleBy:
    return ModifySampleBy(cursor.expression(()))


def _no_sample_by(cursor: Cursor, name: s.Name) -> RemoveSampleBy:
    return RemoveSampleBy()


def _comment(cursor: Cursor, name: s.Name) -> ModifyComment:
    return ModifyComment(cursor.string())


def _index_files(clears: bool, cursor: Cursor, name: s.Name) -> s.IndexMutation:
    cursor.if_exists()  # an index that the table has not is never an error
    return s.IndexMutation(cursor.identifier("the name of an index"), clears, in_partition(cursor))


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], SchemaCommand | s.IndexMutation]] = {
    "ADD CONSTRAINT": _add_constraint,
    "DROP CONSTRAINT": _drop_constraint,
    "ADD INDEX": _add_index,
    "DROP INDEX": _drop_index,
    "MATERIALIZE INDEX": partial(_index_files, False),
    "CLEAR INDEX": partial(_index_files, True),
    "MODIFY ORDER BY": _order_by,
    "MODIFY SAMPLE BY": _sample_by,
    "REMOVE SAMPLE BY": _no_sample_by,
    "MODIFY COMMENT": _comment,
}
