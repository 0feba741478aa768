"""The messages between a sender and a leader: members to append, and their outcomes.

::

    request   a sealed JSON object: {"log", "made", "members": [{"attempt", "author", "ops": [{…}]}], "digest"}
    answer    u32 length | a sealed JSON object: {"outcomes": [[kind, version, text]], "first", "sizes", "digest"} |
              the entries from version `first` on, as they lie in the log, of those sizes

Operations are encoded as in entries. An unknown operation or field is refused as in an entry: a leader never appends
what it does not understand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from msgspec import Raw

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.base.json_load import fields, items, loads, value
from mergelake.log.model.operations import AddParts, AddVolatile, AdoptVolatile, Entry, LogOp, Publish, RenewLease
from mergelake.log.storage.encoding import UNREADABLE, decode_entry, decode_ops, decoding, encode_ops, is_sealed, sealed

SERVICE = "commit"
MEMBERS_MAX = 256
"""Members of one request."""
PASSED_ON = (AddParts, Publish, AddVolatile, AdoptVolatile, RenewLease)
"""Operations that depend on nothing but their precondition: wherever they are valid, they mean what they meant on the
state that their writer knew. Some others are derived from the state (the parts of a drop, the parts that a rollback
restores, the detached part of a name), so their writer appends them itself, and rebuilds them for each position."""
Kind = Literal["landed", "refused", "not taken", "unknown"]
"""`landed`: it is in the log at `version`. `refused`: its precondition did not hold on the newest state. `not taken`:
the leader could not append it. In the last two cases the attempt is not in the log, and the leader never appends it.
`unknown`: the leader does not know whether it is in the log."""
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class PassedMember:
    """One attempt of a sender."""

    attempt: str
    author: str
    ops: tuple[LogOp, ...]
    size: int
    """Approximate bytes of its operations."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A request."""

    log: str
    """Prefix of the log."""
    base_version: int
    """The version on which its members were built: the sender has read all entries up to it."""
    members: tuple[PassedMember, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one member."""

    kind: Kind
    version: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcomes in the order of the members, and the entries that the sender lacks."""

    outcomes: tuple[Outcome, ...]
    first: int = 0
    entries: tuple[bytes, ...] = ()


def encoded_ops(ops: Sequence[LogOp]) -> Raw | None:
    """Operations as JSON for a request; None if there are none, or some are not in `PASSED_ON`."""
    return encode_ops(ops) if ops and all(map(_is_passed_on, ops)) else None


def _is_passed_on(op: LogOp) -> bool:
    return isinstance(op, PASSED_ON) and not (isinstance(op, AddParts) and op.detached)


def encode_request(log: str, base_version: int, members: Sequence[Mapping[str, Any]]) -> bytes:
    """The bytes of a request; `members` are JSON objects as in the module's docstring."""
    return sealed({"log": log, "made": base_version, "members": members})


def decode_request(data: bytes) -> Passed:
    """Inverse of `encode_request`. Raises CorruptDataError, or UNKNOWN_FORMAT_VERSION for an unknown operation."""
    what = "A request to append"
    with decoding(f"{what} lacks or garbles a field"):
        if not is_sealed(data, what, ""):
            raise CorruptDataError(f"{what} has no digest")
        raw = fields(data)
        raw_members = items(raw["members"])
        if not 1 <= len(raw_members) <= MEMBERS_MAX:
            raise ValueError(f"{len(raw_members)} members")
        members = tuple(_member(fields(each), len(data) // len(raw_members)) for each in raw_members)
        if len({member.attempt for member in members}) < len(members):
            raise ValueError("an attempt stands in it twice")
        return Passed(str(value(raw["log"])), int(value(raw["made"])), members)


def _member(raw: Mapping[str, Raw], size: int) -> PassedMember:
    ops, attempt = decode_ops(raw["ops"]), value(raw["attempt"])
    if not attempt or not ops or not all(map(_is_passed_on, ops)):
        raise ValueError("a member says nothing, or what is not passed on")
    return PassedMember(str(attempt), str(value(raw["author"])), ops, size)


def encode_answer(answer: Answer) -> bytes:
    """The bytes of an answer."""
    outcomes = [[outcome.kind, outcome.version, outcome.text] for outcome in answer.outcomes]
    header = sealed({"outcomes": outcomes, "first": answer.first, "sizes": [len(data) for data in answer.entries]})
    return b"".join((_LENGTH.pack(len(header)), header, *answer.entries))


def decode_answer(data: bytes, members: int) -> Answer:
    """Inverse of `encode_answer`, for a request of `members` members; raises CorruptDataError."""
    what = "The answer of a leader"
    try:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        header = data[_LENGTH.size : end]
        if not is_sealed(header, what, ""):
            raise CorruptDataError(f"{what} has no digest")
        raw = loads(header)
        outcomes = tuple(Outcome(kind, int(version), str(text)) for kind, version, text in raw["outcomes"])
        if len(outcomes) != members or any(outcome.kind not in get_args(Kind) for outcome in outcomes):
            raise ValueError(f"{len(outcomes)} outcomes")
        entries = []
        for size in map(int, raw["sizes"]):
            if size < 1 or end + size > len(data):
                raise ValueError("an entry is cut off")
            entries.append(data[end : end + size])
            end += size
        return Answer(outcomes, int(raw["first"]), tuple(entries))
    except (*UNREADABLE, struct.error) as cause:
        raise CorruptDataError(f"{what} lacks or garbles a field", found=str(cause)) from cause


def decode_entries(answer: Answer, after: int) -> list[Entry]:
    """The entries after version `after`; CorruptDataError if they are not dense."""
    entries: list[Entry] = []
    for version, data in enumerate(answer.entries, answer.first):
        if version <= after:
            continue
        if not is_sealed(data, "A log entry", ""):
            raise CorruptDataError("An entry that a leader sent has no digest")
        entry = decode_entry(data)
        if entry.version != version or version != after + 1 + len(entries):
            raise CorruptDataError("The entries that a leader sent are not dense", found=str(entry.version))
        entries.append(entry)
    return entries
