"""SELECT: outline, sources, rewrite, scans, ClickHouse.

1. The statement is taken apart by tokens (`outline`) and every table it names is looked up.
2. `rewrite` replaces each by a scan of the columns and rows it needs; the result is kept by statement text.
3. An executor runs it. *Local*: all scans stream into ClickHouse in this process. *Spark*: each task scans its
   items and computes a partial answer in a ClickHouse of its own; the final merge runs here (`splitting`).
4. The answer becomes Arrow in the public form, its types taken from ClickHouse's own DESCRIBE.

A point look-up costs about 3 ms here beside its scan: 0.1 for the outline, 1.2 for DESCRIBE (kept by text),
1.6 for ClickHouse.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa

from mergelake.core.arrow import storage_schema
from mergelake.core.cancel import current
from mergelake.core.clock import Clock, SystemClock
from mergelake.core.convert import to_public_table
from mergelake.core.errors import MergelakeError, NotFoundError, error, there_are
from mergelake.core.text import quote_string
from mergelake.core.types import STRING
from mergelake.query import engine, progress, splitting, task, totals
from mergelake.query.access import check_access, check_expression, check_fixed, set_names
from mergelake.query.arrow_bridge import needs_types, parse_types, to_public, without_nothing
from mergelake.query.attached import DAMAGE
from mergelake.query.attaching import DATABASE, NotAttachedError
from mergelake.query.direct import direct_scan, first_rows
from mergelake.query.limits import ReadLimits, check_size, read_limits
from mergelake.query.meaning import check_explain, check_meaning, statement_settings
from mergelake.query.outline import Outline, outline
from mergelake.query.piping import begin
from mergelake.query.result import QueryResult, Stats
from mergelake.query.rewrite import NOW, Rewritten, Slot, rewrite
from mergelake.query.settings import describes, honoured, keeps_partial_answers, reading
from mergelake.query.source import ArrowSource, AsOf, Layers, Resolve, Scan, Source
from mergelake.query.streamed import Batches, Chunks, until_end, writes_file
from mergelake.query.tokens import syntax_error
from mergelake.scan.request import NOT_GIVEN, VIRTUAL_COLUMNS


class RunTasks(Protocol):
    """Tasks in other processes."""

    def __call__(self, fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Run a picklable function on each item; results in order."""
        ...

    def at_once(self) -> int:
        """How many run at a time."""
        ...


SPARK_ROWS_MIN = 50_000_000
"""`executor = 'auto'` goes to Spark from this many rows to read."""
SMALL_ROWS = 100_000
"""A scan of at most so many rows is read whole even for a LIMIT."""
READS_ITSELF = "ClickHouse reads the parts itself"
READS_FILES = {
    "remote_filesystem_read_method": "'read'",
    "merge_tree_min_bytes_per_task_for_remote_reading": "16777216",
}
"""Settings for tables over files: to ClickHouse any disk of objects is remote, and is read ahead by other threads."""
HELD_BYTES = 64 << 20
"""Most bytes of one scan that are read before ClickHouse starts."""
_KEPT = 512
_EXPECTED_MAX = 160
"""Characters of what ClickHouse would have expected that an error shows."""


@dataclass(frozen=True, slots=True)
class Context:
    """How to run a statement."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """ClickHouse settings as SQL literals."""
    honoured: Mapping[str, str] = field(default_factory=dict)
    """Settings that we go by ourselves, values as text."""
    database: str = "default"
    """The current database."""
    executor: str = "auto"
    """auto, local or spark."""
    run_tasks: RunTasks | None = None
    """How the Spark executor runs its tasks; None without one."""
    clock: Clock = field(default_factory=SystemClock)
    now_ms: int = 0
    """What now() and today() mean in filters: milliseconds since the epoch."""
    on_progress: Callable[[int, int], None] | None = None
    """Called with (rows read, rows to read) now and again, from another thread."""
    format: str = ""
    """Of the answer, where the statement names none itself; without either it is Arrow."""
    external: bool = False
    """Whether the statement may read files and the network: `file`, `url`, `s3`, …"""


class _Kept:
    """The last few hundred values by key; safe for threads."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, object] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> object | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: object) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > _KEPT:
                self._values.popitem(last=False)


