"""A merge or mutation task as a JSON document that any process can execute, and its result as another one.

::

    {"format": 1, "url": "s3://bucket/warehouse", "directory": "…", "kind": "optimize", "result": "all_1_5_1",
     "base_version": 12, "schema": {…}, "mutations": [{…}], "sources": [{"name": "all_1_1_0", "manifest": {…},
     "lacks": [7]}, …], "split": {"id": "…", "keys": ["…", …], "fence": 3}, "slice": 0, "digest": "…"}

    {"format": 1, "task": "<digest of the task>", "part": {…manifest…}, "digest": "…"}

`split` is left out for a merge that is not cut into slices, `slice` for one that is executed whole. A task holds all
that the work depends on, and no credentials. A result without a part says that a mutation changes no row. The digest is
that of the log's entries (`log.storage.encoding.sealed`): a damaged document is never executed. A document of another
format, or with a field that is not known here, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from mergelake.core.base.errors import CorruptDataError, InternalError, error
from mergelake.core.base.json_load import fields, typed, value
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.manifest_json import Count, ManifestJson
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.stored_form import stored
from mergelake.jobs.merge.plan import MergeSource, MergeTask, Split
from mergelake.log.model.state import PendingMutation
from mergelake.log.storage.encoding import UNREADABLE, decoding, is_sealed, require_format, sealed

FORMAT = 1
"""The format of both documents that this version writes and reads."""
_ID = re.compile("[0-9a-f]{32}")
KINDS = ("regular", "forced", "optimize", "ttl_drop", "ttl_delete", "ttl_recompress", "mutation")


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task, and the warehouse to which it belongs."""

    url: str
    """URL of the warehouse, without secrets."""
    task: MergeTask
    digest: str
    """Digest of the document: what its result names."""


class _Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str = stored("id")
    version: Count = stored("version")
    commands: str = stored("commands")
    schema_version: Count = stored("schema_version")
    added: Count = stored("added")
    added_ms: int = stored("added_ms")
    drops_rows: bool = stored("drops_rows")
    partition_ids: tuple[str, ...] | None = stored("partition_ids", default=None)


class _Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = stored("name")
    manifest: ManifestJson = stored("manifest")
    lacks: tuple[int, ...] = stored("lacks", default=())


class _Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str = stored("id")
    keys: tuple[str, ...] = stored("keys")
    fence: Count = stored("fence")


class _Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int = stored("format")
    url: str = stored("url")
    directory: str = stored("directory")
    kind: str = stored("kind")
    result: str = stored("result")
    base_version: Count = stored("base_version")
    schema: msgspec.Raw = stored("schema")
    mutations: tuple[_Mutation, ...] = stored("mutations")
    sources: tuple[_Source, ...] = stored("sources")
    split: _Split | None = stored("split", default=None)
    slice: Count | None = stored("slice", default=None)
    digest: str = stored("digest", default="")
    deduplicate: tuple[str, ...] | None = stored("deduplicate", default=None)
    cleanup: bool = stored("cleanup", default=False)
    time_ms: Count = stored("time_ms", default=0)


class _Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int = stored("format")
    task: str = stored("task")
    part: ManifestJson | None = stored("part")
    digest: str = stored("digest", default="")


_TASK, _RESULT = msgspec.json.Decoder(_Task), msgspec.json.Decoder(_Result)
Document = TypeVar("Document", _Task, _Result)


def encode_task(url: str, task: MergeTask) -> bytes:
    """The document of a task whose sources and result are in the store at `url`."""
    if task.local or any(source.local for source in task.sources):
        raise InternalError("A merge on the disk of a node is no task of other processes")
    mutations = {mutation.version: mutation for source in task.sources for mutation in source.lacks}
    split: dict[str, Any] = {}
    if task.split is not None:
        keys = tuple(key.hex() for key in task.split.keys)
        split = {"split": _Split(task.split.id, keys, task.split.fence)}
        if task.slice is not None:
            split["slice"] = task.slice
    return sealed(
        {
            "format": FORMAT,
            "url": url,
            "directory": task.directory,
            "kind": task.kind,
            "result": str(task.result),
            "base_version": task.base_version,
            "schema": task.schema.to_json(),
            "mutations": [
                _Mutation(
                    m.id, m.version, m.commands, m.schema_version, m.added, m.added_ms, m.drops_rows, m.partition_ids
                )
                for _, m in sorted(mutations.items())
            ],
            "sources": [
                _Source(str(s.info), ManifestJson.of(s.manifest), tuple(m.version for m in s.lacks))
                for s in task.sources
            ],
            **split,
            **({"deduplicate": task.deduplicate} if task.deduplicate is not None else {}),
            **({"cleanup": True} if task.cleanup else {}),
            **({"time_ms": task.time_ms} if task.time_ms else {}),
        }
    )


