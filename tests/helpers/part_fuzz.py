"""Damaged parts, read in a process of their own: what kills it, hangs it or fills its memory is seen from outside.

A part is a dictionary of its files. `Worker.read` answers

| answer | meaning |
| --- | --- |
| `("rows", digest, types)` | everything was read; `digest` stands for all values, the index and the extremes |
| `("refused", name)` | a coded error of ours |
| `("raised", text)` | any other exception: a bug |
| `("died", code)`, `("hung", seconds)` | a crash, a hang: bugs |
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import multiprocessing
import resource
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import InternalError, MergelakeError
from mergelake.core.model.schema import Column, SkipIndex, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.codecs.hashes import FileDigest, city128, digest
from mergelake.format.files.checksums import decode_checksums, encode_checksums
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.scan.prune.predicate import bound_conjuncts, conjunction
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.prune.skip import SkipPlan, skip_in_part, skip_plan
from mergelake.store.objects.memory import MemoryStore

NAME = "all_1_1_0"
COLUMNS = {
    "k": "UInt32",
    "day": "Date",
    "s": "String",
    "fs": "FixedString(3)",
    "n": "Nullable(String)",
    "lc": "LowCardinality(String)",
    "a": "Array(LowCardinality(Nullable(String)))",
    "m": "Map(String, UInt16)",
    "t": "Tuple(x UInt8, y Array(String))",
    "w": "Array(Tuple(Nullable(Float64), Array(Array(UInt8))))",
    "dec": "Decimal(38, 6)",
    "e": "Enum8('a' = -3, 'b' = 0, 'c' = 7)",
    "z": "UInt64",
}
"""The columns of most parts that are damaged."""
INDEXES = (
    SkipIndex("mm", "(k, n)", "minmax", 2),
    SkipIndex("st", "(lc, e)", "set(20)", 1),
    SkipIndex("bl", "fs", "bloom_filter(0.1)", 1),
    SkipIndex("tk", "s", "tokenbf_v1(16, 2, 1)", 2),
    SkipIndex("ng", "s", "ngrambf_v1(2, 16, 1, 0)", 3),
)
"""Their skip indexes."""
_QUESTIONS = ("k < 20", "n > 'm'", "lc = 'a' OR e = 'b'", "fs IN ('abc', 'xyz')", "hasToken(s, 'a')", "s LIKE '%ab%'")
"""Predicates that ask each of the indexes."""
ROOM_BYTES = 1 << 30
"""Address space that a case may use beyond what an intact part needs; threads and Arrow's pool reserve some of it."""
LIMIT_S = 20.0
COMPRESSED = (".bin", ".cmrk", ".cmrk2", ".cmrk3", ".cmrk4", ".cidx", ".idx2")
"""Ends of files of compressed blocks; those of other skip indexes are so too (`skp_idx_*.idx`)."""