_plans = _Kept()
_types = _Kept()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement ready to run: what ClickHouse will be given, and from where."""

    plan: Outline
    rewritten: Rewritten
    sources: tuple[Source, ...]
    """For each slot its table."""
    setting: str = ""
    """A setting under which ClickHouse has to read the parts itself; empty if there is none."""

    def must(self, slot: Slot) -> bool:
        """Whether ClickHouse has to read the table itself."""
        return bool(self.setting) or slot.refused is not None

    def text(self, now_ms: int, attached: Mapping[str, Layers] | None = None) -> str:
        """The statement for ClickHouse, as of now; `attached` as in `Rewritten.text`."""
        numbers = {NOW: now_ms // 1000}
        for index, slot in enumerate(self.rewritten.slots):
            if slot.counted:
                numbers[index] = self.sources[index].exact_rows() or 0
        return self.rewritten.text(numbers, attached)

    def columns(self, settings: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and types of the columns that the statement gives.

        Kept by the statement without the literals of its filters, which change neither: a look-up by another key
        need not ask again.
        """
        versions = tuple(source.version for source in self.sources)
        try:
            return described(self.rewritten.shape(), {}, settings, (_without_filters(self.plan), versions))
        except MergelakeError as failure:
            raise _explained(failure, self) from None


def prepare(sql: str, resolve: Resolve, context: Context | None = None) -> Prepared:
    """Take the statement apart and look its tables up. Nothing is read."""
    context = context or Context()
    plan = _outline(sql)
    tables = _tables(plan, resolve, context)
    _check(plan, tables, context)
    return _prepared(plan, tables, context)


@dataclass(frozen=True, slots=True)
class _Tables:
    """What the names in a statement mean."""

    by_name: Mapping[tuple[str, str, AsOf | None], Source | None]
    by_occurrence: Mapping[int, Source]
    """`id` of an occurrence -> its table; without those that are ClickHouse's own."""


def _tables(plan: Outline, resolve: Resolve, context: Context, before: str = "") -> _Tables:
    """Look up what the statement names. ACCESS_DENIED if it, or an expression of a table, reaches outside of tables."""
    check_fixed(set_names(plan.tokens))
    external = context.external
    if not external:
        check_access(plan, before)
    seen: dict[tuple[str, str, AsOf | None], Source | None] = {}

    def look_up(database: str, name: str, moment: AsOf | None) -> Source | None:
        if (database, name, moment) not in seen:
            newest = resolve(database, name) if moment is None else look_up(database, name, None)
            if moment is not None and newest is None:
                raise error("NOT_IMPLEMENTED", f"{database}.{name} has no older versions", "Leave out AS OF")
            seen[database, name, moment] = newest if moment is None or newest is None else newest.at(moment)
        return seen[database, name, moment]

    sources: dict[int, Source] = {}
    for found in plan.occurrences:
        if found.explain:
            kind, query = found.explain
            lines = pa.table({"explain": pa.array(explain(query, resolve, context, kind), pa.large_binary())})
            seen[found.table] = sources[id(found)] = ArrowSource(lines, {"explain": STRING})
            continue
        try:
            source = look_up(found.database, found.name, found.as_of)
        except NotFoundError:
            outside = found.database == DATABASE or (not external and not found.name.replace("_", "").isalnum())
            if not found.in_operator or outside:
                raise  # to ClickHouse `/etc/passwd` would be a file, and what others attached a table
            continue  # `x IN list`: a column or an alias, not a table
        if source is not None:
            sources[id(found)] = source
            for _, expression in source.computed.values() if not external else ():
                check_expression(expression)
    return _Tables(seen, sources)


def _prepared(plan: Outline, tables: _Tables, context: Context) -> Prepared:
    database, setting = context.database, reading({**context.settings, **statement_settings(plan)})
    key = (
        plan.text,
        database,
        bool(setting),
        tuple(_key(tables.by_occurrence.get(id(found))) for found in plan.occurrences),
    )
    rewritten = _plans.get(key)
    if not isinstance(rewritten, Rewritten):
        rewritten = rewrite(plan, tables.by_occurrence, database, counts=not setting)
        _plans.put(key, rewritten)
    if context.format and not rewritten.format:
        rewritten = replace(rewritten, format=context.format)
    sources = [tables.by_name[slot.table] for slot in rewritten.slots]
    return Prepared(plan, rewritten, tuple(source for source in sources if source is not None), setting)


