"""What states of aggregate functions are made of: a table from functions to programs of `kernels_states`.

A state has no length of its own; only who knows the function can tell where it ends. `state_program` builds the
program of a type: that of the function by its arguments, wrapped by what its combinators add (`-If` takes its last
argument away, `-Array` looks into arrays, `-OrNull` and `-OrDefault` add a byte, `-ForEach`, `-Map`, `-Resample` hold
several states, `-Distinct` holds a set instead). Nullable arguments put a byte before the state whether a value came,
unless the result is an array.

A function that is not here has no program: its states are carried with their part and refused elsewhere.

Source: ClickHouse, `src/AggregateFunctions/` (`serialize` of each); each entry is tested against ClickHouse state by
state.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.format.kernels import kernels_states as k

Types = tuple[t.DataType, ...]
UNKNOWN_STATES = "Use an aggregate function that a column of type AggregateFunction can have here"
"""The way out where a function is not known."""


@dataclass(frozen=True, slots=True)
class Program:
    """Rows for the walk over one state, and the state over no rows."""

    steps: tuple[tuple[int, int, int], ...] = ()
    empty: bytes = b""

    def __add__(self, other: Program) -> Program:
        return Program(self.steps + other.steps, self.empty + other.empty)


NOTHING = Program()
VARUINT = Program(((k.VARUINT, 0, 0),), b"\0")
BYTES = Program(((k.BYTES, 0, 0),), b"\0")
_TEXT = Program(((k.TEXT, 0, 0),), b"\xff\xff\xff\xff")


def joined(*parts: Program | None) -> Program | None:
    """One after the other; None if one is not known."""
    whole = NOTHING
    for part in parts:
        if part is None:
            return None
        whole += part
    return whole


def fixed(width: int, empty: bytes = b"") -> Program:
    """So many bytes."""
    return Program(((k.FIXED, width, 0),), empty or bytes(width))


def listed(width: int, count: int = k.COUNT_VARUINT) -> Program:
    """A count and so many values of a width."""
    return Program(((k.LIST, width, count),), bytes((1, 8, 2)[count]))


def repeat(body: Program, count: int = k.COUNT_VARUINT) -> Program:
    """A count and so many times `body`."""
    rows = len(body.steps)
    return Program(((k.LOOP, count, rows), *body.steps, (k.NEXT, 0, rows)), bytes((1, 8, 2)[count]))


def case(first: int, cases: dict[int, Program]) -> Program:
    """A byte that says what follows; `first` is the byte of a state over no rows."""
    jumps: list[tuple[int, int]] = []
    blocks: list[tuple[int, int, int]] = []
    total = sum(len(each.steps) + 1 for each in cases.values())
    for number, (tag, each) in enumerate(cases.items()):
        jumps.append((tag, len(cases) - number + len(blocks)))
        end = len(blocks) + len(each.steps) + 1
        blocks += [*each.steps, (k.GOTO, 0, total - end)]
    rows = [(k.SWITCH, len(cases), 0), *((k.CASE, tag, jump) for tag, jump in jumps), *blocks]
    return Program(tuple(rows), bytes([first]) + cases[first].empty)


def optional(inner: Program) -> Program:
    """A byte whether something is there, and if so `inner`."""
    return case(0, {0: NOTHING, 1: inner})


def aggregate_function(name: str) -> str | None:
    """ClickHouse's own name of an aggregate function that is called by `name`; None if it is none that we know.

    `SUM`, `median`, `max_byIf` are `sum`, `quantile`, `argMaxIf`. A function may have parameters: `quantile(0.9)`. Not
    known are those whose states have a version that their types do not tell.
    """
    bare, bracket, parameters = name.partition("(")
    own = "uniqExact" if bare.lower() == "countdistinct" else _own_name(bare)
    return None if own is None else own + bracket + parameters


def _own_name(name: str) -> str | None:
    own = _ANY_CASE.get(name.lower()) or _ALIASES.get(name, name)
    if own in _TABLE or own in _KEEP_NULLABLE or own == "count":
        return own if own not in _VERSIONED or own in _WIDENED else None
    match = _SUFFIX.search(name)
    base = None if match is None else _own_name(name[: match.start()])
    return None if base is None or match is None else base + match.group()


def state_version(function: str, arguments: Types) -> int | None:
    """The version of the states of a function that ClickHouse writes now, as their type says it; None for none."""
    *_, base = _bases(function.partition("(")[0])
    return 1 if base in _WIDENED and not _is_map(base, arguments) else None


@lru_cache(maxsize=1024)
def state_program(data_type: t.AggregateFunction) -> Program | None:
    """The program of one state of `data_type`; None for a function that we cannot walk over."""
    name, parameters = _split(data_type.function)
    arguments = plain_arguments(data_type)
    *_, base = _bases(_ALIASES.get(name, _OLD_NAMES.get(name, name)))
    version = data_type.version or 0
    if version > (base in _VERSIONED) or (base in _WIDENED and not version and not _is_map(name, arguments)):
        return None
    program = _build(name, parameters, arguments)
    # The first version of these has a byte more, which says whether its values are sorted.
    return program + fixed(1) if program is not None and version and base.endswith("Deterministic") else program


def plain_arguments(data_type: t.AggregateFunction) -> Types:
    """The types of the arguments as a state is made of them: without LowCardinality and SimpleAggregateFunction."""
    return tuple(map(_plain, data_type.arguments))


def _split(function: str) -> tuple[str, tuple[str, ...]]:
    name, _, rest = function.partition("(")
    inner = rest[:-1]
    return name, tuple(re.findall(r"'(?:[^'\\]|\\.)*'|\[[^\]]*\]|[^,\s][^,]*", inner))


def _plain(data_type: t.DataType) -> t.DataType:
    match data_type:
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return _plain(inner)
        case t.Array(inner):
            return t.Array(_plain(inner))
        case t.Map(key, value):
            return t.Map(_plain(key), _plain(value))
        case t.Tuple(elements, names):
            return t.Tuple(tuple(map(_plain, elements)), names)
        case t.Nullable(inner):
            return t.Nullable(_plain(inner))
        case _:
            return data_type


def _build(name: str, parameters: tuple[str, ...], arguments: Types) -> Program | None:
    """The program of a function with its combinators, over plain arguments."""
    name = _ALIASES.get(name, _OLD_NAMES.get(name, name))
    if name == "count":
        return VARUINT
    bare = tuple(a.inner if isinstance(a, t.Nullable) else a for a in arguments)
    if any(isinstance(a, (t.Nothing, t.Unknown)) for a in bare):
        return None
    if name in _KEEP_NULLABLE:
        return _KEEP_NULLABLE[name](arguments, parameters)
    inner = _combined(name, parameters, bare)
    if inner is None or bare == arguments or not _has_flag(name, bare):
        return inner
    if name.endswith("If") and bare[:-1] == arguments[:-1] and not _gives_default(name):
        return inner  # a condition that is NULL is false
    return case(1 if _is_default(name, bare) else 0, {0: NOTHING, 1: inner})


def _bases(name: str) -> list[str]:
    """A function and its combinators, from the outermost inwards."""
    combinators = []
    while name not in _TABLE and (match := _SUFFIX.search(name)):
        combinators.append(match.group())
        name = name[: match.start()]
    return [*combinators, name]


def _has_flag(name: str, arguments: Types) -> bool:
    """Whether a byte before the state says that a value came that is not NULL."""
    *outer, base = _bases(name)
    if "OrNull" in outer:
        return base == "count" or base.startswith("uniq")
    return "Resample" in outer or base not in _NO_FLAG


def _is_default(name: str, arguments: Types) -> bool:
    """Whether that byte is 1 in a state over no rows: for functions whose result is no NULL even then."""
    *outer, base = _bases(name)
    if base in ("argMin", "argMax", "min", "max", "any", "anyLast"):
        return isinstance(arguments[0], (t.Array, t.Map))
    if base.startswith("uniqCombined"):
        return False
    return "Resample" in outer or base in _DEFAULTS or base.startswith(("uniq", "quantiles"))


def _gives_default(name: str) -> bool:
    """Whether the result of a function over NULLs alone is a default, not NULL, nor an array."""
    base = _bases(name)[-1]
    if base.startswith(("uniq", "quantiles")):
        return not base.startswith("uniqCombined")
    return base in ("count", "deltaSum", "deltaSumTimestamp", "regr_count")


_SUFFIX = re.compile(
    r"(?<=.)(?:If|Array|OrNull|OrDefault|ForEach|Map|Resample|Distinct|State|Merge|SimpleState|ArgMin|ArgMax)$"
)


def _combined(name: str, parameters: tuple[str, ...], arguments: Types) -> Program | None:
    maker = _TABLE.get(name)
    is_map = _is_map(name, arguments)
    if maker is not None and not is_map:
        return maker(arguments, parameters) if arguments else None
    match = _SUFFIX.search(name)
    if match is None or not arguments:
        return None
    base, suffix = name[: match.start()], match.group()

    def inside(types: Types, left: tuple[str, ...] = parameters) -> Program | None:
        return _build(base, left, types)

    first = arguments[0]
    match suffix:
        case "If":
            return inside(arguments[:-1])
        case "State" | "SimpleState":
            return inside(arguments)
        case "Merge" if isinstance(first, t.AggregateFunction) and len(arguments) == 1:
            return state_program(first)
        case "OrNull" | "OrDefault":
            return joined(inside(arguments), fixed(1))
        case "Distinct":
            raw = len(arguments) == 1 and isinstance(first, (t.Int, t.Float, t.BFloat16, t.Bool, t.Enum))
            width = _width(first) if raw else 0
            return listed(width) if width else repeat(BYTES)
        case "ArgMin" | "ArgMax":
            return joined(inside(arguments[:-1]), _single(arguments[-1]))
        case "Array" | "ForEach" if all(isinstance(a, t.Array) for a in arguments):
            program = inside(tuple(_plain(a.inner) for a in arguments if isinstance(a, t.Array)))
            if program is None or suffix == "Array":
                return program
            return repeat(program, k.COUNT_U64)
        case "Map" if isinstance(first, t.Map) and is_map:
            key = BYTES if isinstance(first.key, t.FixedString) else _value(first.key)
            program = joined(key, inside((_plain(first.value),)))
            return None if program is None else repeat(program)
        case "Resample" if len(parameters) >= 3 and len(arguments) > 1:
            program, count = inside(arguments[:-1], parameters[:-3]), _buckets(parameters[-3:])
            if program is None or not 0 < count <= _RESAMPLE_MAX:
                return None
            return Program(program.steps * count, program.empty * count)
    return None


def _is_map(name: str, arguments: Types) -> bool:
    """Whether a name that ends in `Map` is a function for each value of a map, not one of pairs of arrays."""
    return name.endswith("Map") and len(arguments) == 1 and isinstance(arguments[0], t.Map)


_RESAMPLE_MAX = 1000


def _buckets(limits: Sequence[str]) -> int:
    try:
        start, end, step = map(int, limits)
    except ValueError:
        return 0
    return -(-(end - start) // step) if step > 0 else 0


# --- values


_RAW_ELEMENTS = (t.Int, t.Float, t.BFloat16, t.Bool, t.Date, t.DateTime, t.Enum, t.IPv4)
"""What lists of values hold as it is; other types stand in them with their length."""
_RAW_KEYS = (*_RAW_ELEMENTS, t.Date32, t.UUID, t.IPv6)
"""What the sets of uniqExact hold as it is; of other types they hold a hash."""
_VARIABLE = (t.String, t.Array, t.Tuple, t.Nullable, *t.UNORDERED)


def _width(kind: t.DataType) -> int:
    """Bytes of a value of fixed width, else 0."""
    return 0 if isinstance(kind, _VARIABLE) else int(storage_type(kind).bit_width) // 8


def _value(kind: t.DataType) -> Program | None:
    """One value by itself, as in a key."""
    match kind:
        case t.String():
            return BYTES
        case t.Nullable(inner):
            program = _value(inner)
            return None if program is None else case(1, {0: program, 1: NOTHING})
        case t.Array(inner):
            program = _value(inner)
            return None if program is None else repeat(program)
        case t.Map(key, value):
            return _value(t.Array(t.Tuple((key, value))))
        case t.Tuple(elements) if elements:
            return joined(*map(_value, elements))
    width = _width(kind)
    return fixed(width) if width else None


def _single(kind: t.DataType) -> Program | None:
    """A state that holds one value."""
    if isinstance(kind, t.String):
        return _TEXT
    program = _value(kind)
    return None if program is None else optional(program)


def _sum_width(kind: t.DataType) -> int:
    """Bytes of a sum of such values; 0 if they cannot be summed."""
    match kind:
        case t.Int(bits):
            return max(bits, 64) // 8
        case t.Float() | t.Bool() | t.BFloat16() | t.Interval() | t.Enum():
            return 8
        case t.Decimal():
            return 32 if kind.bits == 256 else 16
        case _:
            return 0


def _elements(kind: t.DataType) -> Program | None:
    """A list of values, each as it is or with its length."""
    if isinstance(kind, _RAW_ELEMENTS):
        return listed(_width(kind))
    return repeat(BYTES) if _value(kind) is not None else None


# --- functions


Maker = Callable[[Types, tuple[str, ...]], "Program | None"]


def _one(make: Callable[[t.DataType], Program | None]) -> Maker:
    """For functions of one argument."""
    return lambda types, _: make(types[0]) if len(types) == 1 else None


def _always(program: Program, arguments: int) -> Maker:
    return lambda types, _: program if len(types) == arguments and all(map(_sum_width, types)) else None


def _regression(types: Types, parameters: tuple[str, ...]) -> Program | None:
    return fixed(48 + sum(map(_width, types))) if all(map(_sum_width, types)) else None


def _is_number(kind: t.DataType) -> bool:
    return isinstance(kind, (t.Int, t.Float, t.Bool)) and (not isinstance(kind, t.Int) or kind.bits <= 64)


def _sized(make: Callable[[int], Program]) -> Maker:
    """For functions whose state has values of the width of their first argument."""

    def build(types: Types, parameters: tuple[str, ...]) -> Program | None:
        width = _width(types[0])
        return make(width) if width and not isinstance(types[0], _NOT_PLAIN) else None

    return build


_NOT_PLAIN = (t.FixedString, t.UUID, t.IPv6)


def _sum(kind: t.DataType, *more: Program) -> Program | None:
    width = _sum_width(kind)
    return joined(fixed(width) if width else None, *more)


def _avg_weighted(types: Types, parameters: tuple[str, ...]) -> Program | None:
    if len(types) != 2 or not all(map(_is_number, types)):
        return None
    weight = types[1]
    unsigned = isinstance(weight, t.Bool) or (isinstance(weight, t.Int) and not weight.signed)
    return fixed(8) + (VARUINT if unsigned else fixed(8))


def _arg(types: Types, parameters: tuple[str, ...]) -> Program | None:
    return joined(*map(_single, types)) if len(types) == 2 else None


def _moments(count: int, head: int = 0) -> Maker:
    """`count` floats: of Float32 if all arguments are, else of Float64."""

    def build(types: Types, parameters: tuple[str, ...]) -> Program | None:
        if not all(_sum_width(kind) for kind in types):
            return None
        return fixed(head + count * (4 if all(kind == t.Float(32) for kind in types) else 8))

    return build


def _uniq_exact(types: Types, parameters: tuple[str, ...]) -> Program | None:
    raw = len(types) == 1 and isinstance(types[0], _RAW_KEYS)
    return listed(_width(types[0]) if raw else 16)


_COMBINED = {
    12: (2650, 3290), 13: (5206, 6358), 14: (10322, 12498), 15: (20558, 24782), 16: (41036, 49356), 17: (81992, 98504),
    18: (163908, 196804), 19: (327744, 393408), 20: (655420, 786620),
}  # fmt: skip
"""Bytes of a full HyperLogLog of uniqCombined and uniqCombined64 by their parameter."""


def _first_number(parameters: tuple[str, ...], default: int) -> int:
    """The first parameter; -1 if it is no number, as in a damaged `columns.txt`."""
    if not parameters:
        return default
    return int(parameters[0]) if parameters[0].isdecimal() else -1


def _combined_set(wide: bool) -> Maker:
    def build(types: Types, parameters: tuple[str, ...]) -> Program | None:
        sizes = _COMBINED.get(_first_number(parameters, 17))
        long = wide or (len(types) == 1 and isinstance(types[0], (t.String, t.FixedString)))
        hashes = listed(8 if long else 4)
        return None if sizes is None else case(1, {1: hashes, 2: hashes, 3: fixed(sizes[long])})

    return build


def _uniq_hll(types: Types, parameters: tuple[str, ...]) -> Program | None:
    raw = len(types) == 1 and isinstance(types[0], (*_RAW_ELEMENTS, t.Date32))
    return case(0, {0: listed(_width(types[0]) if raw else 8), 1: fixed(_COMBINED[12][0])})


def _uniq_up_to(types: Types, parameters: tuple[str, ...]) -> Program | None:
    raw = len(types) == 1 and isinstance(types[0], (*_RAW_ELEMENTS, t.Date32, t.UUID)) and _width(types[0]) <= 16
    raw = raw and not isinstance(types[0], t.IPv4)
    values_max = _first_number(parameters, 10)
    return None if values_max < 0 else Program(((k.UP_TO, values_max, _width(types[0]) if raw else 8),), b"\0")


def _top(types: Types, parameters: tuple[str, ...]) -> Program | None:
    kind = types[0]
    key = fixed(_width(kind)) if isinstance(kind, _RAW_ELEMENTS) else BYTES
    return repeat(key + VARUINT + VARUINT) + repeat(VARUINT)


def _group_array_sample(types: Types, parameters: tuple[str, ...]) -> Program | None:
    seed = parameters[1] if len(parameters) > 1 else "0"
    random = f"6364136223846793005 0 {seed}".encode()
    return joined(_elements(types[0]), fixed(8), Program(BYTES.steps, bytes([len(random)]) + random))


def _insert_at(types: Types, parameters: tuple[str, ...]) -> Program | None:
    value = _value(types[0])
    return None if value is None else repeat(case(1, {0: value, 1: NOTHING}))


def _sorted(types: Types, parameters: tuple[str, ...]) -> Program | None:
    if isinstance(types[0], _RAW_ELEMENTS):
        return listed(_width(types[0]))
    value = _value(types[0])
    return None if value is None else repeat(fixed(1) + value)


def _intersect(types: Types, parameters: tuple[str, ...]) -> Program | None:
    return joined(VARUINT, _elements(types[0].inner)) if len(types) == 1 and isinstance(types[0], t.Array) else None


def _concat(types: Types, parameters: tuple[str, ...]) -> Program | None:
    return BYTES + repeat(VARUINT + VARUINT) if len(parameters) > 1 else BYTES


def _bitmap(kind: t.DataType) -> Program | None:
    return case(0, {0: listed(_width(kind)), 1: BYTES}) if _is_number(kind) else None


_RESERVOIR_EMPTY = (8192).to_bytes(8, "little") + bytes(8) + b"\x1c6364136223846793005 0 123459"


def _reservoir(types: Types, parameters: tuple[str, ...]) -> Program | None:
    width = _width(types[0])
    known = len(types) == 1 and width and not isinstance(types[0], _NOT_PLAIN)
    return Program(((k.RESERVOIR, width, 0),), _RESERVOIR_EMPTY) if known else None


def _deterministic(types: Types, parameters: tuple[str, ...]) -> Program | None:
    width = _width(types[0])
    if not 1 <= width <= 8 or isinstance(types[0], _NOT_PLAIN):
        return None
    return Program(((k.HEADED, 8 if width <= 4 else 16, 0),), bytes(16))


def _timing(types: Types, parameters: tuple[str, ...]) -> Program | None:
    forms = {1: listed(2, k.COUNT_U16), 2: listed(2, k.COUNT_U64), 3: Program(((k.TIMING, 0, 0),))}
    return case(1, forms)


def _histogram(types: Types, parameters: tuple[str, ...]) -> Program | None:
    edges = b"\xff\xff\xff\xff\xff\xff\xef\x7f\xff\xff\xff\xff\xff\xff\xef\xff"
    return fixed(16, edges) + listed(16) if _is_number(types[0]) else None


def _entropy(types: Types, parameters: tuple[str, ...]) -> Program | None:
    raw = len(types) == 1 and isinstance(types[0], (*_RAW_ELEMENTS, t.Time))
    return listed((_width(types[0]) if raw else 16) + 8)


def _events(extra: int) -> Maker:
    """Whether they are in order, then moments with `extra` bytes each."""

    def build(types: Types, parameters: tuple[str, ...]) -> Program | None:
        width = _width(types[0])
        more = 8 if "'strict_once'" in parameters else 0
        return fixed(1, b"\1") + listed(width + extra + more, k.COUNT_U64) if width else None

    return build


def _delta_sum(types: Types, parameters: tuple[str, ...]) -> Program | None:
    width, stamp = _width(types[0]), _width(types[-1]) if len(types) > 1 else 0
    return fixed(3 * width + 2 * stamp + 1) if width and (stamp or len(types) == 1) else None


def _maps(types: Types, parameters: tuple[str, ...]) -> Program | None:
    """Keys, and for each the values of all arrays, which are widened."""
    if len(types) == 1 and isinstance(types[0], t.Tuple):
        types = types[0].elements
    inner = tuple(_plain(a.inner) for a in types if isinstance(a, t.Array))
    if len(inner) != len(types) or len(inner) < 2:
        return None
    row = joined(_value(inner[0]), *map(_widened, inner[1:]))
    return None if row is None else repeat(row)


def _widened(kind: t.DataType) -> Program | None:
    if isinstance(kind, t.Nullable):
        value = _widened(kind.inner)
        return None if value is None else case(1, {0: value, 1: NOTHING})
    return fixed(_sum_width(kind)) if _sum_width(kind) else _value(kind)


def _segments(types: Types, parameters: tuple[str, ...]) -> Program | None:
    width = _width(types[0])
    return fixed(1) + listed(2 * width, k.COUNT_U64) if width else None


def _crossings(types: Types, parameters: tuple[str, ...]) -> Program | None:
    return listed(16) if _width(types[0]) else None


def _respect_nulls(types: Types, parameters: tuple[str, ...]) -> Program | None:
    value = _value(types[0]) if len(types) == 1 else None
    return None if value is None else case(1, {1: NOTHING, 2: NOTHING, 3: value})


def _matrix(moments: int) -> Maker:
    """So many Float64 for each pair of arguments, those of an argument with itself included."""
    return lambda types, _: (
        fixed(moments * 8 * len(types) * (len(types) + 1) // 2) if all(map(_is_number, types)) else None
    )


def _greenwald_khanna(types: Types, parameters: tuple[str, ...]) -> Program | None:
    width, accuracy = _width(types[0]), parameters[0] if parameters else ""
    if not width or isinstance(types[0], _NOT_PLAIN) or not accuracy.isdecimal():
        return None
    head = (10000).to_bytes(8, "little") + struct.pack("<d", 1 / max(int(accuracy), 1)) + bytes(8)
    return fixed(24, head) + listed(width + 16, k.COUNT_U64)


_COUNTS = fixed(8) + listed(16) + listed(16) + listed(24)
_LISTS_OF_FLOATS = Program(((k.PAIR, 8, 0),), b"\0\0")

_TABLE: dict[str, Maker] = {
    **dict.fromkeys(("min", "max", "any", "anyLast"), _one(_single)),
    "singleValueOrNull": _one(_single),
    **dict.fromkeys(("argMin", "argMax", "argAndMin", "argAndMax"), _arg),
    "anyHeavy": _one(lambda kind: joined(_single(kind), fixed(8))),
    "sum": _one(_sum),
    "sumCount": _one(lambda kind: _sum(kind, VARUINT)),
    "avg": _one(lambda kind: _sum(kind, VARUINT)),
    "sumKahan": _one(lambda kind: fixed(16) if _is_number(kind) else None),
    "sumWithOverflow": _sized(fixed),
    "avgWeighted": _avg_weighted,
    "groupBitAnd": _sized(lambda width: fixed(width, b"\xff" * width)),
    "groupBitOr": _sized(fixed),
    "groupBitXor": _sized(fixed),
    "groupBitmap": _one(_bitmap),
    **dict.fromkeys(("varPop", "varSamp", "stddevPop", "stddevSamp"), _moments(3)),
    **dict.fromkeys(("skewPop", "skewSamp", "covarPop", "covarSamp"), _moments(4)),
    **dict.fromkeys(("kurtPop", "kurtSamp"), _moments(5)),
    "corr": _moments(6),
    "corrMatrix": _matrix(6),
    **dict.fromkeys(("covarPopMatrix", "covarSampMatrix"), _matrix(4)),
    **dict.fromkeys(
        ("varPopStable", "varSampStable", "stddevPopStable", "stddevSampStable"), _always(VARUINT + fixed(16), 1)
    ),
    **dict.fromkeys(("covarPopStable", "covarSampStable"), _always(VARUINT + fixed(24), 2)),
    "corrStable": _always(VARUINT + fixed(40), 2),
    "regr_count": lambda types, _: fixed(8),
    **{f"regr_{form}": _regression for form in ("avgx", "avgy", "intercept", "r2", "slope", "sxx", "sxy", "syy")},
    "categoricalInformationValue": lambda types, _: fixed(16 * len(types)),
    "gini": _sized(listed),
    "simpleLinearRegression": _always(fixed(40), 2),
    "meanZTest": _always(fixed(32), 2),
    "studentTTestOneSample": _always(fixed(32), 2),
    **dict.fromkeys(("studentTTest", "welchTTest"), _always(fixed(48), 2)),
    **dict.fromkeys(("mannWhitneyUTest", "kolmogorovSmirnovTest", "rankCorr"), _always(_LISTS_OF_FLOATS, 2)),
    "analysisOfVariance": _always(listed(8) + listed(8) + listed(8), 2),
    **dict.fromkeys(("cramersV", "cramersVBiasCorrected", "theilsU", "contingency"), lambda types, _: _COUNTS),
    "uniq": lambda types, _: fixed(1) + listed(4),
    "uniqExact": _uniq_exact,
    "uniqCombined": _combined_set(False),
    "uniqCombined64": _combined_set(True),
    "uniqHLL12": _uniq_hll,
    "uniqUpTo": _uniq_up_to,
    **dict.fromkeys(("topK", "topKWeighted", "approx_top_k", "approx_top_sum"), _top),
    **dict.fromkeys(("groupArray", "groupUniqArray"), _one(_elements)),
    "groupArrayLast": _one(lambda kind: joined(_elements(kind), fixed(8))),
    "groupArraySample": _group_array_sample,
    "groupArrayInsertAt": _insert_at,
    "groupArraySorted": _sorted,
    "groupArrayIntersect": _intersect,
    "groupArrayMovingSum": _one(lambda kind: listed(w) if (w := _sum_width(kind)) else None),
    "groupArrayMovingAvg": _one(
        lambda kind: listed(w if isinstance(kind, t.Decimal) else 8) if (w := _sum_width(kind)) else None
    ),
    "groupConcat": _concat,
    **dict.fromkeys(("quantile", "quantiles"), _reservoir),
    **dict.fromkeys(("quantileDeterministic", "quantilesDeterministic"), _deterministic),
    **{
        f"{name}{form}": _sized(listed)
        for name in ("quantile", "quantiles")
        for form in ("Exact", "ExactLow", "ExactHigh", "ExactExclusive", "ExactInclusive")
    },
    **{
        f"{name}{form}": _sized(lambda width: listed(width + 8))
        for name in ("quantile", "quantiles")
        for form in ("ExactWeighted", "ExactWeightedInterpolated", "InterpolatedWeighted")
    },
    **{
        f"{name}{form}": _sized(lambda width: listed(8))
        for name in ("quantile", "quantiles")
        for form in ("TDigest", "TDigestWeighted")
    },
    **{
        f"{name}{form}": _sized(lambda width: listed(10))
        for name in ("quantile", "quantiles")
        for form in ("BFloat16", "BFloat16Weighted")
    },
    **{f"{name}{form}": _timing for name in ("quantile", "quantiles") for form in ("Timing", "TimingWeighted")},
    **dict.fromkeys(("quantileGK", "quantilesGK"), _greenwald_khanna),
    "histogram": _histogram,
    "entropy": _entropy,
    "boundingRatio": _always(case(1, {0: fixed(32), 1: NOTHING}), 2),
    "windowFunnel": _events(1),
    **dict.fromkeys(("sequenceMatch", "sequenceCount", "sequenceMatchEvents"), _events(8)),
    "retention": lambda types, _: fixed(4),
    **dict.fromkeys(("deltaSum", "deltaSumTimestamp"), _delta_sum),
    "exponentialMovingAverage": _always(fixed(16), 2),
    **dict.fromkeys(
        ("sumMap", "minMap", "maxMap", "sumMapWithOverflow", "sumMapFiltered", "sumMapFilteredWithOverflow"), _maps
    ),
    "intervalLengthSum": _segments,
    **dict.fromkeys(("maxIntersections", "maxIntersectionsPosition"), _crossings),
    "distinctJSONPaths": lambda types, _: repeat(BYTES),
    "distinctDynamicTypes": lambda types, _: repeat(BYTES),
    "estimateCompressionRatio": lambda types, _: VARUINT + VARUINT,
}
_KEEP_NULLABLE: dict[str, Maker] = {
    "any_respect_nulls": _respect_nulls,
    "anyLast_respect_nulls": _respect_nulls,
}
_WIDENED = frozenset(
    {"sumMap", "minMap", "maxMap", "sumMapWithOverflow", "sumMapFiltered", "sumMapFilteredWithOverflow"}
)
_VERSIONED = _WIDENED | {"quantileDeterministic", "quantilesDeterministic"}
"""Functions whose states have a version, 1, in their type; before it the values of maps were not widened."""
_NO_FLAG = frozenset({
    "groupArray", "groupUniqArray", "groupArrayLast", "groupArraySample", "groupArraySorted", "groupArrayMovingSum",
    "groupArrayMovingAvg", "groupArrayIntersect", "topK", "approx_top_k", "histogram", "retention",
    "sequenceMatchEvents", "sumMap", "minMap", "maxMap", "sumCount", "singleValueOrNull", "estimateCompressionRatio",
    "intervalLengthSum",
})  # fmt: skip
"""Functions that take NULLs as they are."""
_DEFAULTS = frozenset({
    "count", "deltaSum", "deltaSumTimestamp", "corrMatrix", "covarPopMatrix", "covarSampMatrix", "topKWeighted",
    "approx_top_sum", "groupArrayInsertAt",
})  # fmt: skip
_ALIASES = {
    "any_value": "any", "first_value": "any", "last_value": "anyLast", "first_value_respect_nulls": "any_respect_nulls",
    "any_value_respect_nulls": "any_respect_nulls", "last_value_respect_nulls": "anyLast_respect_nulls",
    "VAR_POP": "varPop", "VAR_SAMP": "varSamp", "STDDEV_POP": "stddevPop", "STDDEV_SAMP": "stddevSamp",
    "COVAR_POP": "covarPop", "COVAR_SAMP": "covarSamp", "BIT_AND": "groupBitAnd", "BIT_OR": "groupBitOr",
    "BIT_XOR": "groupBitXor", "array_agg": "groupArray", "group_concat": "groupConcat", "string_agg": "groupConcat",
    "max_by": "argMax", "min_by": "argMin", "anova": "analysisOfVariance", "approx_top_count": "approx_top_k",
    **{f"median{form}": f"quantile{form}" for form in ("", "Exact", "ExactLow", "ExactHigh", "ExactWeighted", "TDigest",
       "TDigestWeighted", "Timing", "TimingWeighted", "Deterministic", "BFloat16", "BFloat16Weighted", "GK",
       "InterpolatedWeighted", "ExactWeightedInterpolated")},
}  # fmt: skip
_OLD_NAMES = {"sumMappedArrays": "sumMap", "minMappedArrays": "minMap", "maxMappedArrays": "maxMap"}
"""Other names, which ClickHouse does not replace."""
_ANY_CASE = {
    **{name: name for name in ("count", "sum", "min", "max", "avg", "corr", "approx_top_k", "approx_top_sum")},
    **{name.lower(): own for name, own in _ALIASES.items() if not name.startswith("median")},
    "std": "stddevPop", "stddev": "stddevSamp",
    "analysisofvariance": "analysisOfVariance",
}  # fmt: skip
"""Names in lower case that may be written in any case -> the function."""