Files = Mapping[str, bytes]
Answer = tuple[Any, ...]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class GuardedStore(MemoryStore):
    """Hands out ranges that end where a page starts that nobody may touch: a read past the end kills the process."""

    def __init__(self) -> None:
        super().__init__()
        self._maps: list[tuple[int, int]] = []

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        return [self._guarded(bytes(data)) for data in super().get_ranges(key, ranges)]

    def _guarded(self, data: bytes) -> Any:
        if not data:
            return data
        page = mmap.PAGESIZE
        room = -(-len(data) // page) * page
        base = _libc.mmap(
            None, room + page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
        )
        self._maps.append((base, room + page))
        _libc.mprotect(base + room, page, 0)
        start = base + room - len(data)
        ctypes.memmove(start, data, len(data))
        return memoryview((ctypes.c_uint8 * len(data)).from_address(start)).cast("B").toreadonly()

    def release(self) -> None:
        """Give the pages back; nothing that was handed out may be used any more."""
        for base, size in self._maps:
            _libc.munmap(base, size)
        self._maps = []


def read_everything(files: Files, touched: str = "") -> Answer:
    """All columns by two ways of asking, skip indexes, primary index and extremes; in this process.

    `touched` names the one file that matters: what cannot depend on it is not read.
    """
    store = GuardedStore()
    try:
        return _read(store, files, touched)
    finally:
        store.release()


@functools.cache
def _plans() -> list[SkipPlan]:
    columns = tuple(Column(i, name, parse_type(kind)) for i, (name, kind) in enumerate(COLUMNS.items()))
    schema = TableSchema(columns, order_by=("k",), indices=INDEXES)
    asked = [conjunction(bound_conjuncts(ScanRequest(where=where), schema)[1]) for where in _QUESTIONS]
    return [plan for plan in (skip_plan(schema, predicate) for predicate in asked) if plan is not None]


def _concerned(reader: PartReader, touched: str) -> list[str]:
    """Columns whose values may depend on a file; those of the first column tell the granules of all."""
    first, *others = reader.columns
    layout = reader.layout
    held = [
        n
        for n in others
        if touched in layout.data_files(n, layout.columns[n]) + layout.mark_files(n, layout.columns[n])
    ]
    return held or ([] if touched.startswith("skp_idx") else [first, *others])


def _rows(batches: Iterable[pa.RecordBatch]) -> str:
    """The rows, however they were cut into batches."""
    return repr([row for batch in batches for row in batch.to_pylist()])


def _read(store: GuardedStore, files: Files, touched: str) -> Answer:
    try:
        for name, data in files.items():
            store.put(f"{NAME}/{name}", data)
        opened = open_directory(store, NAME, granularity=8)
        reader = PartReader(store, opened.directory, opened.manifest, opened.columns, granularity=8)
        names = _concerned(reader, touched)
        rows = [_rows(reader.read(names, batch_rows=16))]
        marks = len(reader.granule_rows)
        half = [(marks // 2, marks)] if marks else None
        rows += [_rows(reader.read([name], half)) for name in names]
        if marks and (touched.startswith("skp_idx") or len(names) > 1):
            whole = ((0, marks),)
            rows += [repr(skip_in_part(reader, plan, whole, range(len(plan.indexes))).final) for plan in _plans()]
        index = reader.primary_index([parse_type("UInt32")])
        rows += [repr([array.to_pylist() for array in index]), repr(opened.manifest.minmax), str(opened.manifest.rows)]
        types = {name: str(column.type) for name, column in opened.columns.items()}
        return "rows", hashlib.md5("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest(), types
    except InternalError as bug:
        return "raised", "".join(traceback.format_exception(bug))
    except MergelakeError as refusal:
        return "refused", refusal.name or refusal.kind
    except MemoryError:
        return "raised", f"MemoryError\n{traceback.format_exc()}"
    except Exception:  # whatever it is, it is a finding
        return "raised", traceback.format_exc()


def _serve(pipe: Any) -> None:
    limited = False
    while True:
        try:
            files, touched = pipe.recv()
        except (EOFError, ConnectionError):
            return
        answer = read_everything(files, touched)
        if not limited and answer[0] == "rows":  # kernels are loaded now
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, used + ROOM_BYTES))
            limited = True
        pipe.send(answer)


class Worker:
    """The process that reads; it is started anew after a crash or a hang."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None
        self._warm: Files | None = None

    def warm(self, files: Files) -> Answer:
        """Read an intact part, as every new process will do first."""
        self._warm = dict(files)
        return self.read(files)

    def read(self, files: Files, touched: str = "", limit_s: float = LIMIT_S) -> Answer:
        """What reading these files comes to; `touched` as in `read_everything`."""
        if self._process is None:
            self._start()
            if self._warm is not None:
                self._ask(self._warm, "", 120.0)
        return self._ask(files, touched, limit_s)

    def _ask(self, files: Files, touched: str, limit_s: float) -> Answer:
        self._pipe.send((dict(files), touched))
        if not self._pipe.poll(limit_s):
            self.stop()
            return "hung", limit_s
        try:
            answer: Answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self.stop()
            return "died", code
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None


# -- damage ------------------------------------------------------------------------------------


def flip(data: bytes, at: int, mask: int) -> bytes:
    """One byte changed."""
    return data[:at] + bytes([data[at] ^ (mask or 0xFF)]) + data[at + 1 :]


def damage(data: bytes, kind: str, at: int, mask: int, other: bytes = b"") -> bytes:
    """`data` with one sort of damage at a position."""
    if kind == "swap":
        return other
    if not data:
        return bytes([mask])
    at %= len(data)
    match kind:
        case "flip":
            return flip(data, at, mask)
        case "zero":
            return data[:at] + bytes(min(len(data) - at, 1 + mask % 16)) + data[at + 1 + mask % 16 :]
        case "ones":
            return data[:at] + b"\xff" * min(len(data) - at, 1 + mask % 8) + data[at + 1 + mask % 8 :]
        case "truncate":
            return data[:at]
        case "extend":
            return data + bytes([mask]) * (1 + at % 40)
        case "insert":
            return data[:at] + bytes([mask]) + data[at:]
        case "delete":
            return data[:at] + data[at + 1 :]
    raise AssertionError(kind)


KINDS = ("flip", "zero", "ones", "truncate", "extend", "insert", "delete", "swap")


def sealed_blocks(data: bytes) -> bytes:
    """Blocks with their checksums made right, as far as their sizes can be followed: damage that passes the check."""
    out, at = bytearray(data), 0
    while len(out) - at >= 25:
        size = int.from_bytes(out[at + 17 : at + 21], "little")
        end = min(at + 16 + max(size, 9), len(out))
        out[at : at + 16] = city128(bytes(out[at + 16 : end]))
        at = end
    return bytes(out)


def sealed(files: Files, name: str, data: bytes) -> dict[str, bytes]:
    """The part with `data` in place of a file and a `checksums.txt` that agrees with it."""
    if name.endswith(COMPRESSED) or (name.startswith("skp_idx_") and name.endswith(".idx")):
        data = sealed_blocks(data)
    out = {**files, name: data}
    if name == "checksums.txt":
        return out
    sums = decode_checksums(files["checksums.txt"])
    if name in sums:
        before = sums[name]
        made = digest(data)
        plain_size, plain_hash = before.uncompressed_size, before.uncompressed_hash
        if plain_size >= 0:
            try:
                plain = digest(decode_compressed_blocks(data))
                plain_size, plain_hash = plain.size, plain.hash
            except MergelakeError:
                pass
        out["checksums.txt"] = encode_checksums(
            {**sums, name: FileDigest(made.size, made.hash, plain_size, plain_hash)}
        )
    return out