def _key(source: Source | None) -> Hashable:
    return None if source is None else (source.version, source.exact_rows() is None)


_outlines = _Kept()


def _outline(sql: str) -> Outline:
    plan = _outlines.get(sql)
    if not isinstance(plan, Outline):
        plan = outline(sql)
        _outlines.put(sql, plan)
    return plan


def run_select(sql: str, resolve: Resolve, context: Context | None = None) -> QueryResult:
    """Run a SELECT over tables that `resolve` knows; others (`numbers(10)`, `system.one`) are ClickHouse's own."""
    context = context or Context()
    started = context.clock.monotonic_s()
    plan = _outline(sql)
    tables = _tables(plan, resolve, context)
    limits = _check(plan, tables, context)
    looked_up = _look_up(plan, tables, context, limits, started)
    if looked_up is not None:
        return looked_up
    prepared = _prepared(plan, tables, context)
    scans = plan_scans(prepared, context.settings) if _may_be_spread(prepared, context) else {}
    executor, reason, split = choose_executor(prepared, scans, context)
    scanned = _scanned(prepared, context, count=True) if split is None else None
    if scanned is not None:
        try:
            return _run_attached(prepared, scanned, context, limits, started)
        except NotAttachedError as why:
            _check_scannable(prepared, str(why))
    scans = scans or plan_scans(prepared, context.settings)
    limits.check(scans.values())
    meter = _Meter(sum(scan.rows for scan in scans.values()), context, limits)
    try:
        if split is not None and context.run_tasks is not None:
            answer = _run_split(prepared, split, scans, context, meter, context.run_tasks)
        else:
            answer = _run_local(prepared, scans, context, meter)
    except MergelakeError as failure:
        raise _explained(failure, prepared) from None
    elapsed = until_end(answer.open, lambda: context.clock.monotonic_s() - started)
    if answer.open is not None:
        answer.open.explained = lambda failure: _explained(failure, prepared)

    def stats() -> Stats:
        return Stats(elapsed(), meter.rows, meter.bytes, executor, reason)

    return QueryResult(answer.rows, answer.types, stats, totals=answer.totals, rows=answer.count)


def _may_be_spread(prepared: Prepared, context: Context) -> bool:
    """Whether the statement may go to Spark: it is there, and the columns can be scanned where they must be."""
    must = any(prepared.must(slot) for slot in prepared.rewritten.slots)
    return context.run_tasks is not None and context.executor != "local" and not must


def _scanned(prepared: Prepared, context: Context, *, count: bool = False) -> dict[str, str] | None:
    """For each object name why its table is scanned; empty where ClickHouse reads it by itself. None if all are.

    `count`: the statement is about to run. Raises what is wrong with types that only ClickHouse could read, where it
    cannot.
    """
    pairs = [pair for pair in zip(prepared.rewritten.slots, prepared.sources, strict=True) if not pair[0].counted]
    reasons = {}
    for slot, source in pairs:
        why = source.why_scanned(slot.judged(context.settings), count=count, must=prepared.must(slot))
        if why and prepared.must(slot):
            _check_scannable(prepared, why)
        reasons[slot.object_name] = why
    return None if all(reasons.values()) else reasons


def _check_scannable(prepared: Prepared, why: str) -> None:
    """NOT_IMPLEMENTED for a table that cannot be scanned, and that ClickHouse does not read by itself for a reason."""
    if prepared.setting:
        what = f"The setting {prepared.setting} is for ClickHouse's own reading, and it does not read the parts: {why}"
        raise error("NOT_IMPLEMENTED", what, "Leave it at its default")
    for slot in prepared.rewritten.slots:
        if slot.refused is not None:
            raise error(
                "NOT_IMPLEMENTED", f"{slot.refused.message}, and it does not read the parts: {why}", slot.refused.hint
            )


