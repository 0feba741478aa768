"""Log entries as JSON, readable by machines and by people who look into the bucket.

::

    {"format": 1, "version": 2, "attempt": "…", "timestamp_ms": 1767225600000, "author": "host:4711",
     "ops": [{"op": "AddParts", "parts": [{…manifest…}], "dedup_token": "batch-7"}], "digest": "…"}

An entry of several writers has another format, and lists which operations belong to which writer, in their order::

    "members": [{"attempt": "…", "author": "host:4711", "ops": 2}, {"attempt": "…", "author": "other:15", "ops": 1}]

Empty fields are left out. The digest is the last field: BLAKE2b-128 of all bytes before its comma, in hex, so that a
damaged entry is never taken for another one. Old entries have no digest.

An entry of a newer format, or with an operation that this version does not know, is refused with
UNKNOWN_FORMAT_VERSION: skipping it would show a state that never existed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Raw

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.base.json_load import fields, items, typed, value
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.manifest_json import ManifestJson
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.stored_form import stored
from mergelake.log.model import operations as ops
from mergelake.log.model.operations import Entry, LogOp, Member
from mergelake.log.storage.op_forms import NAMES, OP_FORMS, RECIPE

TIME_END_MS = 10_413_792_000_000
"""The year 2300, where DateTime64 ends. Later times are invalid."""
FORMAT, FORMAT_OF_MEMBERS = 3, 4
"""The formats that this version writes and reads: for entries of one writer, and for those with members."""
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError)
"""Exceptions of decoding malformed JSON."""

_LEFT_OUT = ("disk", "begun", "detached", "mutations", "only", "reads", "schema_version", "held")
"""Fields that are left out if they are false, 0 or empty lists: entries looked so before there were these."""
_FIELDS = {"format", "version", "attempt", "timestamp_ms", "author", "ops"}
_FIELDS_OF_MEMBERS = {*_FIELDS, "members"}
_DIGEST, _END, _DIGEST_DIGITS = b',"digest":"', b'"}', 32
_TAIL = len(_DIGEST) + _DIGEST_DIGITS + len(_END)
_WAY_OUT = "The table was written by a newer mergelake: upgrade this one"
_OLD = "It was written before the first release, by a version that must export it: read it there, write it anew here"


def encode_entry(entry: Entry) -> bytes:
    """The bytes of the entry's object."""
    raw = {
        "format": FORMAT_OF_MEMBERS if entry.members else FORMAT,
        "version": entry.version,
        "attempt": entry.attempt,
        "timestamp_ms": entry.timestamp_ms,
        "author": entry.author,
        **({"members": [_encode_member(member) for member in entry.members]} if entry.members else {}),
        "ops": [encode_op(op) for op in entry.ops],
    }
    return sealed(raw)


def _encode_member(member: Member) -> dict[str, Any]:
    """A member as a JSON object."""
    return {"attempt": member.attempt, "author": member.author, "ops": member.ops}


def sealed(raw: Mapping[str, Any]) -> bytes:
    """A JSON object with a digest of all its bytes as the last field."""
    body = msgspec.json.encode(raw)[:-1]
    return body + _DIGEST + _digest(body) + _END


def is_sealed(data: bytes, what: str, key: str) -> bool:
    """Whether there is a digest; CorruptDataError if it does not match the bytes. `what` names the object in errors."""
    body, tail = data[:-_TAIL], data[-_TAIL:]
    if not tail.startswith(_DIGEST):
        return False
    if tail != _DIGEST + _digest(body) + _END:
        raise CorruptDataError(
            f"{what} does not hold what was written",
            object_key=key,
            expected=_digest(body).decode(),
            found=tail[len(_DIGEST) : -len(_END)].decode(errors="replace"),
        )
    return True


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_DIGITS // 2).hexdigest().encode()


