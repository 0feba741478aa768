"""Plans the published names of a table: names to add, drops to cover, names to remove. Pure.

ClickHouse lists names and never drops a part that no other part covers, so the rules are:

1. Every active part gets its name, in the order of commits. A merge's result covers its sources by its name: higher
   level, same blocks. A server loads parts one by one, so it sees a commit of several parts one by one, too.
2. The first part of a partition after all others were dropped (`State.firsts`) gets a name **over all blocks before**
   (`name_over`), and so does what is merged from it. It takes the place of what was dropped in one instant: an
   overwritten partition of one part is never seen in between.
3. A published part that no active part covers is covered by an **empty part**: one over all blocks that a drop removed
   from the partition; or one of the same blocks for each part that was dropped singly. Names never intersect, even of
   concurrent or late publishers: those of rules 2 and 3 follow from the log alone, of two that begin with block 1 one
   covers the other, and a merge over a singly dropped part has a higher level.
4. A covered name is removed once its cover has been visible for the grace period, so that a reader that
   still holds the old list can finish. Empty parts stay until another part covers them.
5. A part that mutations did not change keeps the name that it was shown by: only the mutation in its name has become
   higher since (`MarkMutated`), and whatever covers the new name covers the old one.

The token of a name (its directory) is the part's id; `plain-<id>` for a part with an object in the directory `<id>`
that is none of its files (a packed one, or what a mutation wrote), where ClickHouse would find an unexpected file;
`drop-<name>` for an empty part. A projection `p` of a part is a directory of its own, `proj-p-<id>`, named
`<part name>/p.proj`. It is named before its part, whose name alone makes ClickHouse look, and its name is removed after
that. So the listing of tokens, together with the log, is the whole state, and names can be
rebuilt at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import LEVEL_MAX, PartInfo, merged_name
from mergelake.log.model.parts import ActivePart, RetiredPart
from mergelake.log.model.state import State

GRACE_SECONDS = 300.0
"""How long a covered name stays visible: more than a reader's refresh interval and its longest query."""

_EMPTY = "drop-"
_PLAIN = "plain-"
_PROJECTION = "proj-"
PART_DIRECTORY = rf"(?:{_PLAIN}|{_PROJECTION}\w+-)?[0-9a-f]{{32}}"
"""Pattern of a part's directories: of its own objects, and of its published files."""
_OVER_LEVEL = 1_000_000_000
"""Above all levels of merges. Twice a version of the log is added: later names over the same blocks cover."""


@dataclass(frozen=True, slots=True)
class PublishedName:
    """A published part."""

    token: str
    """Its directory, beside `__meta`."""
    info: PartInfo
    since_ms: int
    """When the name was written, by the store's clock."""

    @property
    def part_id(self) -> str:
        """The part's id, if it is not an empty one."""
        return part_of(self.token)

    @property
    def empty(self) -> bool:
        """Whether it is an empty part."""
        return self.token.startswith(_EMPTY)


@dataclass(frozen=True, slots=True)
class EmptyPart:
    """An empty part to create."""

    info: PartInfo
    over: tuple[str, ...]
    """Tokens of the names that it covers, all of one partition."""

    @property
    def token(self) -> str:
        """Its directory."""
        return empty_token(self.info)


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """The steps of a round, in this order."""

    add: tuple[str, ...]
    """Ids of active parts that have no name yet, in the order of the commits that brought their newest rows."""
    cover: tuple[EmptyPart, ...]
    remove: tuple[str, ...]
    """Tokens of names whose cover has been visible long enough."""
    open: frozenset[str] = field(default=frozenset(), compare=False)
    """Partitions with work, now or once a name has been covered for the grace period."""


def shown_token(manifest: PartManifest) -> str:
    """The token of a part: the directory that its plain files lie in, or will."""
    if manifest.storage != "full" or ".proj/" in manifest.files.text:
        return f"{_PLAIN}{manifest.id}"
    own = f"{manifest.id}/"
    files = manifest.file_table().values()
    odd = any(e.key.startswith(own) and e.key != own + file.name for file in files for e in file.extents)
    return f"{_PLAIN}{manifest.id}" if odd else manifest.id


def shows(name: PartInfo, part: PartInfo) -> bool:
    """Whether a published name is that of a part, now or before mutations that did not change it."""
    level = min(name.level, part.level) if part.level >= _OVER_LEVEL else part.level
    return name.mutation <= part.mutation and replace(part, level=level, mutation=name.mutation) == name


def part_of(token: str) -> str:
    """The id of the part behind a token that is not one of an empty part; of a projection, the part that has it."""
    return token.rpartition("-")[2] if token.startswith(_PROJECTION) else token.removeprefix(_PLAIN)


def projection_token(part_id: str, name: str) -> str:
    """The token of a projection of a part: the directory of its plain files."""
    return f"{_PROJECTION}{name}-{part_id}"


def projection_of(token: str) -> str:
    """The directory `p.proj` within a part behind the token of a projection; empty for other tokens."""
    if not token.startswith(_PROJECTION):
        return ""
    return token.removeprefix(_PROJECTION).rpartition("-")[0] + ".proj"


def is_projection(token: str) -> bool:
    """Whether a token is that of a projection."""
    return token.startswith(_PROJECTION)


def empty_token(info: PartInfo) -> str:
    """The token of an empty part."""
    return f"{_EMPTY}{info}"