def _run_attached(
    prepared: Prepared, scanned: Mapping[str, str], context: Context, limits: ReadLimits, started_s: float
) -> QueryResult:
    """The answer of a statement of whose tables ClickHouse reads some by itself; it keeps the limits of these."""
    with ExitStack() as held:
        layers = held.enter_context(_attached(prepared, scanned, context))
        limits.check(each.rest for each in layers.values() if each.rest is not None)
        tables = _rest(prepared, layers)
        how = {} if any(each.remote for each in layers.values()) else READS_FILES
        settings = {**how, **context.settings, **limits.settings}
        try:
            with progress.told(context.on_progress, settings) as marked:
                text = prepared.text(context.now_ms, layers)
                answer = _answer(prepared, text, tables, replace(context, settings=marked))
        except MergelakeError as failure:
            if failure.name.lower() in DAMAGE:
                raise NotAttachedError(str(failure)) from failure
            raise _explained(_named(failure, prepared, layers), prepared) from None
        if answer.open is not None:
            answer.open.at_end(held.pop_all().close)  # what it reads stays attached as long
            answer.open.explained = partial(_scanned_or, prepared, layers, context)
    elapsed = until_end(answer.open, lambda: context.clock.monotonic_s() - started_s)

    def stats() -> Stats:
        return Stats(elapsed(), *answer.read(), "local", READS_ITSELF)

    if context.on_progress is not None and answer.open is None:
        context.on_progress(answer.read()[0], answer.read()[0])
    return QueryResult(answer.rows, answer.types, stats, totals=answer.totals, rows=answer.count)


def _scanned_or(
    prepared: Prepared, layers: Mapping[str, Layers], context: Context, failure: MergelakeError
) -> MergelakeError:
    """What a scan says to the damage that ClickHouse met after its first rows were given; else ClickHouse's error."""
    if failure.name.lower() in DAMAGE and not any(slot.refused for slot in prepared.rewritten.slots):
        try:
            for scan in plan_scans(prepared, context.settings).values():
                for _ in scan.read():
                    pass
        except MergelakeError as told:
            return told
    return _explained(_named(failure, prepared, layers), prepared)


@contextmanager
def _attached(prepared: Prepared, scanned: Mapping[str, str], context: Context) -> Iterator[dict[str, Layers]]:
    """ClickHouse's own tables by object names, and the scans of those that are `scanned`."""
    scans = plan_scans(prepared, context.settings, [name for name, why in scanned.items() if why])
    with ExitStack() as stack:
        yield {
            slot.object_name: Layers((), scans[slot.object_name])
            if scanned[slot.object_name]
            else stack.enter_context(source.attached(slot.judged(context.settings), must=prepared.must(slot)))
            for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True)
            if not slot.counted
        }


def _rest(prepared: Prepared, layers: Mapping[str, Layers]) -> dict[str, pa.Table | pa.RecordBatchReader]:
    """Scans of what ClickHouse's own tables do not have, by object names."""
    rests = {name: each.rest for name, each in layers.items() if each.rest is not None}
    schemas = empty_tables(prepared) if rests else {}
    return {name: _given(rest.read(), schemas[name].schema, whole=True) for name, rest in rests.items()}


def _named(failure: MergelakeError, prepared: Prepared, layers: Mapping[str, Layers]) -> MergelakeError:
    """An error in which tables have the names that the user knows."""
    failure.message = _with_names(failure.message, prepared, layers)
    return failure


def _with_names(text: str, prepared: Prepared, layers: Mapping[str, Layers]) -> str:
    for slot in prepared.rewritten.slots:
        for name, _ in layers[slot.object_name].tables if slot.object_name in layers else ():
            text = text.replace(name, ".".join(filter(None, slot.table[:2])))
    return text