def decode_task(data: bytes) -> PlannedTask:
    """Inverse of `encode_task`.

    Raises CorruptDataError for a damaged document, UNKNOWN_FORMAT_VERSION for one of another format.
    """
    raw = _decoded(data, _TASK, "A task")
    with decoding("A task lacks or garbles a field"):
        mutations = {
            m.version: PendingMutation(
                m.id, m.version, m.commands, m.partition_ids, m.schema_version, m.added, m.added_ms, False, m.drops_rows
            )
            for m in raw.mutations
        }
        sources = tuple(
            MergeSource(
                PartInfo.parse(source.name),
                source.manifest.manifest(),
                lacks=tuple(mutations[version] for version in source.lacks),
            )
            for source in raw.sources
        )
        schema = TableSchema.from_json(value(raw.schema))
        split = None
        if raw.split is not None:
            split = Split(raw.split.id, tuple(map(bytes.fromhex, raw.split.keys)), raw.split.fence)
        result = PartInfo.parse(raw.result)
        task = MergeTask(
            raw.directory, schema, sources, result, raw.kind, raw.base_version, split=split, slice=raw.slice
        )
        task = replace(task, deduplicate=raw.deduplicate, cleanup=raw.cleanup, time_ms=raw.time_ms)
        _check(task)
    return PlannedTask(raw.url, task, raw.digest)


def _check(task: MergeTask) -> None:
    """ValueError for a task that no planner makes."""
    infos = [source.info for source in task.sources]
    partitions = {task.result.partition_id, *(info.partition_id for info in infos)}
    if task.kind not in KINDS or not infos or (task.kind == "mutation" and len(infos) != 1):
        raise ValueError(f"no task of the kind '{task.kind}' has {len(infos)} sources")
    if partitions != {source.manifest.partition_id for source in task.sources} or infos != sorted(infos):
        raise ValueError("the sources are not neighbours of one partition, in order")
    if task.split is not None and (task.kind == "mutation" or not task.split.keys or not _ID.fullmatch(task.split.id)):
        raise ValueError("it cannot be cut into these slices")
    if task.slice is not None and (task.split is None or task.slice >= task.split.slices):
        raise ValueError(f"there is no slice {task.slice}")
    if not all(map(task.schema.has, task.deduplicate or ())) or task.deduplicate == ():
        raise ValueError("the columns to deduplicate by are not those of the table")
    if "/" in task.directory or task.directory in ("", ".", ".."):
        raise ValueError(f"'{task.directory}' is no directory of a table")


def encode_result(digest: str, part: PartManifest | None) -> bytes:
    """The document of a result; `digest` is that of the task, `part` what it wrote (None: no row changes)."""
    return sealed({"format": FORMAT, "task": digest, "part": ManifestJson.of(part) if part is not None else None})


def decode_result(data: bytes, planned: PlannedTask) -> PartManifest | None:
    """Inverse of `encode_result`. BAD_ARGUMENTS for the result of another task; other errors as of `decode_task`."""
    raw = _decoded(data, _RESULT, "The result of a task")
    if raw.task != planned.digest:
        message = f"This is not the result of the task that writes {planned.task.result}"
        raise error("BAD_ARGUMENTS", message, "Give the result that its own execution printed")
    with decoding("The result of a task garbles a field"):
        if raw.part is None:
            if planned.task.kind != "mutation":
                raise ValueError("a merge without a part")
            return None
        return raw.part.manifest()


def _decoded(data: bytes, decoder: msgspec.json.Decoder[Document], what: str) -> Document:
    data = data.strip()
    try:
        number = value(fields(data)["format"])
    except UNREADABLE as cause:
        raise CorruptDataError(f"{what} is not readable JSON", found=str(cause)) from cause
    if not isinstance(number, int):
        raise CorruptDataError(f"{what} is not readable JSON", found=f"format {number!r}")
    require_format(number, (FORMAT,), what)
    if not is_sealed(data, what, ""):
        raise CorruptDataError(f"{what} is not whole", expected="a digest at its end")
    try:
        return typed(decoder, data)
    except UNREADABLE as cause:
        raise CorruptDataError(f"{what} lacks or garbles a field", found=str(cause)) from cause
