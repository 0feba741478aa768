"""Random tables whose rows may be mutated: engine, partition key, sorting key, columns, skip indexes, settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.helpers.clickhouse_tables import CLASSIC
from tests.helpers.mutations.kinds import KEYS, KINDS, is_nullable, without_wrappers

_OF_KEY = {
    "Int8": ("{x} % 3", "-{x}"),
    "Int16": ("{x} % 5", "abs({x})"),
    "Int32": ("{x} % 7", "-{x}", "intDiv({x}, 2)"),
    "Int64": ("-{x}", "toString({x})"),
    "UInt64": ("{x} % 4", "cityHash64({x})", "intDiv({x}, 2)"),
    "String": ("lower({x})", "length({x})", "substring({x}, 1, 2)"),
    "LowCardinality(String)": ("upper({x})",),
    "Date": ("toYYYYMM({x})", "toMonday({x})"),
    "DateTime('UTC')": ("toDate({x})", "toStartOfHour({x})"),
    "Nullable(Int32)": ("ifNull({x}, 2)", "{x}.null"),
    "Tuple(UInt8, String)": ("{x}.1", "{x}.2"),
}
_PARTITIONS = (
    *(("Int8", "{x} % 3"), ("Int32", "{x} % 2"), ("Int64", "{x} % 4"), ("UInt8", "{x} % 3"), ("Date", "toYYYYMM({x})")),
    *(("DateTime('UTC')", "toYYYYMM({x})"), ("Enum8('a' = -1, 'b' = 0, 'c' = 7)", "{x}"), ("Date", "{x}")),
    ("Bool", "{x}"),
    *(("LowCardinality(String)", "{x}"), ("String", "length({x})"), ("Int16", "({x} % 2, {x} > 0)")),
)  # fmt: skip
_ENGINES = (
    *("MergeTree", "MergeTree", "Replacing", "Replacing(ver)", "Replacing(ver, gone)"),
    *("Collapsing(sign)", "Collapsing(sign)", "VersionedCollapsing(sign, ver)", "VersionedCollapsing(sign, ver)"),
    *("Coalescing", "Coalescing", "Summing", "Summing", "Aggregating", "Aggregating"),
)
_COMBINE = ("Coalescing", "Summing", "Aggregating")
_INDEXES = ("minmax", "set(0)", "set(3)", "bloom_filter", "bloom_filter(0.2)")
_COMPACT = "min_bytes_for_wide_part = 1000000000, min_rows_for_wide_part = 1000000000"
_THEIRS = (
    f"{CLASSIC}, add_minmax_index_for_numeric_columns = 0, max_bytes_to_merge_at_max_space_in_pool = 1, "
    "max_bytes_to_merge_at_min_space_in_pool = 1"
)
"""Nothing is merged but by OPTIMIZE."""


@dataclass(frozen=True)
class DrawnColumn:
    """A column."""

    name: str
    kind: str
    """Its type."""
    fixed: bool = False
    """Whether no mutation may change it."""
    default_kind: str = ""
    """DEFAULT, MATERIALIZED, ALIAS or nothing."""
    default: str = ""
    values: tuple[str, ...] = ()
    """Literals that an INSERT may give; empty: any of the type."""
    function: str = ""
    """Of a SimpleAggregateFunction of the type."""

    @property
    def is_computed(self) -> bool:
        """Whether an INSERT cannot give it."""
        return self.default_kind in ("MATERIALIZED", "ALIAS")

    @property
    def text(self) -> str:
        """As CREATE TABLE has it."""
        kind = f"SimpleAggregateFunction({self.function}, {self.kind})" if self.function else self.kind
        return f"{self.name} {kind} {self.default_kind} {self.default}".strip()


@dataclass(frozen=True)
class DrawnTable:
    """A table."""

    columns: tuple[DrawnColumn, ...]
    indexes: tuple[str, ...]
    engine: str
    partition_by: str
    order_by: tuple[str, ...]
    descending: tuple[bool, ...]
    settings: Mapping[str, str]
    """Of ours."""
    theirs: str
    """Settings of ClickHouse's."""
    store: str
    """`near`: in memory; `disk`: in a directory; `far`: read as a bucket is."""

    @property
    def replaces(self) -> bool:
        """Whether merges drop rows."""
        return self.engine != "MergeTree"

    @property
    def kinds(self) -> dict[str, str]:
        """Type of each column, and of a virtual one."""
        return {**{column.name: column.kind for column in self.columns}, "_partition_id": "LowCardinality(String)"}

    def create(self, settings: str) -> str:
        """CREATE TABLE t."""
        body = ", ".join([*(column.text for column in self.columns), *self.indexes])
        partition = f" PARTITION BY {self.partition_by}" if self.partition_by else ""
        order = ", ".join(
            f"{text} DESC" if down else text for text, down in zip(self.order_by, self.descending, strict=True)
        )
        return f"CREATE TABLE t ({body}) ENGINE = {self.engine}{partition} ORDER BY ({order}) SETTINGS {settings}"

    @property
    def our_create(self) -> str:
        """The statement for mergelake."""
        return self.create(", ".join(f"{name} = '{value}'" for name, value in self.settings.items()))

    @property
    def their_create(self) -> str:
        """The statement for ClickHouse."""
        return self.create(self.theirs)