def empty_info(token: str) -> PartInfo | None:
    """The name behind the token of an empty part; None for other tokens."""
    return PartInfo.try_parse(token[len(_EMPTY) :]) if token.startswith(_EMPTY) else None


def name_over(state: State, info: PartInfo, version: int) -> PartInfo:
    """The name by which a part that a `version` brought is published: its own, or `over_all_before`.

    `version` is 0 for a name that is a published one already.
    """
    is_first = version and state.firsts.get(info.partition_id) == info.min_block
    return over_all_before(info, version) if is_first else info


def brought(part: ActivePart | RetiredPart) -> int:
    """The version that brought a part by its name; the last that has it of one that was detached, which forgets it."""
    return part.retired - 1 if isinstance(part, RetiredPart) and part.noted > part.retired else part.added


def over_all_before(info: PartInfo, version: int) -> PartInfo:
    """The name over all blocks before, too, of a part before which all others were dropped.

    It covers all names that were published of the partition before: the level follows from the version that brought
    the part, and what was dropped has mutations below its first block.

    >>> str(over_all_before(PartInfo("a", 57, 60, 1), 42))
    'a_1_60_1000000085_56'
    """
    level = _OVER_LEVEL + 2 * version + 1
    if level >= LEVEL_MAX:  # too many versions for such names
        return info
    return PartInfo(info.partition_id, 1, info.max_block, level, max(info.mutation, info.min_block - 1))


def floor_part(state: State, partition_id: str) -> PartInfo | None:
    """The empty part over all blocks that drops of ranges removed from a partition; None if there was no such drop."""
    floor, level = state.floor_of(partition_id), _OVER_LEVEL + 2 * state.drop_of(partition_id)
    return PartInfo(partition_id, 1, floor, min(level, LEVEL_MAX), floor) if floor else None


def plan_publish(
    active: Mapping[str, PartInfo],
    floors: Callable[[str], PartInfo | None],
    shown: Sequence[PublishedName],
    now_ms: int,
    grace_ms: int,
) -> PublishPlan:
    """The steps from the names `shown` to those of the `active` parts (by id); `floors`: `floor_part` of a state.

    All names are as published (`name_over`). After its execution, a new plan is empty, except for names that wait for
    their grace period.
    """
    known = {name.part_id for name in shown}
    add = tuple(sorted(active.keys() - known, key=lambda i: (active[i].max_block, active[i])))
    standing = {p: list(infos) for p, infos in groupby(sorted(active.values()), key=lambda info: info.partition_id)}
    cover: list[EmptyPart] = []
    remove: set[str] = set()
    left = {active[part_id].partition_id for part_id in add}
    for partition, group in groupby(sorted(shown, key=lambda n: n.info), key=lambda name: name.info.partition_id):
        names = list(group)
        parts = standing.get(partition, [])
        among_active, among_shown = _Infos(parts), _Infos([name.info for name in names])
        old = np.array([name.since_ms for name in names], np.int64) <= now_ms - grace_ms
        bare = []
        for at, name in enumerate(names):
            if name.part_id in active:
                continue
            above = among_shown.over(name.info)
            above[at] = False
            if not above.any() and not among_active.over(name.info).any():
                bare.append(name)
            if above.any():
                left.add(partition)
            if (above & old).any():
                remove.add(name.token)
        covers = _empty_parts(bare, floors(partition))
        left.update(each.info.partition_id for each in covers)
        cover += covers
    return PublishPlan(add, tuple(cover), tuple(name.token for name in shown if name.token in remove), frozenset(left))


def uncovered(shown: Sequence[PublishedName]) -> Iterator[PublishedName]:
    """The names that no other one covers: what a server that attaches the table now reads."""
    for _, group in groupby(sorted(shown, key=lambda n: n.info), key=lambda name: name.info.partition_id):
        names = list(group)
        infos = _Infos([name.info for name in names])
        yield from (name for name in names if infos.over(name.info).sum() == 1)


class _Infos:
    """Infos of one partition as columns, for fast comparison of thousands."""

    def __init__(self, infos: Sequence[PartInfo]) -> None:
        rows = [(i.min_block, i.max_block, i.level, i.mutation) for i in infos]
        self._columns: NDArray[np.int64] = np.array(rows, np.int64).reshape(-1, 4).T.copy()

    def over(self, info: PartInfo) -> NDArray[np.bool_]:
        """For each info whether it covers `info`: `PartInfo.covers`."""
        low, high, level, mutation = self._columns
        equal = (low == info.min_block) & (high == info.max_block) & (level == info.level)
        higher = equal | (level > info.level) | (level == LEVEL_MAX)
        return np.asarray(higher & (low <= info.min_block) & (high >= info.max_block) & (mutation >= info.mutation))


def _empty_parts(bare: list[PublishedName], floor: PartInfo | None) -> list[EmptyPart]:
    """Empty parts over uncovered names of one partition."""
    last = floor.max_block if floor is not None else 0
    below = tuple(name.token for name in bare if name.info.max_block <= last)
    alone = [name for name in bare if not name.empty]
    covers = [EmptyPart(merged_name([name.info]), (name.token,)) for name in alone if name.info.max_block > last]
    if floor is not None and len(covers) < len(alone):
        covers.insert(0, EmptyPart(floor, below))
    return covers
