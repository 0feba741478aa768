"""A SELECT in tasks of Spark: how, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mergelake.query.answer import StatementAnswer, StatementMeter, answer_of
from mergelake.query.context import Context, RunTasks
from mergelake.query.prepare import Prepared, empty_tables
from mergelake.query.source import Layers
from mergelake.query.spread import task
from mergelake.query.spread.broadcast import BYTES_MAX, Broadcast, path_mark
from mergelake.query.spread.chosen import Chosen
from mergelake.query.spread.exchange import ROWS_PATH, FirstStage, SecondStage
from mergelake.query.spread.given_table import GivenTable, file_table
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.spread.here import native, native_here, run_here
from mergelake.query.spread.shuffling import BUCKET, without_bucket
from mergelake.query.spread.steps import Planned, Planner
from mergelake.query.statement.rewrite import Rewritten, Slot, filled


def run_spread(chosen: Chosen, context: Context, meter: StatementMeter, run_tasks: RunTasks) -> StatementAnswer:
    """Run the steps one after another. Raises NotSplitError if the result of one is too large for the next."""
    assert chosen.steps is not None
    assert chosen.planner is not None
    assert chosen.folder is not None
    folder, steps = Path(chosen.folder.name), chosen.steps
    inside = replace(context, format="")
    try:
        for number, step in enumerate(steps.before):
            prepared = step.planned.prepared
            if step.planned.split is None:
                step.gives.put(native_here(prepared, inside, meter))
                continue
            run = _Tasks(chosen.planner, step.planned, inside, meter, run_tasks)
            final = run.final_text(_created(folder / f"step{number}"))
            step.gives.put(native(final, inside))
        if steps.last.split is None:
            answer = run_here(steps.last.prepared, context, meter)
        else:
            tasks = _Tasks(chosen.planner, steps.last, context, meter, run_tasks)
            answer = answer_of(steps.last.prepared, tasks.final_text(_created(folder / "last")), {}, context)
    except BaseException:
        chosen.close()
        raise
    if answer.open is None:
        chosen.close()
    else:
        answer.open.at_end(chosen.close)
    return answer


def _created(folder: Path) -> Path:
    folder.mkdir()
    return folder


class _Tasks:
    """The tasks of one SELECT."""

    def __init__(
        self, planner: Planner, planned: Planned, context: Context, meter: StatementMeter, run_tasks: RunTasks
    ) -> None:
        assert planned.split is not None
        self._planner, self._planned, self._context = planner, planned, context
        self._meter, self._run_tasks, self._split = meter, run_tasks, planned.split
        slots, sources = planned.prepared.rewritten.slots, planned.prepared.sources
        self._others = [pair for pair in zip(slots, sources, strict=True) if pair[0].object_name != self._split.spread]
        ((self._slot, self._source),) = (p for p in zip(slots, sources, strict=True) if p not in self._others)

    def final_text(self, folder: Path) -> str:
        """Run the tasks; returns the final statement over their results, which are written into the folder."""
        local_forms, task_forms, broadcast = self._forms(folder)
        results = self._run(task_forms, Broadcast.of(broadcast))
        for _, rows, size in results:
            self._meter.add(rows, size)
        for number, answer in enumerate(answer for answers, _, _ in results for answer in answers):
            (folder / f"{number:06d}.native").write_bytes(answer)
        source = file_table(f"{folder}/*.native", self._planned.partial)
        return filled(self._split.halves.final_text(source), local_forms)

    def _forms(self, folder: Path) -> tuple[dict[str, str], dict[str, str], dict[str, bytes]]:
        """By object name of the other tables: their SQL here, their SQL in tasks, their rows as Native."""
        local_forms, task_forms, broadcast = {}, {}, {}
        size = 0
        for slot, source in self._others:
            name = slot.object_name
            data, kinds = (source.bytes(), source.types) if isinstance(source, GivenTable) else self._small(slot)
            size += len(data)
            if size > BYTES_MAX:
                raise NotSplitError(f"the smaller tables have more than {BYTES_MAX} bytes")
            path = folder / f"{name}.given"
            path.write_bytes(data)
            broadcast[name] = data
            whole = replace(slot.wanted, final=False, sample="", sample_offset="")
            plain = replace(slot, wanted=whole, before_final="")
            local_forms[name] = plain.attached(Layers(((file_table(str(path), kinds), ()),)))
            task_forms[name] = plain.attached(Layers(((file_table(path_mark(name), kinds), ()),)))
        return local_forms, task_forms, broadcast

    def _small(self, slot: Slot) -> tuple[bytes, Mapping[str, str]]:
        """The needed columns and rows of another table as Native, and the types of its columns."""
        source = self._planned.prepared.source_of(slot)
        wanted = slot.judged(self._context.settings)
        texts = [text for text in (wanted.prewhere, wanted.where) if text and "now" not in text and "today" not in text]
        where = f" WHERE {' AND '.join(f'({text})' for text in texts)}" if texts else ""
        alone = Rewritten((f"SELECT * FROM {slot.place}{where}",), (), (slot,), "")
        prepared = Prepared(self._planned.prepared.parsed, alone, (source,))
        data = native_here(prepared, replace(self._context, format=""), self._meter, bytes_max=BYTES_MAX)
        return data, {name: str(source.columns[name]) for name in slot.columns}

    def _run(self, task_forms: Mapping[str, str], broadcast: Broadcast) -> list[tuple[list[bytes], int, int]]:
        settings = {**self._context.settings, "max_threads": "1"}
        shuffle, rows = self._split.shuffle, self._planned.rows
        text = self._split.halves.partial
        if shuffle is None:
            work, items = self._work(task.Partial(filled(text, task_forms), settings, broadcast))
            results = self._run_tasks(work, items)
        else:
            into = f"INSERT INTO FUNCTION {file_table(f'{task.FOLDER}/{{_partition_id}}.native', rows)} "
            into += f"PARTITION BY {BUCKET} {shuffle.first}"
            work, items = self._work(task.Partial(filled(into, task_forms), settings, broadcast))
            second = filled(text, {**task_forms, BUCKET: without_bucket(file_table(ROWS_PATH, rows), rows)})
            results = self._run_tasks.exchange(
                FirstStage(work),
                items,
                SecondStage(task.Partial(second, settings, broadcast)),
                task.TASKS_A_CORE * self._run_tasks.at_once(),
            )
        if any(each is None for each in results):
            raise NotSplitError("a task does not attach its parts")
        return results

    def _work(self, partial: task.Partial) -> tuple[task.AttachedTask | task.ScannedTask, list[Any]]:
        """The function of the tasks, and their items; `partial` has a mark in place of the spread table."""
        slot, finals, name = self._slot, self._planned.finals, self._slot.object_name
        scan = self._planner.scan(self._source, slot.judged(self._context.settings))

        def over(form: str) -> task.Partial:
            return replace(partial, sql=filled(partial.sql, {name: form}))

        scanned = None
        if slot.refused is None and not finals:
            schema = empty_tables(self._planned.prepared, only=name)[name].schema
            scanned = task.ScannedTask(scan.reader(), schema, name, over(slot.scanned))
        shared = self._source.shared(slot.judged(self._context.settings))
        if shared is None or not scan.items:
            if scanned is None:
                raise NotSplitError("a task cannot attach its parts")
            return scanned, list(scan.items)
        parts, condition = shared.parts, task.CONDITION if finals else ""
        form = slot.attached(Layers(((task.TABLE, ()),), view=shared.view), condition)
        shares = task.shares(parts.parts, scan.items, task.TASKS_A_CORE * self._run_tasks.at_once())
        if finals:
            shares = [task.Share(final.parts, (), final.condition) for final in finals]
        viewed = shared.view is not None
        return task.AttachedTask(shared.spec, parts.directory, parts.schema, over(form), scanned, viewed), list(shares)