def _look_up(
    plan: Outline, tables: _Tables, context: Context, limits: ReadLimits, started_s: float
) -> QueryResult | None:
    """The answer of a statement that is a short scan and nothing else; None for every other."""
    if context.executor == "spark" or context.format or len(tables.by_occurrence) != 1 or reading(context.settings):
        return None
    (source,) = tables.by_occurrence.values()
    found = direct_scan(plan, source, context.settings)
    if found is None:
        return None
    scan, limit = found
    limits.check((scan,))
    types = {name: source.columns[name] for name in scan.columns}
    meter = _Meter(scan.rows, context, limits)
    table = to_public_table(first_rows(meter.counted(scan.read()), storage_schema(types), limit), types)
    stats = Stats(context.clock.monotonic_s() - started_s, meter.rows, meter.bytes, "local", "a look-up: only a scan")
    return QueryResult(table, tuple(map(str, types.values())), stats)


def _check(plan: Outline, tables: _Tables, context: Context) -> ReadLimits:
    """Refuse what is not done here; how much may be read."""
    check_meaning(plan, (o for o in plan.occurrences if id(o) in tables.by_occurrence))
    chosen = {**context.honoured, **engine.plain_values(honoured(statement_settings(plan)))}
    check_size(plan.text, chosen)
    return read_limits(chosen)


def plan_scans(prepared: Prepared, settings: Mapping[str, str], only: Collection[str] | None = None) -> dict[str, Scan]:
    """A scan for each slot that reads (`only` those); it judges no condition whose meaning `settings` may change."""
    return {
        slot.object_name: source.plan(slot.judged(settings))
        for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True)
        if not slot.counted and (only is None or slot.object_name in only)
    }


def choose_executor(
    prepared: Prepared, scans: Mapping[str, Scan], context: Context
) -> tuple[str, str, splitting.Split | None]:
    """(local or spark, why, how it is split)."""
    if context.executor not in ("auto", "local", "spark"):
        raise error(
            "BAD_ARGUMENTS", f"There is no executor '{context.executor}'", "SET executor = 'auto', 'local' or 'spark'"
        )
    if context.executor == "local":
        return "local", "asked for by the setting executor", None
    if context.run_tasks is None:
        return "local", "no Spark session", None
    if not _may_be_spread(prepared, context):
        return "local", "types, or a setting, for ClickHouse's own reading", None
    if not keeps_partial_answers((*context.settings, *statement_settings(prepared.plan))):
        return "local", "a setting changes what partial answers mean", None
    rows = sum(scan.rows for scan in scans.values())
    if context.executor == "auto" and rows < SPARK_ROWS_MIN:
        return "local", f"{rows} rows to read, fewer than {SPARK_ROWS_MIN}", None
    if not any(scan.items for scan in scans.values()):
        return "local", "nothing to read", None
    split, why = splitting.split(prepared, context.now_ms)
    if split is None:
        return "local", why, None
    return "spark", why, split


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: pa.Table | Batches | bytes | Chunks
    types: tuple[str, ...] = ()
    totals: pa.Table | None = None
    cost: tuple[int, int] = (0, 0)
    count: int | None = None

    @property
    def open(self) -> Batches | Chunks | None:
        """The answer, where not all of it is here yet."""
        return self.rows if isinstance(self.rows, Batches | Chunks) else None

    def read(self) -> tuple[int, int]:
        """Rows and bytes, as ClickHouse counts them."""
        return self.cost if self.open is None else self.open.read


def _run_local(prepared: Prepared, scans: Mapping[str, Scan], context: Context, meter: _Meter) -> _Rows:
    text = prepared.text(context.now_ms)
    schemas = empty_tables(prepared)
    whole = not _may_stop_early(prepared.plan, scans)
    tables = {
        name: _given(meter.counted(scan.read()), schemas[name].schema, whole=whole) for name, scan in scans.items()
    }
    return _answer(prepared, text, tables, context)