def decode_entry(data: bytes, key: str = "") -> Entry:
    """Inverse of `encode_entry`. `key` is the object's, for errors.

    Raises CorruptDataError for malformed bytes, UNKNOWN_FORMAT_VERSION for a newer format.
    """
    has_digest = is_sealed(data, "A log entry", key)
    try:
        raw = fields(data)
        newest = int(value(raw["format"]))
    except UNREADABLE as cause:
        raise CorruptDataError("A log entry is not readable JSON", object_key=key, found=str(cause)) from cause
    require_format(newest, (FORMAT, FORMAT_OF_MEMBERS), f"Log entry {key}".rstrip())
    known = _FIELDS_OF_MEMBERS if newest == FORMAT_OF_MEMBERS else _FIELDS
    unknown = set(raw) - known - ({"digest"} if has_digest else set())
    if unknown:  # also a digest that is not the last field, or whose name was damaged
        raise CorruptDataError("A log entry has an unknown field", object_key=key, found=min(unknown))
    with decoding("A log entry lacks or garbles a field", key):
        operations = decode_ops(raw["ops"])
        return Entry(
            int(value(raw["version"])),
            str(value(raw["attempt"])),
            _time(value(raw["timestamp_ms"])),
            str(value(raw["author"])),
            operations,
            _members(value(raw["members"]), len(operations)) if newest == FORMAT_OF_MEMBERS else (),
        )


@contextmanager
def decoding(message: str, key: str = "") -> Iterator[None]:
    """Raise CorruptDataError with `message` for malformed JSON; UNKNOWN_FORMAT_VERSION is passed through."""
    try:
        yield
    except UNREADABLE as cause:
        if getattr(cause, "name", "") == "UNKNOWN_FORMAT_VERSION":
            raise
        raise CorruptDataError(message, object_key=key, found=str(cause)) from cause


def _members(raw: Any, ops_count: int) -> tuple[Member, ...]:
    members = tuple(Member(str(each["attempt"]), str(each["author"]), int(each["ops"])) for each in raw)
    if min((member.ops for member in members), default=-1) < 0 or sum(member.ops for member in members) != ops_count:
        raise ValueError(f"its members do not share its {ops_count} operations")
    if len({member.attempt for member in members}) < len(members):
        raise ValueError("an attempt is in it twice")
    return members


def _time(stated: Any) -> int:
    """A valid time, or 0: then the entry counts as old as the one before it."""
    return int(stated) if 0 <= stated < TIME_END_MS else 0


def require_format(number: int, known: Collection[int], what: str) -> None:
    """Raise UNKNOWN_FORMAT_VERSION for the format `number` of a newer version, or of one before the first release."""
    if number not in known:
        message = f"{what} has format {number}, and this version reads {' and '.join(map(str, sorted(known)))}"
        raise error("UNKNOWN_FORMAT_VERSION", message, _WAY_OUT if number > max(known) else _OLD)


def encode_op(op: LogOp) -> dict[str, Any]:
    """One operation as a JSON object with its kind under `op`, for `sealed`."""
    kind, form = NAMES[type(op)]
    out: dict[str, Any] = {"op": kind}
    for name, held in form.items(op):
        if isinstance(op, ops.Prepare) and name == "ops":
            held = [encode_op(each) for each in op.ops]
        if isinstance(held, PartManifest):
            held = ManifestJson.of(held)
        elif isinstance(held, TableSchema):
            held = held.to_json()
        elif isinstance(held, ops.MergeRecipe):
            held = dict(RECIPE.items(held))
        elif isinstance(held, tuple):
            held = [ManifestJson.of(item) if isinstance(item, PartManifest) else item for item in held]
        if held not in ("", None) and not ((held in ([], False, 0)) and name in _LEFT_OUT):
            out[name] = held
    return out


def encode_ops(operations: Iterable[LogOp]) -> Raw:
    """A JSON array of `encode_op` of each, for `sealed`; its `len` is that of the text."""
    return Raw(msgspec.json.encode([encode_op(op) for op in operations]))


def decode_ops(raw: Raw) -> tuple[LogOp, ...]:
    """Inverse of `encode_ops`."""
    return tuple(map(_decode_op, items(raw)))


class _Kind(msgspec.Struct):
    op: str = stored("op")


_KIND = msgspec.json.Decoder(_Kind)


def _decode_op(raw: Raw) -> LogOp:
    kind = typed(_KIND, raw).op
    if kind not in OP_FORMS:
        raise error("UNKNOWN_FORMAT_VERSION", f"The log holds an operation '{kind}' that is not known here", _WAY_OUT)
    special = _SPECIAL.get(kind)
    return special(raw) if special is not None else _built(kind, _plain_fields(raw))


def _plain_fields(raw: Raw) -> dict[str, Any]:
    """The stored fields of an operation but its kind, lists as tuples."""
    held: dict[str, Any] = value(raw)
    del held["op"]
    return tuples(held)


