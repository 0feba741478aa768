"""Independent pieces of work as Spark tasks: one item, one task, results in order.

`spark.range(0, n, 1, n).mapInArrow` passes exactly one id to each task, in classic Spark and in Connect; the closure
contains the items. A task may run twice (retry, speculation), so `fn` must have no visible effect until the caller
commits its result.

Errors of mergelake keep their class: an error that a retry cannot fix is returned as a value and raised in the caller,
after one attempt; an `UnavailableError` fails the task, and Spark tries it again.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from mergelake.core.base.cancel import current
from mergelake.core.base.errors import MergelakeError, UnavailableError
from mergelake.store.metering.meter import Tally, count_elsewhere, counted, current_tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`."""
Item = TypeVar("Item")
Out = TypeVar("Out")


def run_tasks(spark: SparkSession, fn: Callable[[Item], Out], items: Sequence[Item]) -> list[Out]:
    """`[fn(item) for item in items]`, each call in a Spark task. Items and results are pickled.

    Items should be small (descriptors, not data): every task receives all of them.
    """
    return [unwrap(outcome) for outcome in task_outcomes(spark, fn, items)]


def tasks_at_once(spark: SparkSession) -> int:
    """Approximate number of tasks that the cluster runs at a time; 8 for a session of Connect."""
    from pyspark.errors import PySparkException

    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except PySparkException:  # Connect has no context
        return max(1, int(spark.conf.get("spark.default.parallelism", "8") or 8))


def task_outcomes(spark: SparkSession, fn: Callable[[Item], Out], items: Sequence[Item]) -> list[bytes]:
    """Like `run_tasks`, with results in the form of `attempt`, for callers that need all of them to clean up."""
    if not items:
        return []
    work = sealed(items)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield result_batch(index, attempt(lambda index=index: fn(pickle.loads(work[index]))))  # type: ignore[misc]

    ids = spark.range(0, len(work), 1, len(work))
    return collect_results(ids, task)


def exchange(
    spark: SparkSession,
    first: Callable[[Item], Iterator[tuple[int, bytes]]],
    items: Sequence[Item],
    second: Callable[[list[bytes]], Out],
    tasks: int,
) -> list[Out]:
    """Run `first` on each item, shuffle its (number, payload) pairs to `tasks` tasks by number, run `second` there.

    Tasks without payloads return nothing. A payload is a value of a row, so it should have at most a few MiB.
    """
    work = sealed(items)

    tally = current_tally()
    url = None if tally is None else tally.url

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                try:
                    for number, payload in first(pickle.loads(work[index])):
                        yield result_batch(number, _FINE + payload)
                except UnavailableError:
                    raise
                except MergelakeError as error:
                    yield result_batch(0, _FAILED + pickle.dumps(error))

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[bytes] = [row for batch in batches for row in batch.column(1).to_pylist()]
        yield from (result_batch(_REQUESTS, row[1:]) for row in rows if row[:1] == _COUNTED)
        payloads = [row for row in rows if row[:1] != _COUNTED]
        failed = next((payload for payload in payloads if payload[:1] == _FAILED), None)
        if failed is not None:
            yield result_batch(0, pickle.dumps((False, pickle.loads(failed[1:]))))
        elif payloads:
            yield result_batch(0, attempt(lambda: second([payload[1:] for payload in payloads])))

    if not items:
        return []
    ids = spark.range(0, len(work), 1, len(work))
    counting = shipped(_counting(give, url, 0, _COUNTED))
    shuffled = ids.mapInArrow(counting, "i bigint, r binary").repartition(tasks, "i")
    return [unwrap(outcome) for outcome in collect_results(shuffled, take)]


_FINE, _FAILED, _COUNTED = b"+", b"-", b"#"
"""First byte of a payload, and of a pickled error or of the requests of a task in place of a payload."""
_REQUESTS = -1
"""Index of the results that are the requests of a task."""


def _counting(task: Task, url: str | None, index: int = _REQUESTS, mark: bytes = b"") -> Task:
    """The task, followed by a `result_batch` with its requests to the store at `url`; without a URL the task alone."""
    if url is None:
        return task

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(url)
        yield from counted(tally, task(batches))
        yield result_batch(index, mark + pickle.dumps(tally.counters))

    return run