def _answer(prepared: Prepared, text: str, tables: Mapping[str, object], context: Context) -> _Rows:
    """What ClickHouse says to the statement in the form that it asks for; of a large answer, the beginning."""
    form = prepared.rewritten.format
    if writes_file(prepared.plan):
        data = engine.run(text, tables, output=form or "TabSeparated", settings=context.settings)
        return _Rows(data.data.to_pybytes(), cost=(data.rows_read, data.bytes_read))
    if form:
        chunks = Chunks(begin(text, tables, output=form, settings=context.settings))
        return _Rows(chunks.whole() if chunks.ended else chunks, cost=chunks.read, count=chunks.rows)
    names, kinds = prepared.columns(context.settings)
    if totals.has_totals(prepared.plan):
        found = totals.run(text, tables, totals.carried(context.settings, prepared.plan), names, kinds)
        return finish(found.rows, kinds, totals=found.totals)
    batches = Batches(begin(without_nothing(text, names, kinds), tables, settings=context.settings), kinds)
    return _Rows(batches.whole() if batches.ended else batches, kinds, cost=batches.read)


def _given(batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, whole: bool) -> pa.Table | pa.RecordBatchReader:
    """A scan as ClickHouse takes it: a table where it fits into `HELD_BYTES`, else a stream.

    A stream is pulled through Python by ClickHouse's own threads, which then wait for each other; a table is not.
    Without `whole` it is always a stream: the statement may stop early.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches if whole else ():
        held.append(batch)
        size += batch.nbytes
        if size > HELD_BYTES:
            return pa.RecordBatchReader.from_batches(schema, chain(held, batches))
    if whole:
        return pa.Table.from_batches(held, schema)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _may_stop_early(plan: Outline, scans: Mapping[str, Scan]) -> bool:
    """Whether a LIMIT may be full before the scans are: not in a look-up, nor where all rows are sorted or grouped."""
    if sum(scan.rows for scan in scans.values()) <= SMALL_ROWS:
        return False
    limited = [scope for scope in plan.scopes if "LIMIT" in scope.clauses]
    return any("ORDER" not in scope.clauses and "GROUP" not in scope.clauses for scope in limited)


def _run_split(
    prepared: Prepared,
    split: splitting.Split,
    scans: Mapping[str, Scan],
    context: Context,
    meter: _Meter,
    run_tasks: RunTasks,
) -> _Rows:
    schemas = empty_tables(prepared)
    ((name, scan),) = scans.items()
    settings = {**context.settings, "max_threads": "1"}
    scanned = splitting.PartialTask(scan.reader(), schemas[name].schema, split.partial, settings)
    shared = _shared(prepared, scan, context, scanned, run_tasks.at_once())
    if shared is not None:
        found = run_tasks(*shared)
        answers = [answer for some, _, _ in found for answer in some]
    else:
        found = run_tasks(scanned, list(scan.items))
        answers = [answer for answer, _, _ in found]
    for _, rows, size in found:
        meter.add(rows, size)
    output = prepared.rewritten.format or "ArrowStream"
    partial = dict(zip(*described(split.partial, schemas, context.settings), strict=True))
    result = splitting.gather(
        split, answers, partial, lambda sql: engine.run(sql, output=output, settings=context.settings)
    )
    if prepared.rewritten.format:
        return _Rows(result.data.to_pybytes())
    names, kinds = prepared.columns(context.settings)
    return finish(result.table().rename_columns(list(names)), kinds)


def _shared(
    prepared: Prepared, scan: Scan, context: Context, scanned: splitting.PartialTask, at_once: int
) -> tuple[Callable[[Any], Any], list[Any]] | None:
    """A task that has ClickHouse read the parts itself, and its shares of them; None where it cannot."""
    (slot,), (source,) = prepared.rewritten.slots, prepared.sources
    layers = {slot.object_name: Layers(((task.TABLE, ()),))}
    found, _ = splitting.split(prepared, context.now_ms, layers)
    given = source.shared(slot.judged(context.settings))
    if found is None or given is None or not scan.items:
        return None
    spec, parts = given
    work = task.AttachedTask(spec, parts.directory, parts.schema, found.partial, scanned.settings, scanned)
    return work, task.shares(parts.parts, scan.items, task.TASKS_A_CORE * at_once)


def _explained(failure: MergelakeError, prepared: Prepared) -> MergelakeError:
    """ClickHouse's error with the nearest column, where it is an unknown one."""
    if failure.name == "UNKNOWN_IDENTIFIER" and not failure.hint:
        virtual = re.search(r"[`'.](_\w+)[`']", failure.message)
        if virtual is not None and virtual[1] in NOT_GIVEN:
            what = f"The virtual column {virtual[1]} is not supported"
            return error(
                "NOT_IMPLEMENTED", what, f"There are {', '.join(VIRTUAL_COLUMNS)}; system.parts tells of parts"
            )
        known = [column for source in prepared.sources for column in (*source.columns, *source.computed)]
        match = re.search(r"`([^`]+)`", failure.message)
        near = difflib.get_close_matches(match.group(1).rsplit(".", 1)[-1], known, n=1) if match else []
        failure.hint = f"Maybe you meant {near[0]}" if near else there_are("columns", known) if known else ""
    elif failure.name == "SYNTAX_ERROR" and not failure.message.startswith("Syntax error at"):
        return _in_own_words(prepared.plan)
    return failure


