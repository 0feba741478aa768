"""Worlds of real parts: the code that writes, merges, rewrites and reads them, on the simulated bucket.

They are slower than those of tiny rows, and about less: few processes, and faults of writes, of processes and of disks
(that damaged bytes are found out is tested elsewhere). Everything that the observer of a table checks is checked here,
too; what a part holds is read from the bucket.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.merge.source import SourceReader
from mergelake.parts.write import rewrite
from tests.simulation.bucket import Bucket, Fault
from tests.simulation.keepers import Collector
from tests.simulation.kernel import SKEW_MAX_S, Kernel, Machine
from tests.simulation.real_alterer import Alterer, alters
from tests.simulation.real_cast import Changer, PeerReader, RealInserter, RealMutator, RealNode, RealReader, RealSurgeon
from tests.simulation.real_rows import ENGINES, NAMES, RealRows, row_of, schema_of
from tests.simulation.table import Peek, Table
from tests.simulation.threads import SimPool
from tests.simulation.tiny import Rows
from tests.simulation.weather import Weather
from tests.simulation.world import World

CAST = (
    ("insert 1", RealInserter),
    ("insert 2", RealInserter),
    ("admin 1", RealMutator),
    ("admin 2", RealMutator),
    ("real node 1", RealNode),
    ("real node 2", RealNode),
    ("reader", RealReader),
    ("gc", Collector),
)
PEERS = (
    ("insert 1", RealInserter),
    ("admin 1", Changer),
    ("real node 1", RealNode),
    ("real node 2", RealNode),
    ("peer reader 1", PeerReader),
    ("peer reader 2", PeerReader),
)
"""Where nodes serve volatile parts: more of them, and who reads them."""
SURGEONS = (("surgeon 1", RealSurgeon), ("surgeon 2", RealSurgeon))
_POOLS = (
    "parts.write.spool",
    "parts.write.objects",
    "parts.write.writer",
    "parts.read.reader",
    "scan.read.plan",
    "scan.read.read",
    "scan.read.layers",
    "scan.read.hold",
)


def has_peers(seed: int) -> bool:
    """Whether nodes serve volatile parts to readers that ask for them."""
    return seed // 4 % 2 == 1  # with every engine


def has_surgeons(seed: int) -> bool:
    """Whether parts are detached and attached."""
    return seed % 1000 >= 500


class RealTable(Table):
    """What one table of real parts is in truth."""

    def _content(self, part: PartManifest) -> Rows:
        schema = self.state.schemas[self.state.schema_version]
        source = SourceReader(Peek(self.bucket), self.directory, schema, part)
        source.find_matches(65536, 1 << 20)
        rows: list = []
        for batch in source.read(NAMES, 65536, 1 << 20):
            columns = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            rows += (row_of(dict(zip(NAMES, values, strict=True))) for values in columns)
        return tuple(rows)


class RealWorld(World):
    """One table of real parts and those who work on it."""

    table_class = RealTable
    node_class = RealNode

    def __init__(self, seed: int, lines: list[str] | None = None) -> None:
        kernel = Kernel(seed)
        kernel.trace.lines = lines
        draw = kernel.random
        bucket = Bucket(kernel, draw.choice([0.0, 0.01, 0.03]), draw.choice([0.0, 0.002, 0.005]), page=1000)
        bucket.without = frozenset({Fault.FLIP, Fault.TRUNCATE})
        schema = schema_of(ENGINES[seed % len(ENGINES)])
        self.kind = RealRows(schema)
        self.has_peers = has_peers(seed)
        self.collapses = schema.engine != "MergeTree"
        self.furnish(kernel, bucket)
        kernel.preempt = draw.choice([0.02, 0.1])
        self.pace_s = draw.choice([10.0, 100.0])
        self.leaps, self.sleepy = draw.choice([0.0, 0.02]), draw.choice([0.0, 0.01])
        self._create(
            {
                "merge_upload_policy": "volatile" if self.has_peers else draw.choice(["direct", "auto"]),
                **({"write_amplification_target": "3"} if self.has_peers else {}),
                "min_bytes_for_wide_part": draw.choice(["0", "10485760"]),
                "min_rows_for_wide_part": "0",
                "min_age_to_apply_mutations_seconds": draw.choice(["0", "60"]),
                "max_bytes_to_merge_volatile": "20000",
                "index_granularity": "2",
                "non_replicated_deduplication_window": "0",
            }
        )
        altering = (("alterer 1", Alterer), ("alterer 2", Alterer)) if alters(seed) else ()
        surgery = SURGEONS if has_surgeons(seed) else ()
        for name, role in (*(PEERS if self.has_peers else CAST), *altering, *surgery):
            if draw.random() < 0.9:
                self.start(Machine(name, draw.uniform(-SKEW_MAX_S, SKEW_MAX_S)), role)
        self.weather = Weather(self, draw)
        self.weather.rot = self.weather.tears = bucket.rot_rate = 0.0

    def schema_of(self, seed: int):
        return self.kind.schema


@contextlib.contextmanager
def real_parts(seed: int) -> Iterator[None]:
    """What the library does in threads is done at once; small parts are treated as large ones."""
    whole = rewrite.REWRITTEN_WHOLE_BYTES if seed % 3 == 0 else 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("mergelake.parts.write.rewrite.REWRITTEN_WHOLE_BYTES", whole))
        stack.enter_context(mock.patch("mergelake.scan.prune.narrowed.MARKS_MIN", 1))
        for place in _POOLS:
            stack.enter_context(mock.patch(f"mergelake.{place}.Pool", SimPool))
        stack.enter_context(mock.patch("mergelake.jobs.merge.optimize.ThreadPoolExecutor", SimPool))
        yield