def draw_table(rng: random.Random) -> DrawnTable:
    """A table of 3 to 12 columns."""
    columns: list[DrawnColumn] = []
    order, descending = _sorting_key(rng, columns)
    partition_by = _partition_key(rng, columns)
    engine = _engine(rng, columns)
    for _ in range(rng.randrange(2, 7)):
        kinds = [kind for kind in KINDS if kind != "Bool"] if engine == "SummingMergeTree" else KINDS  # sums above 1
        kind = rng.choice(kinds)
        function = rng.choice(_functions(kind)) if engine == "AggregatingMergeTree" else ""
        columns.append(DrawnColumn(f"c{len(columns)}", kind, function=function))
    computed = _computed(rng, columns)
    if engine.startswith(_COMBINE):  # an UPDATE of ClickHouse computes MATERIALIZED columns anew in all rows of a part
        computed = [column for column in computed if column.default_kind != "MATERIALIZED"]
    columns += computed
    rng.shuffle(columns)
    granularity = str(rng.choice((1, 2, 4, 8, 16, 64, 8192)))
    ours = {"index_granularity": granularity, "allow_nullable_key": "1", "max_partitions_per_insert_block": "0"}
    ours |= {"part_profile": rng.choice(("classic", "modern"))}
    theirs = f"{_THEIRS}, index_granularity = {granularity}"
    if rng.random() < 0.4:
        ours["min_rows_for_wide_part"] = "1000000000"
        theirs = theirs.replace("min_bytes_for_wide_part=0", _COMPACT)
    if rng.random() < 0.5:
        ours["min_bytes_for_full_part_storage"] = "0"
    if rng.random() < 0.3:
        ours["merge_max_chunk_bytes"] = "1000"
    if engine == "AggregatingMergeTree":
        ours["allow_dimensions_outside_sorting_key"] = "1"
        theirs += ", allow_dimensions_outside_sorting_key = 1"
    if any(descending):
        theirs += ", allow_experimental_reverse_key = 1"
    return DrawnTable(
        tuple(columns), _indexes(rng, columns), engine, partition_by, order, descending, ours, theirs,
        rng.choice(("near", "near", "far", "disk")),
    )  # fmt: skip