def _without_moments(plan: Outline) -> str:
    """The user's text with blanks for AS OF …, which ClickHouse does not know."""
    text = plan.text
    for start, end in (o.as_of_at for o in plan.occurrences if o.as_of_at is not None):
        text = text[:start] + " " * len(text[start:end]) + text[end:]
    return text


def _in_own_words(plan: Outline) -> MergelakeError:
    """Where a statement is wrong, in the text that the user wrote: ClickHouse told a place in the rewritten one."""
    text = _without_moments(plan)
    try:
        engine.run(f"SELECT formatQuery({quote_string(text)})")
    except MergelakeError as told:
        place = re.search(
            r"failed at position (\d+)(?: \((.*?)\))?(?: \(line \d+, col \d+\))?:", told.message, re.DOTALL
        )
        wanted = re.search(r"(?:Expected one of|Unmatched parentheses): .*", told.message, re.DOTALL)
        if place is not None:
            at = len(text.encode()[: int(place[1]) - 1].decode(errors="ignore"))
            rest = wanted.group() if wanted is not None else ""
            if len(rest) > _EXPECTED_MAX:
                rest = rest[:_EXPECTED_MAX].rpartition(",")[0] + ", …"
            return syntax_error(plan.text, at, f"unexpected {place[2] or 'text'}. {rest}".rstrip(". "))
    what = "ClickHouse cannot read the statement once its tables are replaced by scans"
    inserts = any(token.upper == "INSERT" for token in plan.tokens)
    return error("NOT_IMPLEMENTED", what, "Write INSERT INTO t WITH … SELECT" if inserts else "")


def finish(raw: pa.Table, kinds: tuple[str, ...], totals: pa.Table | None = None) -> _Rows:
    """ClickHouse's answer, whose columns have the types `kinds`, in the public form."""
    parsed = parse_types([kind.replace("Array(Nothing)", "Array(String)") for kind in kinds])
    if needs_types(raw.schema, parsed):
        raw = to_public(raw, parsed)
    if totals is not None and needs_types(totals.schema, parsed):
        totals = to_public(totals, parsed)
    return _Rows(raw, kinds, totals)


def described(
    text: str, schemas: Mapping[str, pa.Table], settings: Mapping[str, str], key: Hashable = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and types of the columns that a rewritten statement gives; kept by `key` (default: text and schemas)."""
    if key is None:
        key = (text, tuple((name, table.schema.to_string()) for name, table in schemas.items()))
    kept = (key, tuple(settings.items()))
    found = _types.get(kept)
    if not isinstance(found, tuple):
        rows = engine.run(f"DESCRIBE TABLE ({text}\n)", schemas, settings=describes(settings)).table()
        found = (tuple(rows["name"].to_pylist()), tuple(rows["type"].to_pylist()))
        _types.put(kept, found)
    return found


def _without_filters(plan: Outline) -> tuple[str, ...]:
    """The statement's tokens, the literals of WHERE and PREWHERE left out. An alias made there keeps its own."""
    out = [token.text for token in plan.tokens]
    for scope in plan.scopes:
        for clause in ("WHERE", "PREWHERE"):
            first, end = scope.clauses.get(clause, (0, 0))
            if any(token.upper == "AS" for token in plan.tokens[first:end]):
                continue
            for at in range(first, end):
                if plan.tokens[at].kind in ("number", "string"):
                    out[at] = ""
    return tuple(out)


def empty_tables(prepared: Prepared) -> dict[str, pa.Table]:
    """An empty table of storage form for each slot that reads."""
    out = {}
    for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True):
        if not slot.counted:
            schema = storage_schema({name: source.columns[name] for name in slot.wanted.columns})
            out[slot.object_name] = schema.empty_table()
    return out


