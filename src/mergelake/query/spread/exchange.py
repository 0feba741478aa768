"""Two stages of tasks, with rows exchanged between them by bucket: what travels, and what each stage does with it."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergelake.query.embedded import engine
from mergelake.query.spread.task import AttachedTask, Partial, ScannedTask

CHUNK_BYTES = 4 << 20
"""Of the rows of a bucket that travel as one."""
ROWS_PATH = "\ue007"
"""Stands in the statement of the second stage for the path of the rows of its buckets."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the rows that a task puts into a bucket."""

    file: str
    place: int
    """Within the file: Native is cut anywhere."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task of the first stage has read; None where its parts are neither attached nor scanned."""

    read: tuple[int, int] | None
    """Rows and bytes."""


@dataclass(frozen=True, slots=True)
class FirstStage:
    """Puts the rows of an item into buckets: picklable, harmless to repeat."""

    work: AttachedTask | ScannedTask

    def __call__(self, item: Any) -> Iterator[tuple[int, bytes]]:
        """(bucket, pickled chunk), and in the end the pickled cost."""
        with tempfile.TemporaryDirectory(prefix="mergelake-buckets-") as folder:
            found = self.work.writing(folder)(item)
            for path in sorted(Path(folder).glob("*/*.native")) if found is not None else ():
                name = f"{path.parent.name}/{path.stem}"
                with path.open("rb") as file:
                    place = 0
                    while data := file.read(CHUNK_BYTES):
                        yield int(path.stem), pickle.dumps(Chunk(name, place, data))
                        place += 1
            yield 0, pickle.dumps(Cost(None if found is None else found[1:]))


@dataclass(frozen=True, slots=True)
class SecondStage:
    """Computes the answer of some whole buckets: picklable, harmless to repeat."""

    partial: Partial

    def __call__(self, payloads: Sequence[bytes]) -> tuple[list[bytes], int, int] | None:
        """As a task that has a share; None where one of the first stage had no rows to give."""
        found = [pickle.loads(payload) for payload in payloads]
        costs = [each.read for each in found if isinstance(each, Cost)]
        chunks = sorted((each for each in found if isinstance(each, Chunk)), key=lambda each: (each.file, each.place))
        read = [cost for cost in costs if cost is not None]
        if len(read) < len(costs):
            return None
        answers = [self._answer(chunks)] if chunks else []
        return answers, sum(rows for rows, _ in read), sum(size for _, size in read)

    def _answer(self, chunks: Sequence[Chunk]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="mergelake-bucket-") as folder:
            path = Path(folder) / "rows.native"
            with path.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk.data)
            sql = self.partial.text().replace(ROWS_PATH, str(path))
            answer: bytes = engine.run(sql, output="Native", settings=self.partial.settings).data.to_pybytes()
            return answer
