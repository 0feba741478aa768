"""The expressions of a mutation as they are logged: whoever applies them, and whenever, they have the same values.

- `now()`, `today()` and the like become the time of submission.
- `t.a` and `db.t.a` become `a`.
- An ALIAS column that depends on the time becomes its expression.
- The condition of ALTER … DELETE may be any number: it becomes a comparison with 0.

Functions without a fixed value, virtual columns and `arrayJoin` are refused by name. All functions here are pure.
"""

from __future__ import annotations

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.exact import exact_tree
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode, referenced_columns
from mergelake.expr.parser import parse
from mergelake.expr.registry import find_function

VIRTUAL_COLUMNS = frozenset(
    (
        "_part", "_part_index", "_part_uuid", "_part_offset", "_part_starting_offset", "_part_granule_offset",
        "_part_data_version", "_partition_id", "_partition_value", "_sample_factor", "_block_number", "_block_offset",
        "_row_exists", "_disk_name", "_database", "_table", "_distance",
    )
)  # fmt: skip
"""Virtual columns of ClickHouse's MergeTree."""
_TIMES = ("now", "now64", "today", "yesterday")
_OTHER_NAMES = {"current_timestamp": "now", "localtimestamp": "now", "localtime": "now"}
_OF_UTC = ("utctimestamp", "utc_timestamp")
_VARYING_NAMES = """
rand rand32 rand64 randconstant randcanonical randbernoulli randbinomial randchisquared randexponential randfisherf
randlognormal randnegativebinomial randnormal randpoisson randstudentt randuniform randomfixedstring
randomprintableascii randomstring randomstringutf8 fuzzbits arrayshuffle arraypartialshuffle arrayrandomsample
generateuuidv4 generateuuidv7 generatesnowflakeid generateserialid generaterandomstructure datetimetouuidv7
nowinblock nowinblock64 rownumberinblock rownumberinallblocks blocknumber blocksize blockserializedsize
runningaccumulate runningdifference runningdifferencestartingwithfirstvalue neighbor runningconcurrency
hostname fqdn fullhostname displayname currentuser user authenticateduser currentdatabase database currentschemas
current_database current_schemas current_user schema currentroles currentprofiles queryid query_id initialqueryid
initial_query_id initialquerystarttime connectionid connection_id version revision buildid uptime serveruuid tcpport
timezone servertimezone getsetting getsettingordefault getmacro getserversetting getserverport getmergetreesetting
filesystemavailable filesystemcapacity filesystemunreserved transactionid zookeepersessionuptime
"""
_VARYING = frozenset(_VARYING_NAMES.split())
"""Functions, in lower case, whose values depend on the moment, the block or the process."""


def settled(text: str, schema: TableSchema, now_ms: int, table: str = "") -> SyntaxNode:
    """The tree of an expression that is logged, with the names of the columns.

    `now_ms` is the time of submission, `table` the name (`database.table`) that may stand before columns. Raises
    BAD_ARGUMENTS for a function without a fixed value, NOT_IMPLEMENTED for a virtual column, UNEXPECTED_EXPRESSION for
    arrayJoin, and the errors of parsing.
    """
    node = _Settling(schema, now_ms, table).node(parse(text))
    if not any(schema.has(name) and schema.column(name).default_kind == "ALIAS" for name in referenced_columns(node)):
        return node
    within = _Settling(schema, now_ms, table)
    expanded = within.node(expand_aliases(node, schema))
    return expanded if within.timed else node


def delete_condition(node: SyntaxNode, schema: TableSchema) -> SyntaxNode:
    """The condition of ALTER … DELETE as one of type UInt8.

    BAD_ARGUMENTS, or ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER for a wide number, if it is no number of up to 64 bits.
    """
    kind = t.inner_type(bind(expand_aliases(node, schema), schema.readable).type)
    if kind == t.UINT8 or isinstance(kind, t.Bool | t.Nothing):
        return node
    if isinstance(kind, t.Float) or (isinstance(kind, t.Int) and kind.bits <= 64):
        return Call("notEquals", (node, Literal(0, t.UINT8)))
    wide = isinstance(kind, t.Int | t.Decimal)
    name = "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER" if wide else "BAD_ARGUMENTS"
    raise error(
        name, f"The condition of ALTER … DELETE has type {kind}, which is no simple number", "Write a comparison"
    )


def printed(node: SyntaxNode) -> str:
    """The text of a tree that is logged; NOT_IMPLEMENTED if it could not be read again."""
    text = str(node)
    try:
        same = repr(parse(text)) == repr(node)  # NaN is not equal to itself
    except MergelakeError:
        same = False
    if not same:
        raise error("NOT_IMPLEMENTED", f"The expression {text} cannot be logged", "Write it in another way")
    return text