def _sorting_key(rng: random.Random, columns: list[DrawnColumn]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    texts = []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
        name, kind = f"k{len(columns)}", rng.choice(KEYS)
        columns.append(DrawnColumn(name, kind, fixed=True))
        texts.append(rng.choice(_OF_KEY[kind]).format(x=name) if kind in _OF_KEY and rng.random() < 0.3 else name)
    return tuple(texts), tuple(rng.random() < 0.15 for _ in texts)


def _partition_key(rng: random.Random, columns: list[DrawnColumn]) -> str:
    if rng.random() < 0.4:
        return ""
    kind, text = rng.choice(_PARTITIONS)
    same = [column.name for column in columns if column.kind == kind]
    if same and rng.random() < 0.5:
        return text.format(x=same[0])
    name = f"p{len(columns)}"
    columns.append(DrawnColumn(name, kind, fixed=True))
    return text.format(x=name)


def _engine(rng: random.Random, columns: list[DrawnColumn]) -> str:
    keyed = any(column.name.startswith("k") for column in columns)
    engine = rng.choice(_ENGINES)
    if engine == "MergeTree" or not keyed:
        return "MergeTree"
    if "ver" in engine:
        columns.append(
            DrawnColumn("ver", rng.choice(("UInt32", "UInt8", "Date", "DateTime('UTC')", "UInt64")), fixed=True)
        )
    if "gone" in engine:
        columns.append(DrawnColumn("gone", "UInt8", fixed=True))
    if engine == "Summing":  # FINAL of ClickHouse sums what a query reads: with this column no row sums to nothing
        columns.append(DrawnColumn("held", "UInt64", fixed=True, values=("1",)))
    if "sign" in engine:
        signs = rng.choice((("1", "-1"), ("1", "1", "1", "-1")))
        columns.append(DrawnColumn("sign", "Int8", fixed=True, values=signs))
    name, bracket, arguments = engine.partition("(")
    return f"{name}MergeTree{bracket}{arguments}"


def _functions(kind: str) -> tuple[str, ...]:
    """Functions that combine values of the type; nothing is a column that takes the first row."""
    plain = without_wrappers(kind)
    if "LowCardinality" in kind[1:]:  # inside of an array
        return ("",)
    rows = ("", "any", "anyLast", "any_respect_nulls", "anyLast_respect_nulls")
    if plain.startswith(("Array(Nullable", "Tuple", "Map")):
        return rows
    if plain.startswith("Array"):
        return (*rows, "groupArrayArray")
    if plain.startswith(("Int", "UInt")):
        return (*rows, "min", "max", "sumWithOverflow", "groupBitAnd", "groupBitOr", "groupBitXor")
    return (*rows, "min", "max")


def _computed(rng: random.Random, columns: Sequence[DrawnColumn]) -> list[DrawnColumn]:
    """DEFAULT, MATERIALIZED and ALIAS columns over the others."""
    out: list[DrawnColumn] = []
    for default_kind in ("DEFAULT", "MATERIALIZED", "ALIAS"):
        if rng.random() < 0.35:
            source = rng.choice(columns)
            kind, text = rng.choice(_defaults(source))
            name = f"{default_kind[0].lower()}{len(columns) + len(out)}"
            out.append(DrawnColumn(name, kind, default_kind=default_kind, default=text))
    return out


def _defaults(column: DrawnColumn) -> list[tuple[str, str]]:
    name, kind = column.name, column.kind
    plain = without_wrappers(kind)
    options = [("String", f"toString({name})") if not is_nullable(kind) else ("UInt8", f"isNull({name})")]
    if plain.startswith(("Int", "UInt")):
        value = f"ifNull({name}, 3)" if is_nullable(kind) else name
        options += [("Int64", f"{value} + 1"), ("UInt8", f"{value} * 2"), ("Nullable(Int32)", f"nullIf({value}, 1)")]
    if plain == "String":
        options += [
            ("UInt64", f"length(coalesce({name}, ''))"),
            ("LowCardinality(String)", f"upper(ifNull({name}, ''))"),
        ]
    if kind.startswith(("Array", "Map", "String")):
        options += [("UInt64", f"length({name})")]
    return options


def _indexes(rng: random.Random, columns: Sequence[DrawnColumn]) -> tuple[str, ...]:
    usable = [c for c in columns if c.default_kind != "ALIAS" and not c.kind.startswith(("Array", "Map", "Tuple"))]
    out = []
    for number in range(rng.choice((0, 0, 1, 2, 3))):
        if not usable:
            break
        column, kind = rng.choice(usable), rng.choice(_INDEXES)
        plain = without_wrappers(column.kind)
        if "bloom" in kind and plain.startswith(
            ("Decimal", "Float", "Bool", "Int128", "UInt256", "DateTime64", "Date32")
        ):
            kind = "minmax"
        if kind == "minmax" and plain.startswith("UUID"):
            kind = "set(3)"
        out.append(f"INDEX i{number} {column.name} TYPE {kind} GRANULARITY {rng.choice((1, 1, 2))}")
    return tuple(out)
