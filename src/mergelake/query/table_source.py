"""A MergeTree table as a source of SELECTs: implements the interface of `source` with the room `scan`.

Predicates always prune parts and marks. Whether the scan also filters rows depends on the cost: ClickHouse filters
again, and faster, so it only pays if a cheap condition avoids reading wide columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from mergelake.core.base.cancel import current
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.core.types.types import Array, DataType, Tuple
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.bound import BoundCall, BoundColumn
from mergelake.expr.compiled import compile_expression
from mergelake.expr.parser import parse
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import PendingMutation
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.fetch import is_remote
from mergelake.query.attach import attached
from mergelake.query.attach.reused_names import differs
from mergelake.query.embedded import engine
from mergelake.query.embedded.states import EMBEDDED
from mergelake.query.part_set import PARTS_AT_ONCE, PartSet
from mergelake.query.source import AsOf, Layers, ReadRequest, Shared
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.prune.request import VIRTUAL_COLUMNS, ScanRequest
from mergelake.scan.read.explain import applied_line, explain_text, volatile_lines
from mergelake.scan.read.plan import ScanItem, ScanPlan, partitions_that_fit, plan_scan
from mergelake.scan.read.read import read_items
from mergelake.store.cache.cached import CachedStore
from mergelake.store.interface.protocol import Store, StoreSpec
from mergelake.table.handle.snapshot import Snapshot, beside_merged, without_merged
from mergelake.table.handle.volatile_choice import MergedPart
from mergelake.table.pending.select import SourceText, View, view_of
from mergelake.table.volatile.volatile_reads import VolatileReads
from mergelake.table.volatile.volatile_store import volatile_store

ROW_FILTER_NS = 20
"""Cost of filtering a row in nanoseconds, without the condition itself."""
ROW_FILTER_NS_PER_BYTE = 1.0
"""Cost of reading and decompressing one stored byte of another column in nanoseconds."""
_ROWS_FOR_THREADS = 200_000
"""Minimum rows of a scan with several threads."""
FINAL_ROWS_MIN = 1_000_000
"""Rows from which the work of FINAL outweighs the additional rounds of requests that ClickHouse makes for it."""
LITTLE_COLUMNS = 2
"""Maximum columns of a look-up in one part that is faster by a scan than by ClickHouse."""
_ATTACHES = "ClickHouse attaches stored parts only"
PUSHED_MAX = 4000
"""Maximum characters of a predicate for the scan: binding a longer one costs more than it can save."""


class TableSource:
    """A snapshot of a table."""

    def __init__(
        self,
        name: str,
        store: Store,
        directory: str,
        snapshot: Snapshot,
        *,
        now_ms: int,
        caches: PartCache | None = None,
        threads: int | None = None,
        spec: StoreSpec | None = None,
        history: Callable[[int | str | None, str | None], Snapshot] | None = None,
        volatile: VolatileReads | None = None,
    ) -> None:
        """`spec` opens the store in another process; without it Spark tasks cannot read the table.

        `history` returns the snapshot AS OF a version or a time. `volatile` reads the volatile parts of the snapshot,
        in scans: ClickHouse attaches the stored parts beside them, or all that are stored where it must read the table.
        """
        self.name = name
        self.snapshot = snapshot
        self._volatile = volatile
        self._stored = without_merged(snapshot, [part.id for part in snapshot.merged], _ATTACHES)
        self._store, self._directory, self._spec = store, directory, spec
        self._now_ms, self._caches, self._threads = now_ms, caches, threads
        self._history = history
        self._beside = beside_merged(snapshot)
        self._part_sets: dict[tuple[ReadRequest, bool], PartSet] = {}
        schema = snapshot.schema
        self.columns: Mapping[str, DataType] = {
            **{column.name: column.type for column in schema.stored},
            **{name: kind for name, kind in VIRTUAL_COLUMNS.items() if not schema.has(name)},
        }
        self.computed: Mapping[str, tuple[DataType, str]] = {
            **{c.name: (c.type, _over_stored(c.default, schema)) for c in schema.columns if c.default_kind == "ALIAS"},
            **_nested(schema),
        }
        self._has_aliases = any(column.default_kind == "ALIAS" for column in schema.columns)
        shown = {column.name for column in schema.columns if column.default_kind in ("", "DEFAULT")}
        self.hidden = frozenset((*self.columns, *self.computed)) - shown

    @property
    def version(self) -> Hashable:
        """Directory and schema version: columns never change without the latter."""
        return self._directory, self.snapshot.schema.version

    def exact_rows(self) -> int | None:
        """Number of rows; None if it is not known without reading."""
        return self.snapshot.exact_rows

    def can_filter(self, predicate: str) -> bool:
        """Whether `expr` supports the predicate."""
        if len(predicate) > PUSHED_MAX:
            return False
        return self._bound(predicate) is not None

    @property
    def takes_final(self) -> bool:
        """Whether the engine makes one row of several."""
        return mode_of(self.snapshot.schema) is not None

    def _bound(self, predicate: str) -> _Bound | None:
        """Over stored columns: an ALIAS column may stand for what our compiler refuses, such as `rand()`."""
        schema = self.snapshot.schema
        try:
            text = _over_stored(predicate, schema) if self._has_aliases else predicate
        except MergelakeError:
            return None
        return _bound(text, tuple(all_types(schema).items()))

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """True for conditions on the first key column, in a bucket (fewer rounds), or for little data of one part."""
        little = len(wanted.columns) <= LITTLE_COLUMNS and self.snapshot.partitions.totals.parts == 1
        return (little or _is_far(self._store)) and self._by_key(wanted)

    def _by_key(self, wanted: ReadRequest) -> bool:
        """Whether the conditions use a column of the first expression of the key."""
        predicate = " AND ".join(f"({text})" for text in (wanted.prewhere, wanted.where) if text)
        schema = self.snapshot.schema
        key = (schema.primary_key or schema.order_by)[:1]
        if not predicate or not key:
            return not predicate
        bound = self._bound(predicate)
        return bound is not None and not bound.columns.isdisjoint(re.findall(r"\w+", key[0]))

    def at(self, moment: AsOf) -> TableSource:
        """The table at an older version."""
        if self._history is None:
            raise error("NOT_IMPLEMENTED", f"The history of {self.name} is not at hand", "Leave out AS OF")
        return TableSource(
            self.name,
            self._store,
            self._directory,
            self._history(moment.version, moment.timestamp),
            now_ms=self._now_ms,
            caches=self._caches,
            threads=self._threads,
            spec=self._spec,
            volatile=self._volatile,
        )

    def plan(self, wanted: ReadRequest) -> TableScan:
        """Plan a scan: prune parts and marks."""
        request = self._request(wanted)
        store = volatile_store(self._store, self._directory, self.snapshot.merged, self._volatile)
        planned = partial(plan_scan, store, self._directory, self.snapshot, request, self._caches)
        plan = planned(count_steps=False)
        if not wanted.exact and not self._filters_rows(plan, wanted):
            plan = replace(plan, request=replace(request, where=None, prewhere=None), pruned_by=request)
        return TableScan(self.name, store, self._directory, plan, planned, self._caches, self._threads, self._spec)

    def _request(self, wanted: ReadRequest) -> ScanRequest:
        return ScanRequest(
            columns=wanted.columns,
            where=wanted.where or None,
            prewhere=wanted.prewhere or None,
            final=wanted.final,
            sample=self._fraction(wanted.sample) if wanted.sample else None,
            sample_offset=self._fraction(wanted.sample_offset) if wanted.sample_offset else 0.0,
            now_ms=self._now_ms,
        )

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Reasons of `attached.SETS`, and columns, limits or FINAL that need a scan."""
        if engine.folder() is None:
            return "ClickHouse was started with a path by somebody else"
        parts = self._part_set(wanted, must)
        reason = self._never_attached(wanted, parts)
        if self.snapshot.merged and not must and (_exact(wanted) or not parts.parts):
            reason = reason or f"{len(self.snapshot.merged)} of its parts are volatile, and read from their nodes"
        if wanted.final and not must and _is_far(self._store) and parts.rows < FINAL_ROWS_MIN:
            reason = reason or f"FINAL over fewer than {FINAL_ROWS_MIN} rows in a bucket takes fewer rounds by a scan"
        return reason or attached.SETS.why_not(parts, exact=must or _exact(wanted), count=count, must=must)

    def _pending(self, parts: PartSet) -> tuple[PendingMutation, ...]:
        """The mutations that some of the parts may lack."""
        oldest, newest = parts.data_versions
        return tuple(m for m in self._stored.mutations if m.version > oldest and m.since <= newest)

    def _view(self, parts: PartSet) -> View | None:
        """The view of the parts; None if they lack no mutation. Raises the errors of `view_of`."""
        pending, snapshot, newest = self._pending(parts), self._stored, parts.data_versions[1]
        if not pending:
            return None
        key = "view", snapshot.schema.version, newest, *((m.version, m.id) for m in pending)
        return snapshot.partitions.remembered(key, lambda: view_of(pending, snapshot.schema, newest))

    def _never_attached(self, wanted: ReadRequest, parts: PartSet) -> str:
        snapshot = self._stored
        mode = mode_of(snapshot.schema) if wanted.final else None
        if mode is not None and mode.by_columns:
            return f"FINAL of a {mode.engine} in ClickHouse removes rows whose sums that a query reads are all 0"
        if snapshot.settings.integer("max_partitions_to_read") > 0:
            return "max_partitions_to_read is set"
        pending = self._pending(parts)
        if pending and mode is not None and mode.combination is not None:
            return "its pending mutations come before FINAL makes one row of several"
        if pending and wanted.settings_matter:
            return "a setting may change the meaning of its pending mutations"
        try:
            if (view := self._view(parts)) is not None:
                view.select(wanted.columns, SourceText("", wanted.final))
        except MergelakeError as refused:
            return f"its pending mutations are applied by a scan: {refused.message}"
        versions = frozenset(part.manifest.schema_version for part in parts.parts)
        versions |= {mutation.schema_version for mutation in pending}
        return snapshot.partitions.remembered(
            ("differs", snapshot.schema.version, versions),
            lambda: differs(snapshot.schema, snapshot.schemas, versions),
        )

    def shared(self, wanted: ReadRequest) -> Shared | None:
        """The parts for the ClickHouse of another process, if it can attach them."""
        parts = self._part_set(wanted)
        if self._spec is None or parts.rows < attached.ROWS_MIN or wanted.sample:
            return None
        if (
            self.snapshot.merged
            or self._never_attached(wanted, parts)
            or (parts.worth_attaching is not parts and not wanted.final)
        ):
            return None
        return Shared(self._spec, parts, self._view(parts))

    @contextmanager
    def attached(self, wanted: ReadRequest, *, must: bool = False) -> Iterator[Layers]:
        """Context with the attached tables."""
        parts = self._part_set(wanted, must)
        merged = () if must else self.snapshot.merged
        with attached.SETS.using(parts, exact=must or _exact(wanted)) as reading:
            unattached = (*(reading.rest.parts if reading.rest is not None else ()), *merged)
            rest = self._scan_of(unattached, merged, wanted) if unattached else None
            notes = () if merged else tuple(volatile_lines(self._stored.volatile))
            yield Layers(reading.tables, rest, reading.served, self._view(parts), notes)

    def _part_set(self, wanted: ReadRequest, must: bool = False) -> PartSet:
        """The parts to attach for a statement: all, or if these are many, those of the partitions that it reads.

        Without volatile ones, whose sources are among them only if ClickHouse `must` read the table.
        """
        part_set = self._part_sets.get((wanted, must))
        if part_set is None:
            chosen = self._chosen(wanted, self._stored if must else self._beside)
            part_set = self._part_sets[wanted, must] = chosen
        return part_set

    def _chosen(self, wanted: ReadRequest, snapshot: Snapshot) -> PartSet:
        partitions = snapshot.partitions
        if partitions.totals.parts > PARTS_AT_ONCE:
            fit = partitions_that_fit(snapshot, self._request(wanted))
            if len(fit) < len(partitions):
                partitions.read(fit)
                return self._set_of(part for partition_id in fit for part in partitions[partition_id])
        key = "part set", snapshot.schema.version
        return partitions.remembered(key, lambda: self._set_of(snapshot.parts))

    def _set_of(self, parts: Iterable[ActivePart]) -> PartSet:
        caches = self._caches if self._caches is not None else PartCache()
        return PartSet(self._store, self._directory, self.snapshot.schema, tuple(parts), caches)

    def _scan_of(self, parts: Iterable[ActivePart], merged: tuple[MergedPart, ...], wanted: ReadRequest) -> TableScan:
        """A scan of some parts, with the `merged` ones among them."""
        by_partition: dict[str, list[ActivePart]] = {}
        for part in sorted(parts, key=lambda part: part.info):
            by_partition.setdefault(part.info.partition_id, []).append(part)
        source = copy(self)
        source.snapshot = replace(self.snapshot, partitions=Partitions.of(by_partition), merged=merged)
        return source.plan(wanted)

    def _filters_rows(self, plan: ScanPlan, wanted: ReadRequest) -> bool:
        """Whether filtering rows in the scan costs less than reading the other columns."""
        predicate = " AND ".join(text for text in (wanted.prewhere, wanted.where) if text)
        rows = max((item.manifest.rows for item in plan.items), default=0)
        bound = self._bound(predicate) if predicate and rows else None
        if bound is None or bound.can_raise:
            return False
        others = sum(plan.column_bytes.get(name, 0) for name in wanted.columns if name not in bound.columns)
        return bound.cost + ROW_FILTER_NS <= others / rows * ROW_FILTER_NS_PER_BYTE

    def _fraction(self, text: str) -> float:
        """The fraction in `1/10` or `0.1`, or of a number of rows (more than 1)."""
        above, _, below = text.partition("/")
        try:
            value = float(above) / float(below or 1)
        except (ValueError, ZeroDivisionError):
            raise error("SYNTAX_ERROR", f"SAMPLE {text} is not a number", "Write SAMPLE 0.1 or SAMPLE 1/10") from None
        return value if value <= 1 else min(1.0, value / max(1, self.snapshot.rows))


