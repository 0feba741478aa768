"""Two stages of tasks that exchange rows by bucket."""

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
"""Maximum bytes of a chunk of the rows of a bucket."""
ROWS_PATH = "\ue007"
"""Placeholder in the statement of the second stage for the path of the rows of its buckets."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of the rows that a task puts into a bucket."""

    file: str
    place: int
    """Number of the chunk in its file, which may be cut at any byte."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a task of the first stage."""

    read: tuple[int, int] | None
    """Rows and bytes read; None if its parts were neither attached nor scanned."""


@dataclass(frozen=True, slots=True)
class FirstStage:
    """Puts the rows of an item into buckets. Picklable and idempotent."""

    work: AttachedTask | ScannedTask

    def __call__(self, item: Any) -> Iterator[tuple[int, bytes]]:
        """Yields (bucket, pickled chunk), at the end (0, pickled cost)."""
        with tempfile.TemporaryDirectory(prefix="mergelake-buckets-") as folder:
            written = self.work.writing(folder)(item)
            for path in sorted(Path(folder).glob("*/*.native")) if written is not None else ():
                name = f"{path.parent.name}/{path.stem}"
                with path.open("rb") as file:
                    place = 0
                    while data := file.read(CHUNK_BYTES):
                        yield int(path.stem), pickle.dumps(Chunk(name, place, data))
                        place += 1
            yield 0, pickle.dumps(Cost(None if written is None else written[1:]))


@dataclass(frozen=True, slots=True)
class SecondStage:
    """Computes the partial result of some whole buckets. Picklable and idempotent."""

    partial: Partial

    def __call__(self, payloads: Sequence[bytes]) -> tuple[list[bytes], int, int] | None:
        """(partial results, rows read, bytes read), as of a task; None if a task of the first stage could not read."""
        received = [pickle.loads(payload) for payload in payloads]
        costs = [each.read for each in received if isinstance(each, Cost)]
        chunks = sorted(
            (each for each in received if isinstance(each, Chunk)), key=lambda each: (each.file, each.place)
        )
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