def collect_results(frame: DataFrame, task: Task) -> list[bytes]:
    """Run `task` on the partitions of `frame`; returns the payloads of its `result_batch`es in the order of indexes.

    The requests of tasks that succeed count for the operation of this thread.
    Raises UnavailableError if mergelake is not installed on the workers.
    """
    from pyspark.errors import PySparkException

    tally = current_tally()
    counting = _counting(task, None if tally is None else tally.url)
    try:
        with _stoppable(frame.sparkSession):
            rows = frame.mapInArrow(shipped(counting), "i bigint, r binary").collect()
    except PySparkException as problem:
        story, way_out, _ = str(problem).partition(_WAY_OUT)
        if not way_out:
            raise
        raise UnavailableError(story[story.rindex(_NO_IMPORT) :].removesuffix(". "), hint=_WAY_OUT) from problem
    if tally is not None:
        for row in rows:
            if row.i == _REQUESTS:
                count_elsewhere(tally.url, pickle.loads(row.r))
    return [bytes(row.r) for row in sorted(rows, key=lambda row: row.i) if row.i != _REQUESTS]


_NO_IMPORT = "The Python of Spark's workers "
_WAY_OUT = (
    "Install mergelake there, or start Spark with a Python that has it: PYSPARK_PYTHON in the environment of the "
    "driver (of the server, for Spark Connect), or the configuration spark.pyspark.python"
)


def shipped(task: Task) -> Task:
    """Wrap `task` for `mapInArrow` so that workers without mergelake raise a helpful error.

    The wrapper refers to nothing in mergelake: else unpickling it would fail first, inside Spark.
    """
    from pyspark import cloudpickle

    work: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    begin, end = _NO_IMPORT, _WAY_OUT

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import sys

        try:
            unpickled = pickle.loads(work)
        except ImportError as missing:
            raise ImportError(f"{begin}({sys.executable}) cannot load the task: {missing}. {end}") from None
        yield from unpickled(batches)

    return run


@contextmanager
def _stoppable(spark: SparkSession) -> Iterator[None]:
    """Context in which cancelling the statement cancels the jobs that this thread starts."""
    cancel = current()
    if cancel is None:
        yield
        return
    tag = f"mergelake-{id(cancel):x}"
    spark.addTag(tag)
    try:
        with cancel.stopping(lambda: threading.Thread(target=spark.interruptTag, args=(tag,), daemon=True).start()):
            yield
    except Exception:
        cancel.check()
        raise
    finally:
        spark.removeTag(tag)


def sealed(items: Sequence[object]) -> list[bytes]:
    """Pickle items one by one: every task receives all of them, but unpickles only its own.

    With the manifests of 10,000 parts this takes 30 ms a task instead of 180.
    """
    from pyspark import cloudpickle

    return [cloudpickle.dumps(item) for item in items]  # type: ignore[no-untyped-call]


def attempt(call: Callable[[], Any]) -> bytes:
    """The pickled outcome of `call`: its value, or an error of mergelake that a retry would not fix."""
    try:
        return pickle.dumps((True, call()))
    except UnavailableError:
        raise
    except MergelakeError as error:
        return pickle.dumps((False, error))


def unwrap(outcome: bytes) -> Any:
    """The value of an `attempt`; raises its error."""
    fine, value = pickle.loads(outcome)
    if not fine:
        raise value
    return value


def unwrap_all(outcomes: Iterable[bytes], discard: Callable[[list[Any]], None]) -> list[Any]:
    """The values of `attempt`s. If one is an error, calls `discard` with the values of the others, then raises it."""
    values: list[Any] = []
    failed: MergelakeError | None = None
    for outcome in outcomes:
        try:
            values.append(unwrap(outcome))
        except MergelakeError as problem:
            failed = failed or problem
    if failed is not None:
        discard(values)
        raise failed
    return values


def result_batch(index: int, payload: bytes) -> pa.RecordBatch:
    """A row of the results that `run_tasks` collects."""
    return pa.record_batch({"i": pa.array([index], pa.int64()), "r": pa.array([payload], pa.binary())})