def _exact(wanted: ReadRequest) -> bool:
    """Whether all rows have to be in one attached table: for FINAL or SAMPLE."""
    return wanted.final or bool(wanted.sample)


def _over_stored(expression: str, schema: TableSchema) -> str:
    """An expression over ALIAS columns as one over what is stored; any other one as it is."""
    tree = parse(expression)
    expanded = expand_aliases(tree, schema)
    return expression if expanded == tree else str(expanded)


def _nested(schema: TableSchema) -> dict[str, tuple[DataType, str]]:
    """Computed columns `n`, arrays of tuples, for columns `n.a` and `n.b` of a Nested: (type, expression)."""
    groups: dict[str, dict[str, DataType]] = {}
    for column in schema.stored:
        group, dot, name = column.name.partition(".")
        if dot and name and isinstance(column.type, Array) and group not in schema.names:
            groups.setdefault(group, {})[name] = column.type.inner
    out: dict[str, tuple[DataType, str]] = {}
    for group, parts in groups.items():
        kind = Array(Tuple(tuple(parts.values()), tuple(parts)))
        names = ", ".join(map(quote_string, parts))
        columns = ", ".join(back_quote(f"{group}.{name}") for name in parts)
        out[group] = (kind, f"nested([{names}], {columns})")
    return out