class _Settling:
    """A walk over one expression."""

    def __init__(self, schema: TableSchema, now_ms: int, table: str) -> None:
        self.timed = False
        """Whether it met a function of the time."""
        self._schema, self._now_ms = schema, now_ms
        self._qualifiers = tuple(f"{table[at:]}." for at in (0, table.find(".") + 1)) if table else ()

    def node(self, node: SyntaxNode) -> SyntaxNode:
        match node:
            case ColumnRef(name):
                return ColumnRef(self._column(name))
            case Call(function, args):
                return self._call(function, args)
        return node

    def _column(self, name: str) -> str:
        if self._is_known(name):
            return name
        for qualifier in self._qualifiers:
            if name.startswith(qualifier) and self._is_known(name.removeprefix(qualifier)):
                return name.removeprefix(qualifier)
        if self._schema.has(name):
            raise error("NO_SUCH_COLUMN_IN_TABLE", f"There is no column {name} in the rows", "It is EPHEMERAL")
        if name in VIRTUAL_COLUMNS:
            hint = "IN PARTITION restricts a command to a partition; where a row lies changes with every merge"
            raise error("NOT_IMPLEMENTED", f"The virtual column {name} is not supported in mutations", hint)
        return name

    def _is_known(self, name: str) -> bool:
        try:
            bind(ColumnRef(name), self._schema.readable)
        except MergelakeError:
            return False
        return True

    def _call(self, function: str, args: tuple[SyntaxNode, ...]) -> SyntaxNode:
        low = function.lower()
        if low in ("arrayjoin", "unnest"):
            raise error("UNEXPECTED_EXPRESSION", f"{function} is not allowed in mutations", "It would make more rows")
        if low in _VARYING:
            message = f"{function}() may have another value each time that the mutation is applied to a part"
            hint = f"In SQL (SELECT {function}()) is evaluated once; a hash such as cityHash64(k) differs by row"
            raise error("BAD_ARGUMENTS", message, hint)
        time = self._time(function, args)
        if time is not None:
            self.timed = True
            return time
        settled_args = tuple(map(self.node, args))
        if low in ("in", "notin"):
            self._check_set(*settled_args)
        return Call(function, settled_args)

    def _time(self, function: str, args: tuple[SyntaxNode, ...]) -> SyntaxNode | None:
        """The value of a function of the time; None for another function."""
        low = function.lower()
        if low in _OF_UTC:
            function, args = "now", (Literal(b"UTC", t.STRING),)
        function = _OTHER_NAMES.get(low, function)
        try:
            known = find_function(function).name
        except MergelakeError:
            return None
        if known not in _TIMES:
            return None
        bound = bind(Call(known, args), {}, self._now_ms)
        assert isinstance(bound, BoundLiteral)
        return exact_tree(bound.value, bound.type)

    def _check_set(self, left: SyntaxNode, right: SyntaxNode) -> None:
        """NOT_IMPLEMENTED if the members of a set, the result of a subquery, are of another type than the left side.

        ClickHouse converts the left side then (1 is not in a set of '01'), unlike with members that are written out.
        Results of subqueries are arrays that are cast (`exact_tree`).
        """
        if not isinstance(right, Call) or right.function != "CAST" or not isinstance(right.args[1], Literal):
            return
        kind = right.args[1].value
        members = t.parse_type(kind.decode()) if isinstance(kind, bytes) else None
        if not isinstance(members, t.Array):
            return
        value = bind(expand_aliases(left, self._schema), self._schema.readable).type
        widths = [_width(value), _width(members.inner)]
        if widths[0] != widths[1]:
            message = "Number of columns in section IN doesn't match. {} at left, {} at right"
            raise error(
                "NUMBER_OF_COLUMNS_DOESNT_MATCH", message.format(*widths), "Select as many as the left side has"
            )
        if not _comparable(value, members.inner):
            message = f"The left side of IN has type {value}, and the subquery {members.inner}"
            raise error("NOT_IMPLEMENTED", message, f"Cast the column of the subquery to {t.inner_type(value)}")


def _width(kind: t.DataType) -> int:
    plain = t.inner_type(kind)
    return len(plain.elements) if isinstance(plain, t.Tuple) else 1


def _comparable(left: t.DataType, right: t.DataType) -> bool:
    left, right = t.inner_type(left), t.inner_type(right)
    if isinstance(left, t.Tuple) and isinstance(right, t.Tuple) and len(left.elements) == len(right.elements):
        return all(map(_comparable, left.elements, right.elements))
    if isinstance(left, t.DateTime) and isinstance(right, t.DateTime):
        return True
    if isinstance(left, t.DateTime64) and isinstance(right, t.DateTime64):
        return left.precision == right.precision
    texts, numbers = (t.String, t.FixedString), (t.Int,)
    alike = any(isinstance(left, kinds) and isinstance(right, kinds) for kinds in (texts, numbers))
    return alike or left == right or isinstance(left, t.Nothing) or isinstance(right, t.Nothing)
