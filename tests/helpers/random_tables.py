"""Random whole tables: columns of any type with codecs and defaults, keys, skip indexes, settings, and their rows.

One text of CREATE TABLE serves both sides; only the settings differ, and those say how parts lie on disk::

    table = random_table(np.random.default_rng([seed, number]))
    table.create("t", table.ours)          # for mergelake
    table.create("t", table.theirs)        # for ClickHouse
    table.block                            # the columns that are inserted, in storage form
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, SkipIndex, TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.types import DataType, parse_type
from mergelake.format.codecs.codec_types import check_codec
from mergelake.format.serializations.defaults import default_array
from mergelake.table.definition.define_indexes import check_indexes
from tests.helpers.clickhouse_tables import CLASSIC
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import DICTIONARIES, LEAVES, random_type

EDGES = 0.03
"""Share of values that are extremes of their type."""
ROWS = (1, 2, 9, 40, 150, 400, 1200)
CODECS = (
    *("NONE", "LZ4", "LZ4HC", "LZ4HC(3)", "ZSTD", "ZSTD(3)", "Default", "Delta, LZ4", "Delta, ZSTD", "DoubleDelta"),
    *("DoubleDelta, LZ4", "Gorilla", "Gorilla, ZSTD", "FPC", "FPC(4), LZ4", "T64", "T64('bit'), LZ4", "GCD, LZ4"),
    *("Delta(1), LZ4", "Delta(8), NONE", "GCD, Delta, T64, LZ4", "GCD, ZSTD(1)", "Delta, DoubleDelta, Gorilla"),
)
INDEX_TYPES = (
    *("minmax", "set(0)", "set(3)", "set(100)", "bloom_filter", "bloom_filter(0.2)"),
    *("tokenbf_v1(64, 2, 0)", "ngrambf_v1(3, 128, 2, 7)"),
)
HUGE = "min_bytes_for_wide_part = 1000000000000, min_rows_for_wide_part = 1000000000000"
NEWEST = "min_bytes_for_full_part_storage = 0, allow_nullable_key = 1, add_minmax_index_for_numeric_columns = 0"
MODERN = (
    f"{NEWEST}, ratio_of_defaults_for_sparse_serialization = 1, packed_skip_index_max_bytes = 0, "
    "auto_statistics_types = '', write_marks_for_substreams_in_compact_parts = 0"
)
CLASSIC_ONLY = f"{CLASSIC}, add_minmax_index_for_numeric_columns = 0"
TWINS = {
    ("classic", "Wide"): CLASSIC_ONLY,
    ("classic", "Compact"): CLASSIC_ONLY.replace("min_bytes_for_wide_part=0", HUGE),
    ("modern", "Wide"): f"{MODERN}, min_bytes_for_wide_part = 0",
    ("modern", "Compact"): f"{MODERN}, {HUGE}",
}
"""Settings under which ClickHouse writes the form in which we write under a profile, in a layout."""
SPARSE = "min_bytes_for_wide_part = 0, ratio_of_defaults_for_sparse_serialization = 0.1"
SMALL_COMPRESSED_BLOCKS = (
    "marks_compression_codec = 'LZ4', primary_key_compression_codec = 'NONE', marks_compress_block_size = 100, "
    "primary_key_compress_block_size = 50"
)
FORMS = (
    f"{NEWEST}",
    f"{NEWEST}, min_bytes_for_wide_part = 0",
    f"{NEWEST}, {HUGE}",
    f"{NEWEST}, {HUGE}, write_marks_for_substreams_in_compact_parts = 0",
    f"{NEWEST}, {HUGE}, compress_per_column_in_compact_parts = 0",
    f"{NEWEST}, {HUGE}, ratio_of_defaults_for_sparse_serialization = 0.1",
    f"{NEWEST}, {SPARSE}",
    f"{NEWEST}, {SPARSE}, nullable_serialization_version = 'allow_sparse'",
    f"{NEWEST}, min_bytes_for_wide_part = 0, string_serialization_version = 'single_stream'",
    f"{NEWEST}, min_bytes_for_wide_part = 0, propagate_types_serialization_versions_to_nested_types = 0",
    f"{NEWEST}, min_bytes_for_wide_part = 0, index_granularity_bytes = 0",
    f"{NEWEST}, min_bytes_for_wide_part = 0, index_granularity_bytes = 0, compress_marks = 0",
    f"{NEWEST}, min_bytes_for_wide_part = 0, compress_marks = 0, compress_primary_key = 0",
    f"{NEWEST}, min_bytes_for_wide_part = 0, packed_skip_index_max_bytes = 0",
    f"{NEWEST}, min_bytes_for_wide_part = 0, {SMALL_COMPRESSED_BLOCKS}",
)
"""Settings under which ClickHouse writes each of its other forms."""


@dataclass(frozen=True)
class RandomTable:
    """A table and the rows of one insert."""

    body: str
    """Columns and indexes, as CREATE TABLE has them between its parentheses."""
    clauses: str
    """PARTITION BY, PRIMARY KEY and ORDER BY."""
    ours: Mapping[str, str]
    """Settings of ours."""
    theirs: str
    """Settings of ClickHouse's."""
    profile: str
    layout: str
    is_twin: bool
    """Whether ClickHouse is to write the same files as we."""
    is_checked: bool
    """Whether `mergelake check` looks at the parts of both sides."""
    types: dict[str, DataType]
    """All columns."""
    codecs: dict[str, str]
    block: pa.Table = field(repr=False)

    def create(self, name: str, settings: str) -> str:
        """The statement."""
        return f"CREATE TABLE {name} ({self.body}) ENGINE = MergeTree {self.clauses} SETTINGS {settings}"

    @property
    def our_settings(self) -> str:
        """`ours` as text."""
        return ", ".join(f"{name} = '{value}'" for name, value in self.ours.items())


