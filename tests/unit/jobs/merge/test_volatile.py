"""What a volatile part is built from, and when two results are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from mergelake.core.model.manifest import PartFile, encode_files
from mergelake.format.serializations.names import stream_file_name
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.volatile import build_task, same_content, volatile_allowed
from tests.helpers.manifests import SCHEMA, manifest
from tests.helpers.volatile import Shared, here


def sources(task: MergeTask) -> list[tuple[str, bool]]:
    """Name of each source, and whether it is read from the disk."""
    return [(str(source.info), source.local) for source in task.sources]


def test_bytes_on_the_disk_are_used_as_far_as_they_go_and_stored_parts_beside_them():
    shared = Shared()
    shared.insert(8)
    first = shared.intend(1, 3)
    second = shared.intend(3, 5)
    middle = shared.intend(1, 4)
    outer = shared.intend(0, 4)
    state = shared.state
    plain = [(f"all_{n}_{n}_0", False) for n in range(1, 9)]
    assert outer.name == "all_1_8_3"
    assert sources(build_task("t", state, outer, {})) == plain
    assert sources(build_task("t", state, outer, here(first))) == [plain[0], ("all_2_3_1", True), *plain[3:]]
    assert sources(build_task("t", state, outer, here(second))) == [*plain[:4], ("all_5_6_1", True), *plain[6:]]
    assert sources(build_task("t", state, outer, here(first, second, middle))) == [
        plain[0],
        (middle.name, True),
        *plain[6:],
    ]
    assert sources(build_task("t", state, middle, here(outer))) == plain[1:6]
    task = build_task("t", state, outer, {})
    assert (task.result, task.local, task.base_version) == (outer.info, True, state.version)


def test_a_published_source_is_read_from_the_store_or_from_the_disk_if_it_is_kept_there():
    shared = Shared()
    shared.insert(4)
    inner = shared.intend(0, 2)
    outer = shared.intend(0, 3)
    shared.publish(inner)
    assert sources(build_task("t", shared.state, outer, {}))[0] == ("all_1_2_1", False)
    kept = here(inner)
    task = build_task("t", shared.state, outer, kept)
    assert sources(task)[0] == ("all_1_2_1", True)
    assert task.sources[0].manifest == kept[inner.id].manifest


def test_the_schema_of_a_result_is_that_of_its_recipe():
    shared = Shared()
    shared.insert(2)
    part = shared.intend(0, 2)
    other = replace(shared.state.schema, comment="newer", version=2)
    state = replace(shared.state, schemas={**shared.state.schemas, 2: other}, schema_version=2)
    assert build_task("t", state, part, {}).schema.version == 1


def test_results_are_the_same_if_their_plain_bytes_are():
    one = manifest(1)
    files = [structs.replace(file, hash="ff" * 16, size=7) for file in one.file_table().values()]
    packed_otherwise = replace(one, id="2" * 32, files=encode_files(files), bytes_on_disk=14)
    assert same_content(one, packed_otherwise)
    wrong = [structs.replace(file, uncompressed_hash="0" * 32) for file in files]
    assert not same_content(one, replace(one, files=encode_files(wrong)))
    assert not same_content(one, replace(one, rows=one.rows + 1))
    marks = [*files, PartFile("c0.mrk2", 10, (), "ee" * 16)]
    assert same_content(one, replace(one, files=encode_files(marks)))
    # Granules of other sizes: some columns are encoded by the granule, so only the rows can be counted.
    assert same_content(one, replace(one, files=encode_files(wrong), marks=one.marks + 1))


@pytest.mark.parametrize("name", ["l", "n" * 126, "x" * 140])
def test_dictionaries_of_results_may_differ(name: str) -> None:
    """Copied parts keep theirs; the last two names are too long with `.dict`, and for a file at all."""
    one = manifest(1)
    files = list(one.file_table().values())
    streams = [f"{stream_file_name(stream)}.bin" for stream in (name, f"{name}.dict")]
    few, many = (
        replace(one, files=encode_files([*files, *(PartFile(s, 1, (), "", 1, digit * 32) for s in streams)]))
        for digit in "12"
    )
    assert same_content(few, many)
    wrong = [structs.replace(file, uncompressed_hash="0" * 32) for file in many.file_table().values()]
    assert not same_content(few, replace(many, files=encode_files(wrong)))


def test_only_merges_that_depend_on_nothing_but_their_sources_may_be_volatile():
    assert volatile_allowed(SCHEMA)
    assert volatile_allowed(replace(SCHEMA, engine="ReplacingMergeTree"))
    assert not volatile_allowed(replace(SCHEMA, engine="GraphiteMergeTree"))