@dataclass(frozen=True, slots=True)
class _Bound:
    """Properties of a bound predicate."""

    columns: frozenset[str]
    cost: float
    """Estimated nanoseconds a row."""
    can_raise: bool


@lru_cache(maxsize=4096)
def _bound(predicate: str, columns: tuple[tuple[str, DataType], ...]) -> _Bound | None:
    """Bind a predicate; None if `expr` does not support it or it has no column."""
    try:
        compiled = compile_expression(predicate, dict(columns), now_ms=0)
    except MergelakeError:
        return None
    node = compiled.node
    if not compiled.columns or not isinstance(node, BoundCall | BoundColumn):
        return None
    call = node if isinstance(node, BoundCall) else None
    return _Bound(frozenset(compiled.columns), call.cost if call else 1, call.can_raise if call else False)


@dataclass(frozen=True, slots=True)
class TableScan:
    """A planned read of a table."""

    name: str
    store: Store
    directory: str
    scan: ScanPlan
    counted: Callable[[], ScanPlan]
    """Returns the same plan with `ScanPlan.steps`."""
    caches: PartCache | None
    threads: int | None
    spec: StoreSpec | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.scan.columns

    @property
    def rows(self) -> int:
        """Estimated number of rows in the mark ranges."""
        return self.scan.rows_estimate

    @property
    def partitions(self) -> int:
        """Number of partitions of the parts that will be read."""
        return len({item.info.partition_id for item in self.scan.items})

    @property
    def partitions_max(self) -> int:
        """The table's setting."""
        return TableSettings(self.scan.schema.settings).integer("max_partitions_to_read")

    @property
    def items(self) -> Sequence[tuple[ScanItem, ...]]:
        """One piece for each part; a single one, if any, for FINAL, because rows of a key may be in any part."""
        if self.scan.request.final:
            return (self.scan.items,) if self.scan.items else ()
        return tuple((item,) for item in self.scan.items)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, read by a few threads. Raises QUERY_WAS_CANCELLED if the statement is cancelled."""
        threads = 1 if self.rows < _ROWS_FOR_THREADS else self.threads
        return read_items(
            self.store,
            self.directory,
            self.scan,
            caches=self.caches,
            threads=threads,
            cancel=current(),
            states=EMBEDDED,
        )

    def explain(self) -> list[str]:
        """Lines like those of ClickHouse's EXPLAIN indexes = 1."""
        lines = explain_text(replace(self.scan, steps=self.counted().steps), self.name).rstrip("\n").split("\n")
        versions = {mutation.version for item in self.scan.items for mutation in item.lacks}
        return [applied_line(sorted(versions)), *lines] if versions else lines

    def reader(self) -> Callable[[Any], Iterator[pa.RecordBatch]]:
        """A function that reads one piece in any process."""
        if self.spec is None:
            raise error("SUPPORT_IS_DISABLED", f"The store of {self.name} cannot be opened in another process")
        return ItemReader(self.spec, self.directory, self.scan.with_items(()))


@dataclass(frozen=True, slots=True)
class ItemReader:
    """Reads items in a task: holds the spec of the store and the plan without its items."""

    spec: StoreSpec
    directory: str
    scan: ScanPlan

    def __call__(self, items: Sequence[ScanItem]) -> Iterator[pa.RecordBatch]:
        """The rows of `items`."""
        plan = self.scan.with_items(items)
        return read_items(self.spec.open(), self.directory, plan, threads=1, states=EMBEDDED)


def _is_far(store: Store) -> bool:
    """Whether the store is remote and has no cache directory."""
    return is_remote(store) and not isinstance(store, CachedStore)
