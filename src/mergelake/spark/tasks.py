"""Independent pieces of work as Spark tasks: one item, one task, results in order.

`spark.range(0, n, 1, n).mapInArrow` gives exactly one id to each task, in classic Spark and in Connect; the items
travel in the closure. A task may run twice (retry, speculation), so `fn` must be harmless until its result
is committed by the caller.

Errors of ours come back as themselves: an error that a retry cannot mend is returned as a value and raised
here, so it costs one attempt; an `UnavailableError` fails the task, and Spark tries it again.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from mergelake.core.cancel import current
from mergelake.core.errors import MergelakeError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` runs."""
Item = TypeVar("Item")
Out = TypeVar("Out")


def run_tasks(spark: SparkSession, fn: Callable[[Item], Out], items: Sequence[Item]) -> list[Out]:
    """`[fn(item) for item in items]`, each call in a Spark task. Items and results are pickled.

    Keep items small (descriptors, not data): they all travel with every task.
    """
    return [unwrap(outcome) for outcome in task_outcomes(spark, fn, items)]


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks the cluster runs at a time, about; 8 where a session of Connect does not tell."""
    from pyspark.errors import PySparkException

    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except PySparkException:  # Connect has no context
        return max(1, int(spark.conf.get("spark.default.parallelism", "8") or 8))


def task_outcomes(spark: SparkSession, fn: Callable[[Item], Out], items: Sequence[Item]) -> list[bytes]:
    """As `run_tasks`, each result still in the form of `attempt`: for a caller that must know all to clean up."""
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
    """Run `first` on each item, shuffle what it gives to `tasks` tasks by its number, run `second` on what each has.

    Tasks that have nothing give nothing. A payload is a value of a row: keep it to a few MiB.
    """
    work = sealed(items)

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
        payloads: list[bytes] = [row for batch in batches for row in batch.column(1).to_pylist()]
        failed = next((payload for payload in payloads if payload[:1] == _FAILED), None)
        if failed is not None:
            yield result_batch(0, pickle.dumps((False, pickle.loads(failed[1:]))))
        elif payloads:
            yield result_batch(0, attempt(lambda: second([payload[1:] for payload in payloads])))

    if not items:
        return []
    ids = spark.range(0, len(work), 1, len(work))
    given = ids.mapInArrow(shipped(give), "i bigint, r binary").repartition(tasks, "i")
    return [unwrap(outcome) for outcome in collect_results(given, take)]


_FINE, _FAILED = b"+", b"-"
"""What a payload begins with that is one, and one that is an error of ours."""


def collect_results(frame: DataFrame, task: Task) -> list[bytes]:
    """What `task` gives by `result_batch` for the partitions of `frame`, in the order of its indexes.

    UnavailableError where the workers cannot run it for lack of mergelake.
    """
    from pyspark.errors import PySparkException

    try:
        with _stoppable(frame.sparkSession):
            rows = frame.mapInArrow(shipped(task), "i bigint, r binary").collect()
    except PySparkException as problem:
        story, told, _ = str(problem).partition(_WAY_OUT)
        if not told:
            raise
        raise UnavailableError(story[story.rindex(_NO_IMPORT) :].removesuffix(". "), hint=_WAY_OUT) from problem
    return [bytes(row.r) for row in sorted(rows, key=lambda row: row.i)]


_NO_IMPORT = "The Python of Spark's workers "
_WAY_OUT = (
    "Install mergelake there, or start Spark with a Python that has it: PYSPARK_PYTHON in the environment of the "
    "driver (of the server, for Spark Connect), or the configuration spark.pyspark.python"
)


def shipped(task: Task) -> Task:
    """`task` for `mapInArrow`, such that workers without mergelake say so, and the way out, when they run it.

    What is sent refers to nothing of mergelake: else unpickling it would fail first, deep in Spark.
    """
    from pyspark import cloudpickle

    work: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    begin, end = _NO_IMPORT, _WAY_OUT

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import sys

        try:
            found = pickle.loads(work)
        except ImportError as missing:
            raise ImportError(f"{begin}({sys.executable}) cannot load the task: {missing}. {end}") from None
        yield from found(batches)

    return run


@contextmanager
def _stoppable(spark: SparkSession) -> Iterator[None]:
    """While it lasts, cancelling the statement cancels the jobs that this thread starts."""
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
    """Items pickled one by one: every task receives all of them, and opens (`pickle.loads`) its own only.

    With the manifests of 10,000 parts that is 30 ms a task instead of 180.
    """
    from pyspark import cloudpickle

    return [cloudpickle.dumps(item) for item in items]  # type: ignore[no-untyped-call]


def attempt(call: Callable[[], Any]) -> bytes:
    """The pickled outcome of `call`: its value, or the error of ours that a retry would not mend."""
    try:
        return pickle.dumps((True, call()))
    except UnavailableError:
        raise
    except MergelakeError as error:
        return pickle.dumps((False, error))


def unwrap(outcome: bytes) -> Any:
    """The value of an `attempt`, or its error, raised."""
    fine, value = pickle.loads(outcome)
    if not fine:
        raise value
    return value


def unwrap_all(outcomes: Iterable[bytes], discard: Callable[[list[Any]], None]) -> list[Any]:
    """The values of `attempt`s; where one is an error, the values of the others are handed to `discard` first."""
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
    """One row of what `run_tasks` collects."""
    return pa.record_batch({"i": pa.array([index], pa.int64()), "r": pa.array([payload], pa.binary())})
