"""Mistakes of those who work on tables: nodes and their disks, publishers, fsck."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from unittest import mock

from mergelake.core.base.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from mergelake.core.model.manifest_json import decode_manifest
from mergelake.core.model.names import PartInfo, merged_name
from mergelake.jobs.gc import fsck
from mergelake.jobs.merge import budget, volatile
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.node import disk, plan, worker
from mergelake.jobs.node.disk import copy_part
from mergelake.jobs.publish import plan as published, publish, shown
from mergelake.log.reading import verify
from mergelake.log.reading.verify import LogProblem
from tests.simulation.bugs.registry import both, bug


@bug
def an_upload_goes_though_its_publish_is_not_known():
    refused = (InvalidInputError, ConflictError, NotFoundError, UnavailableError)
    return mock.patch.object(worker, "COMMIT_REFUSED", refused)


@bug
def an_upload_has_the_id_of_the_local_bytes():
    """Two attempts write the same object, and the first one's failure deletes the second one's."""

    def careless(source, target, directory, manifest, new_id, base_version, go_on):
        return copy_part(source, target, directory, manifest, manifest.id, base_version, go_on)

    return mock.patch.object(worker, "copy_part", careless)


@bug
def an_upload_is_born_when_it_ends():
    real = worker.TableWorker._now_in_store

    def careless(self, volatile_id, manifest):
        real(self, volatile_id, dataclasses.replace(manifest, base_version=self.handle.log.state.version))

    return mock.patch.object(worker.TableWorker, "_now_in_store", careless)


@bug
def a_merge_is_born_when_it_is_committed():
    def careless(handle, task, manifest):
        return commit_merge(handle, task, dataclasses.replace(manifest, base_version=handle.log.state.version))

    places = ("mergelake.jobs.node.worker", "tests.simulation.nodes")
    return both(*(mock.patch(f"{place}.commit_merge", careless) for place in places))


@bug
def an_upload_is_not_verified():
    """What a power cut left on the disk goes to the store as it is."""
    return mock.patch.object(disk, "_verify", return_value=None)


@bug
def uploads_wait_for_what_others_wrote():
    """Also where the target has one for each byte: parts stay on a disk for ever."""

    def careless(rules, written, under_way):
        return (rules.target * (1 + budget.SLACK) - 1) * written.inserted - written.merged - under_way

    return mock.patch.object(budget.BudgetRules, "uploads_left", careless)


@bug
def local_bytes_are_known_by_their_blocks():
    """Not by their mutation, or what they hold: bytes from before a mutation stand for the part after it."""
    tiles, kept = volatile._tiles, plan._kept

    def blocks(info):
        return info.partition_id, info.min_block, info.max_block

    def blurred(parts, local):
        named = {blocks(part.info): part.info for part in parts}
        infos = {key: named.get(blocks(found.info), found.info) for key, found in local.items()}
        return {key: dataclasses.replace(found, info=infos[key]) for key, found in local.items()}

    def careless_tiles(parts, ready, local):
        return tiles(parts, ready, blurred(parts, local))

    def careless_kept(table):
        return kept(dataclasses.replace(table, local=blurred(table.state.parts(), table.local)))

    return both(
        mock.patch.object(volatile, "_tiles", careless_tiles),
        mock.patch.object(plan, "_kept", careless_kept),
        mock.patch.object(plan, "same_content", return_value=True),
    )


@bug
def covered_names_go_at_once():
    """A reader that still holds the old list cannot finish."""
    real = published.plan_publish
    return mock.patch.object(
        shown, "plan_publish", lambda active, floors, names, now_ms, _: real(active, floors, names, now_ms, 0)
    )


@bug
def an_empty_part_spans_what_is_active():
    """One over all that was dropped, whatever stands between."""
    real = published._empty_parts

    def careless(bare, floor):
        made = real(bare, floor)
        over = tuple(token for cover in made for token in cover.over)
        return [published.EmptyPart(merged_name([cover.info for cover in made]), over)] if made else []

    return mock.patch.object(published, "_empty_parts", careless)


@bug
def names_are_listed_after_the_log_was_read():
    """What another publisher named in between looks like something dropped."""
    real = publish.names_shown

    def careless(handle, known):
        state = handle.refresh()
        return real(SimpleNamespace(store=handle.store, directory=handle.directory, refresh=lambda: state), known)

    return mock.patch.object(publish, "names_shown", careless)


@bug
def a_publisher_that_slept_does_not_look_again():
    return mock.patch.object(publish, "_take_back", return_value=None)


@bug
def fsck_calls_an_emptied_checkpoint_damaged():
    real = verify._Checkpoints.read

    def careless(self, version):
        if (version, 0) in self._reader.checkpoints():
            self._report.problems.append(LogProblem("checkpoint", version, "it is empty", ""))
        return real(self, version)

    return mock.patch.object(verify._Checkpoints, "read", careless)


@bug
def fsck_misses_what_was_collected_meanwhile():
    return mock.patch.object(fsck, "_part", return_value=True)


@bug
def a_record_of_local_bytes_is_believed():
    """Whatever a power cut made of it."""

    def careless(data):
        try:
            raw = json.loads(json.loads(data)["record"])
            manifest = decode_manifest(json.dumps(raw["manifest"]))
            return raw["id"], PartInfo.parse(raw["name"]), manifest
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    return mock.patch.object(disk, "decode_record", careless)