class _Meter:
    """Counts what the scans give, tells how far they are, and stops them when asked."""

    def __init__(self, total: int, context: Context, limits: ReadLimits) -> None:
        self.rows = 0
        self.bytes = 0
        self._total, self._context, self._limits, self._cancel = total, context, limits, current()
        self._lock = threading.Lock()

    def add(self, rows: int, size: int) -> None:
        """Count what was read elsewhere."""
        self.rows += rows
        self.bytes += size

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        tell = self._context.on_progress
        for batch in batches:
            if self._cancel is not None:
                self._cancel.check()
            with self._lock:
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
                self._limits.check_bytes(self.bytes)
            if tell is not None:
                tell(self.rows, self._total)
            yield batch


def explain(sql: str, resolve: Resolve, context: Context | None = None, kind: str = "") -> list[str]:
    """What would be done: the executor and why, each scan's pruning, ClickHouse's own plan for the rest."""
    context = context or Context()
    plan = _outline(sql)
    tables = _tables(plan, resolve, context, kind)
    _check(plan, tables, context)
    form = check_explain(kind)
    if form in ("AST", "SYNTAX"):  # of the text alone: ClickHouse reads no table for it
        try:
            return _explained_lines(f"EXPLAIN {kind} {_without_moments(plan)}", {}, context)
        except MergelakeError as failure:
            raise _in_own_words(plan) if failure.name == "SYNTAX_ERROR" else failure from None
    prepared = _prepared(plan, tables, context)
    scans = plan_scans(prepared, context.settings) if _may_be_spread(prepared, context) else {}
    executor, why, split = choose_executor(prepared, scans, context)
    scanned = _scanned(prepared, context) if split is None else None
    if scanned is not None:
        try:
            return _explained_attached(prepared, scanned, context, kind)
        except NotAttachedError as told:
            _check_scannable(prepared, str(told))
    scans = scans or plan_scans(prepared, context.settings)
    lines = [f"Executor: {executor} ({why})"]
    for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True):
        name = ".".join(part for part in slot.table[:2] if part)
        if slot.counted:
            lines.append(f"Count of {name}: from the parts' row counts, nothing is read")
            continue
        lines.append(
            f"Scan of {name}" + (f" ({why})" if (why := source.why_scanned(slot.judged(context.settings))) else "")
        )
        lines.append(f"  Columns: {', '.join(slot.wanted.columns)}")
        for label, text in (("Prewhere", slot.wanted.prewhere), ("Filter", slot.wanted.where)):
            if text:
                lines.append(f"  {label}: {text}")
        lines += [f"  {line}" for line in scans[slot.object_name].explain()]
    text = prepared.text(context.now_ms)
    lines.append("ClickHouse")
    lines += [f"  {line}" for line in _explained_lines(f"EXPLAIN {kind} {text}", empty_tables(prepared), context)]
    return lines


def _explained_attached(prepared: Prepared, scanned: Mapping[str, str], context: Context, kind: str) -> list[str]:
    """The plan of a statement whose tables ClickHouse reads by itself."""
    lines = [f"Executor: local ({READS_ITSELF})"]
    with _attached(prepared, scanned, context) as layers:
        text = prepared.text(context.now_ms, layers)
        found = _explained_lines(f"EXPLAIN {kind or 'indexes = 1'} {text}", empty_tables(prepared), context)
        for slot in prepared.rewritten.slots:
            name = slot.object_name
            lines += slot.told(layers[name], scanned[name]) if name in layers else ()
        return [*lines, "ClickHouse", *(f"  {_with_names(line, prepared, layers)}" for line in found)]


def _explained_lines(text: str, tables: Mapping[str, pa.Table], context: Context) -> list[str]:
    found: list[str] = engine.run(text, tables, settings=context.settings).table().column(0).to_pylist()
    return found