def _create_table(raw: Raw) -> LogOp:
    return ops.CreateTable(TableSchema.from_json(value(raw)["schema"]))


def _alter_metadata(raw: Raw) -> LogOp:
    return ops.AlterMetadata(TableSchema.from_json(value(raw)["schema"]))


def _put_virtual(raw: Raw) -> LogOp:
    held = _plain_fields(raw)
    return _built("PutVirtual", {**held, "schema": TableSchema.from_json(held["schema"])})


class _AddParts(msgspec.Struct, tag="AddParts", tag_field="op", forbid_unknown_fields=True):
    parts: tuple[ManifestJson, ...] = stored("parts")
    dedup_token: str = stored("dedup_token", default="")
    dedup_hash: str = stored("dedup_hash", default="")
    detached: tuple[str, ...] = stored("detached", default=())
    begun: tuple[str, ...] = stored("begun", default=())
    schema_version: int = stored("schema_version", default=0)
    held: tuple[str, ...] = stored("held", default=())


_ADD_PARTS = msgspec.json.Decoder(_AddParts)


def _add_parts(raw: Raw) -> LogOp:
    held = typed(_ADD_PARTS, raw)
    parts = tuple(part.manifest() for part in held.parts)
    more = held.begun, held.schema_version, held.held
    return ops.AddParts(parts, held.dedup_token, held.dedup_hash, held.detached, *more)


class _Publish(msgspec.Struct, tag="Publish", tag_field="op", forbid_unknown_fields=True):
    part: ManifestJson = stored("part")
    replaced: tuple[str, ...] = stored("replaced")
    kind: str = stored("kind", default="direct")
    volatile: str = stored("volatile", default="")
    mutations: tuple[int, ...] = stored("mutations", default=())
    begun: tuple[str, ...] = stored("begun", default=())


_PUBLISH = msgspec.json.Decoder(_Publish)


def _publish(raw: Raw) -> LogOp:
    held = typed(_PUBLISH, raw)
    return ops.Publish(held.part.manifest(), held.replaced, held.kind, held.volatile, held.mutations, held.begun)


class _Prepare(msgspec.Struct, tag="Prepare", tag_field="op", forbid_unknown_fields=True):
    transaction: str = stored("transaction")
    base_version: int = stored("base_version")
    others: tuple[tuple[str, int], ...] = stored("others")
    ops: Raw = stored("ops")


_PREPARE = msgspec.json.Decoder(_Prepare)


def _prepare(raw: Raw) -> LogOp:
    held = typed(_PREPARE, raw)
    inner = decode_ops(held.ops)
    if any(isinstance(op, (ops.Prepare, ops.MoveLog)) for op in inner):
        raise ValueError("a transaction in a transaction, or one that moves the log")
    return ops.Prepare(held.transaction, held.base_version, held.others, inner)  # type: ignore[arg-type]


def _add_volatile(raw: Raw) -> LogOp:
    held = _plain_fields(raw)
    return _built("AddVolatile", {**held, "recipe": RECIPE.value(held["recipe"])})


def _renew_lease(raw: Raw) -> LogOp:
    held = _plain_fields(raw)
    return _built("RenewLease", {**held, "until_ms": min(max(held["until_ms"], 0), TIME_END_MS)})


def _drop_range(raw: Raw) -> LogOp:
    held = _plain_fields(raw)
    windows: dict[str, Any] = {
        name: tuple((known, version, tuple(partition_ids)) for known, version, partition_ids in held[name])
        for name in ("tokens", "hashes")
        if name in held
    }
    return _built("DropRange", {**held, **windows})


def tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a value from its JSON form: lists become tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}


def _built(name: str, held: Mapping[str, Any]) -> LogOp:
    """The operation of this stored name with these stored fields."""
    op: LogOp = OP_FORMS[name][1].value(held)
    return op


_SPECIAL: dict[str, Callable[[Raw], LogOp]] = {
    "CreateTable": _create_table,
    "AlterMetadata": _alter_metadata,
    "PutVirtual": _put_virtual,
    "AddParts": _add_parts,
    "Publish": _publish,
    "DropRange": _drop_range,
    "RenewLease": _renew_lease,
    "AddVolatile": _add_volatile,
    "Prepare": _prepare,
}
"""Kinds whose fields are not only texts, numbers and lists of them."""