def random_table(rng: np.random.Generator) -> RandomTable:
    """A table of one to ten columns."""
    return _Maker(rng).make()


class _Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._rows = int(self._pick(ROWS))
        self._arrays: dict[str, pa.Array] = {}
        self._columns: list[Column] = []
        self._texts: list[str] = []
        self._types: dict[str, DataType] = {}

    def _chance(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _pick(self, options: object) -> object:
        return options[int(self._rng.integers(len(options)))]  # type: ignore[arg-type, index]

    def make(self) -> RandomTable:
        partition = self._partition()
        order, primary = self._keys()
        for _ in range(int(self._rng.integers(1, 7))):
            self._plain_column()
        if self._chance(0.15):
            self._nested()
        self._computed()
        if not self._arrays:
            self._add("k", "UInt32", self._values(parse_type("UInt32")))
        has_dictionary = any("LowCardinality" in str(kind) for kind in self._types.values())
        profile, layout = str(self._pick(("classic", "modern"))), str(self._pick(("Wide", "Compact")))
        shared = self._shared(by_bytes=not has_dictionary)
        ours = {**shared, "part_profile": profile, "allow_nullable_key": "1", "max_partitions_per_insert_block": "0"}
        if layout == "Compact":
            ours["min_rows_for_wide_part"] = str(1 << 40)
        if self._chance(0.5):
            ours["min_bytes_for_full_part_storage"] = "0"
        is_twin = self._chance(0.5)
        theirs = TWINS[profile, layout] if is_twin else str(self._pick(FORMS))
        theirs = ", ".join([theirs, *(f"{n} = '{v}'" for n, v in shared.items() if n not in theirs)])
        clauses = f"{partition} {primary} ORDER BY {order}"
        if "DESC" in order:
            theirs += ", allow_experimental_reverse_key = 1"
        body = ", ".join([*self._texts, *self._indexes()])
        codecs = {column.name: column.codec for column in self._columns}
        block = pa.table(self._arrays)
        checked = self._chance(0.3)
        return RandomTable(body, clauses, ours, theirs, profile, layout, is_twin, checked, self._types, codecs, block)

    # -- columns -------------------------------------------------------------------------------

    def _add(self, name: str, kind: str, array: pa.Array | None, default: str = "", codec: str | None = None) -> None:
        data_type = parse_type(kind)
        codec = self._codec(data_type) if codec is None else codec
        quoted = f"`{name}`"
        self._texts.append(f"{quoted} {kind} {default}{f' CODEC({codec})' if codec else ''}")
        self._columns.append(Column(len(self._columns), name, data_type, codec=codec))
        self._types[name] = data_type
        if array is not None:
            self._arrays[name] = array

    def _codec(self, data_type: DataType) -> str:
        if self._chance(0.5):
            return ""
        for _ in range(4):
            codec = str(self._pick(CODECS))
            if "T64" in codec and "LowCardinality" in str(data_type):
                continue  # ClickHouse makes such a table, and then refuses every insert that lands in a Compact part
            try:
                check_codec(codec, data_type)
            except MergelakeError:
                continue
            return codec
        return ""

    def _values(self, data_type: DataType) -> pa.Array:
        """Random values: all different, few, one, or nearly all defaults."""
        shape = self._rng.random()
        if shape < 0.6:
            return random_array(self._rng, data_type, self._rows, EDGES)
        if shape < 0.85:
            return self._few(data_type, int(self._rng.integers(1, 6)))
        some = random_array(self._rng, data_type, self._rows, EDGES)
        both = pa.concat_arrays([some, default_array(data_type, self._rows).cast(some.type)])
        chosen = np.arange(self._rows) + self._rows * (self._rng.random(self._rows) < 0.97)
        return both.take(pa.array(chosen))

    def _few(self, data_type: DataType, count: int) -> pa.Array:
        values = random_array(self._rng, data_type, count, EDGES)
        return values.take(pa.array(self._rng.integers(0, count, self._rows)))

    def _name(self) -> str:
        number = len(self._columns)
        if self._chance(0.04):
            return f"c{number}" + "x" * 130
        if self._chance(0.06):
            return f"c {number}-é"
        return f"c{number}"

    def _plain_column(self) -> None:
        kind = random_type(self._rng, int(self._rng.integers(1, 4)))
        self._add(self._name(), kind, self._values(parse_type(kind)))

    def _nested(self) -> None:
        name = f"n{len(self._columns)}"
        kinds = [random_type(self._rng, int(self._rng.integers(1, 3))) for _ in range(int(self._rng.integers(1, 4)))]
        names = tuple(f"e{i}" for i in range(len(kinds)))
        together = self._values(t.Array(t.Tuple(tuple(map(parse_type, kinds)), names)))
        elements = together.flatten()
        offsets = pa.array(np.concatenate([[0], np.cumsum(together.value_lengths().to_numpy())]).astype(np.int32))
        fields = ", ".join(f"e{i} {kind}" for i, kind in enumerate(kinds))
        self._texts.append(f"{name} Nested({fields})")
        for i, kind in enumerate(kinds):
            data_type = t.Array(parse_type(kind))
            part = pa.ListArray.from_arrays(offsets, elements.field(i))
            self._columns.append(Column(len(self._columns), f"{name}.e{i}", data_type))
            self._types[f"{name}.e{i}"] = data_type
            self._arrays[f"{name}.e{i}"] = part.cast(random_array(self._rng, data_type, 0).type)

    def _computed(self) -> None:
        """Columns that the insert leaves out."""
        if self._chance(0.2):
            self._add(self._name(), random_type(self._rng, 2), None)
        if self._chance(0.3):
            options = [("UInt8", "7"), ("String", "'it''s'"), ("Array(UInt16)", "[1, 2]"), ("Nullable(Int32)", "NULL")]
            for column in self._columns:
                quoted = f"`{column.name}`"
                match column.type:
                    case t.String():
                        options += [("UInt64", f"length({quoted})"), ("String", f"lower({quoted})")]
                    case t.Int(bits) if bits <= 64:
                        options += [("String", f"toString({quoted})"), (f"Int{bits}", quoted)]
                    case t.Date():
                        options += [("UInt32", f"toYYYYMM({quoted})")]
            kind, text = self._pick(options)  # type: ignore[misc]
            self._add(self._name(), kind, None, f"{self._pick(('DEFAULT', 'MATERIALIZED'))} {text}")

    # -- keys ----------------------------------------------------------------------------------

    def _partition(self) -> str:
        if self._chance(0.5):
            return ""
        texts = []
        for _ in range(int(self._rng.integers(1, 3))):
            name = f"p{len(self._columns)}"
            if self._chance(0.3):
                kind, text = self._pick(  # type: ignore[misc]
                    (
                        ("Date", f"toYYYYMM({name})"),
                        ("DateTime('UTC')", f"toStartOfMonth({name})"),
                        ("UInt32", f"{name} % 3"),
                        ("String", f"length({name})"),
                        ("Int16", f"intDiv({name}, 20000)"),
                    )
                )
            else:
                leaves = [kind for kind in LEAVES if "Float" not in kind]
                kind = str(self._pick(leaves))
                if self._chance(0.15) and kind != "IPv4":
                    kind = f"Nullable({kind})"
                elif self._chance(0.15):
                    kind = "LowCardinality(String)"
                text = name
            self._add(name, kind, self._few(parse_type(kind), 2))
            texts.append(text)
        return f"PARTITION BY ({', '.join(texts)})"

    def _keys(self) -> tuple[str, str]:
        """What stands behind ORDER BY, and the clause PRIMARY KEY."""
        if self._chance(0.12):
            return "tuple()", ""
        texts: list[str] = []
        for _ in range(int(self._rng.integers(1, 4))):
            name = f"k{len(self._columns)}"
            shape = self._rng.random()
            if shape < 0.6:
                kind, text = str(self._pick(LEAVES)), name
            elif shape < 0.7:
                kind, text = f"Nullable({self._pick(LEAVES)})", name
            elif shape < 0.8:
                inner = self._pick([kind for kind in DICTIONARIES if "Float" not in kind])
                kind, text = f"LowCardinality({inner})", name
            else:
                kind, text = self._pick(  # type: ignore[misc]
                    (
                        ("Int32", f"{name} % 10"),
                        ("Int64", f"-{name}"),
                        ("String", f"lower({name})"),
                        ("String", f"cityHash64({name})"),
                        ("Date", f"toYYYYMM({name})"),
                        ("DateTime('UTC')", f"toDate({name})"),
                        ("UInt64", f"intDiv({name}, 1000)"),
                        ("Tuple(UInt8, String)", name),
                    )
                )
            data_type = parse_type(kind)
            self._add(name, kind, self._few(data_type, 4) if self._chance(0.4) else self._values(data_type))
            texts.append(text)
        primary = ""
        if len(texts) > 1 and self._chance(0.3):
            primary = f"PRIMARY KEY ({', '.join(texts[:-1])})"
        shown = [text + (" DESC" if not primary and self._chance(0.15) else "") for text in texts]
        return f"({', '.join(shown)})", primary

    # -- the rest ------------------------------------------------------------------------------

    def _indexes(self) -> list[str]:
        found: list[str] = []
        stored = TableSchema(tuple(self._columns))
        for _ in range(int(self._rng.integers(0, 5))):
            count = 2 if self._chance(0.2) else 1
            names = [f"`{self._pick(self._columns).name}`" for _ in range(count)]  # type: ignore[attr-defined]
            text = names[0] if len(set(names)) == 1 else f"({', '.join(names)})"
            index = SkipIndex(f"i{len(found)}", text, str(self._pick(INDEX_TYPES)), int(self._rng.integers(1, 5)))
            try:
                check_indexes(replace(stored, indices=(index,)))
            except MergelakeError:
                continue
            found.append(f"INDEX {index.name} {text} TYPE {index.type} GRANULARITY {index.granularity}")
        return found

    def _shared(self, *, by_bytes: bool) -> dict[str, str]:
        """Settings that mean the same on both sides (but for what a dictionary counts in bytes)."""
        out = {"index_granularity": str(self._pick((1, 3, 16, 100, 333, 8192)))}
        if self._rows / int(out["index_granularity"]) > 200:
            out["index_granularity"] = "16"
        if by_bytes and self._chance(0.3):
            out["index_granularity_bytes"] = str(self._pick((1024, 5000, 50_000)))
        if self._chance(0.5):
            out["default_compression_codec"] = str(self._pick(("NONE", "LZ4", "ZSTD(1)", "LZ4HC(2)")))
        if self._chance(0.3):
            least, most = self._pick(((1, 300), (300, 300), (300, 5000), (5000, 100_000)))  # type: ignore[misc]
            out |= {"min_compress_block_size": str(least), "max_compress_block_size": str(most)}
        return out
