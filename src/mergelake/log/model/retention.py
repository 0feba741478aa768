"""Retention: the versions that can be read, and the directories whose objects they need. Pure.

A version is **kept** if it is `history` or newer, or pinned by a tag or a lease. A part of any kept version is active,
or retired and still in the state (`fold` removes a retired part with the last version that shows it), so reachability
follows from the newest state alone. Its unit is a directory, the first segment of a key: `<id>` of the table itself, or
`/<table>/<id>` of another table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from mergelake.core.base.errors import error
from mergelake.core.model.manifest import PartManifest
from mergelake.log.model.state import Lease, State


def refers(manifest: PartManifest) -> tuple[str, ...]:
    """The directories, other than its own, in which files of a part lie; sorted."""
    return tuple(sorted(set(map(directory_of, manifest.keys_outside()))))


def directory_of(key: str) -> str:
    """The directory of an extent's key: `<id>`, or `/<table>/<id>`."""
    return "/".join(key.split("/", 3)[:3]) if key.startswith("/") else key.partition("/")[0]


def pins(history: int, tags: Mapping[str, int], leases: Mapping[str, Lease], dropped: bool = False) -> tuple[int, ...]:
    """Versions before `history` that tags and leases keep, ascending; none for a dropped table."""
    if dropped:
        return ()
    wanted = {*tags.values(), *(lease.version for lease in leases.values())}
    return tuple(sorted(version for version in wanted if version < history))


def partial_versions(
    tags: Mapping[str, int], tagged_partitions: Mapping[str, tuple[str, ...]], leases: Mapping[str, Lease]
) -> dict[int, frozenset[str]]:
    """The versions of which tags keep some partitions, and no tag or lease all: these partitions of each."""
    if not tagged_partitions:
        return {}
    whole = {version for name, version in tags.items() if name not in tagged_partitions}
    whole |= {lease.version for lease in leases.values()}
    out: dict[int, frozenset[str]] = {}
    for name, partition_ids in tagged_partitions.items():
        if (version := tags[name]) not in whole:
            out[version] = out.get(version, frozenset()) | frozenset(partition_ids)
    return out


def reachable(state: State) -> set[str]:
    """The directories that a kept version, a detached part or another table needs: nothing in them may be deleted."""
    directories: set[str] = set()
    for manifest in (*(p.manifest for p in state.parts()), *(p.manifest for p in state.detached)):
        directories.add(manifest.id)
        directories.update(refers(manifest))
    for part in state.retired:
        directories.add(part.id)
        directories.update(part.refers)
    for held in state.holds.values():
        directories.update(held)
    return directories


def unreachable(state: State, directories: Iterable[str], near: Iterable[PartManifest] = ()) -> set[str]:
    """Those of some directories that are not `reachable`.

    Most are led to by parts in `near`, or are directories of parts themselves: only for others all parts are looked at.
    """
    left = set(directories).difference(*state.holds.values())
    for manifest in near:
        left.difference_update((manifest.id, *refers(manifest)))
    manifests = chain(
        (part.manifest for part in state.partitions.in_memory()), (part.manifest for part in state.detached)
    )
    for manifest in manifests if left else ():
        if manifest.id in left:
            left.difference_update((manifest.id, *refers(manifest)))
    for part in state.retired.find(left, 0).values() if left else ():
        left.difference_update((part.id, *part.refers))
    return left - reachable(state) if left else left


def foreign(state: State) -> Iterator[tuple[str, str]]:
    """(table, directory in it) of each directory of other tables that the state needs, once each."""
    for directory in reachable(state):
        if directory.startswith("/"):
            _, table, inner = directory.split("/", 2)
            yield table, inner


def version_of_tag(state: State, name: str) -> int:
    """The version with this tag; BAD_ARGUMENTS, with the existing tags, if there is none."""
    if name not in state.tags:
        names = ", ".join(sorted(state.tags)[:20])
        raise error("BAD_ARGUMENTS", f"There is no tag '{name}'", f"There are {names}" if names else "There are none")
    return state.tags[name]


def require_kept(state: State, version: int) -> None:
    """Raise BAD_ARGUMENTS unless a version can be read."""
    if version > state.version or version < 1:
        raise error(
            "BAD_ARGUMENTS",
            f"There is no version {version}",
            f"Versions go from {max(state.history, 1)} to {state.version}",
        )
    if version < state.history and version not in state.whole_tags.values():
        tags = ", ".join(f"{name} ({at})" for name, at in sorted(state.whole_tags.items()))
        kept = f"Versions {state.history} to {state.version} are kept"
        raise error(
            "BAD_ARGUMENTS", f"Version {version} has been collected", f"{kept}{tags and ', and the tags '}{tags}"
        )
