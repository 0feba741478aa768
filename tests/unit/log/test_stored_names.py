"""Names in stored bytes are literals: the names that release 7a13fce wrote, whatever Python calls things today.

A name that is added here is a change of a stored format. It needs a new operation or a new format number, so that older
releases stop with UNKNOWN_FORMAT_VERSION: see docs/design/0031-stored-formats-and-releases.md.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import msgspec
import pytest

import mergelake
from mergelake.core.model import schema as schemas
from mergelake.core.model.manifest_json import ManifestJson
from mergelake.core.model.stored_form import StoredForm
from mergelake.jobs.merge import slices, task_json
from mergelake.jobs.node import report
from mergelake.log.model import operations as ops
from mergelake.log.model.operations import Entry
from mergelake.log.storage import checkpoint, op_forms, part_rows
from mergelake.log.storage.encoding import encode_entry, encode_op
from mergelake.table.partitions import gc_notes
from mergelake.table.volatile import volatile_wire
from tests.unit.log.test_encoding import EVERY_KIND

OPERATIONS = {
    "CreateTable": "schema",
    "AlterMetadata": "schema",
    "DropTable": "",
    "UndropTable": "",
    "AddParts": "parts dedup_token dedup_hash detached begun schema_version held",
    "Publish": "part replaced kind volatile mutations begun",
    "DropRange": "partition_id kind max_block remember tokens hashes",
    "DropParts": "partition_id ids kind",
    "DropDetached": "ids",
    "AddVolatile": "id partition_id sources recipe owner",
    "CancelVolatile": "ids reason",
    "AdoptVolatile": "id owner previous",
    "RenewLease": "node version until_ms address token disk",
    "ReleaseLease": "node",
    "RowsUnchanged": "since",
    "Mutation": "id commands partition_ids drops_rows only schema_version",
    "MarkMutated": "partition_id ids mutations",
    "FinishMutations": "ids",
    "MutationFailed": "mutations part code reason",
    "KillMutation": "id",
    "Tag": "name version partition_ids",
    "Untag": "name",
    "AddReference": "holder directories",
    "DropReference": "holder",
    "AdvanceGcHorizon": "base_version history",
    "MoveLog": "sequencer",
    "Prepare": "transaction base_version others ops",
    "CreateDatabase": "name",
    "DropDatabase": "name",
    "RenameDatabase": "name new_name",
    "PutTable": "database name table_id",
    "RemoveTable": "database name table_id",
    "RenameTable": "database name new_database new_name",
    "Exchange": "database name other_database other_name",
    "PutVirtual": "database name table_id schema query reads",
    "RemoveVirtual": "database name table_id",
}
MANIFEST = (
    "id partition_id rows columns key_range files marks bytes_on_disk bytes_uncompressed schema_version part_type "
    "storage level created_ms base_version partition minmax volume ttl projections"
)
PART_ROWS = (
    "partition_id min_block max_block level mutation added added_ms id partition part_type storage volume rows marks "
    "bytes_on_disk bytes_uncompressed schema_version created_ms base_version entry_level key_low key_high columns "
    "minmax ttl projections"
)
FORMS = [
    (op_forms.RECIPE, "schema_version time_ms kind"),
    (schemas._COLUMN, "id name type default_kind default codec comment ttl changes"),
    (
        schemas._SCHEMA,
        (
            "columns engine engine_args partition_by order_by order_desc primary_key sample_by indices projections "
            "past_projections constraints ttl settings comment version next_column_id"
        ),
    ),
    (checkpoint._VOLATILE, "id info sources recipe owner added added_ms"),
    (
        checkpoint._MUTATION,
        "id version commands partition_ids schema_version added added_ms killed drops_rows finished_ms failure since",
    ),
    (checkpoint._FAILURE, "part code reason failed_ms"),
    (checkpoint._FACTS, "parts added first last noted_first noted_last bytes_on_disk hash"),
]
STRUCTS = [
    (ManifestJson, MANIFEST),
    (
        task_json._Task,
        (
            "format url directory kind result base_version schema mutations sources split slice digest deduplicate "
            "cleanup time_ms"
        ),
    ),
    (task_json._Source, "name manifest lacks"),
    (task_json._Mutation, "id version commands schema_version added added_ms drops_rows partition_ids"),
    (task_json._Split, "id keys fence"),
    (task_json._Result, "format task part digest"),
    (slices._Record, "format slice part digest"),
    (gc_notes.Note, "unused holders leases"),
    (gc_notes.Unused, "directory files why"),
    (volatile_wire.ReadyRequest, "table ids"),
    (volatile_wire.BytesRequest, "table key ranges"),
    (
        report.NodeReport,
        (
            "node now_ms started_ms roles slots healthy draining disk disk_free_bytes disk_parts_bytes memory_bytes "
            "counters last_error requests running volatile back_offs tables"
        ),
    ),
    (report.Work, "table partition_id part kind parts rows rows_done bytes bytes_done started_ms"),
    (report.VolatileWork, "table partition_id part id owner parts rows bytes since_ms state"),
    (report.BackOff, "table partition_id blocks reason until_ms"),
    (
        report.TableReport,
        (
            "table version parts partitions most_parts rows bytes volatile bytes_inserted bytes_merged bytes_requested "
            "write_amplification write_amplification_target"
        ),
    ),
    (report.Requests, "put get list head delete retries bytes_put bytes_get"),
]
COLUMNS = [
    (checkpoint._SEGMENTS, "name rows hot_bytes size digest live"),
    (checkpoint._PLACED, "partition_id value parts segments"),
    (checkpoint._RUNS, "name digest before parts added first last noted_first noted_last bytes_on_disk hash"),
    (part_rows.WITH_FILES, f"{PART_ROWS} files"),
    (part_rows.WITHOUT_FILES, f"{PART_ROWS} files_digest outside"),
    (
        part_rows.RETIRED,
        "partition_id min_block max_block level mutation id rows bytes_on_disk added retired retired_ms refers noted",
    ),
]


def _first_name(given):
    return given.split()[0] if isinstance(given, str) else ""


def test_every_kind_of_operation_has_the_stored_names_that_it_had():
    found = {name: " ".join(form.names.values()) for name, (_, form) in op_forms.OP_FORMS.items()}
    assert found == OPERATIONS
    assert {kind for kind, _ in op_forms.OP_FORMS.values()} == set(ops.TableOp.__args__) | set(ops.CatalogOp.__args__)


@pytest.mark.parametrize(("form", "names"), FORMS, ids=_first_name)
def test_a_stored_value_has_the_names_that_it_had(form, names):
    assert sorted(form.names.values()) == sorted(names.split())


@pytest.mark.parametrize(("kind", "names"), STRUCTS, ids=lambda given: getattr(given, "__name__", ""))
def test_a_stored_document_has_the_names_that_it_had(kind, names):
    assert " ".join(each.encode_name for each in msgspec.structs.fields(kind)) == names


@pytest.mark.parametrize(
    ("columns", "names"), COLUMNS, ids=lambda given: given.split()[0] if isinstance(given, str) else ""
)
def test_the_columns_of_checkpoints_have_the_names_that_they_had(columns, names):
    assert " ".join(columns.names) == names


def test_a_class_that_is_renamed_is_stored_as_before():
    entry = Entry(3, "attempt", 1_700_000_000_000, "me", EVERY_KIND)
    before = encode_entry(entry)
    names = {kind: kind.__name__ for kind in {type(op) for op in EVERY_KIND} | {ops.MergeRecipe}}
    try:
        for kind, name in names.items():
            kind.__name__ = f"Renamed{name}"
        assert encode_entry(entry) == before
    finally:
        for kind, name in names.items():
            kind.__name__ = name


def test_a_field_that_is_renamed_is_stored_as_before():
    @dataclasses.dataclass
    class Renamed:
        text: str
        number: int = 7

    form = StoredForm(Renamed, text="name", number="rows")
    assert dict(form.items(Renamed("a"))) == {"name": "a", "rows": 7}
    assert form.value({"name": "a"}) == Renamed("a")
    with pytest.raises(KeyError):
        form.value({"name": "a", "number": 1})


def test_a_field_without_a_stored_name_is_found_when_the_module_is_imported():
    @dataclasses.dataclass
    class Grown:
        name: str
        new: int = 0

    for names in ({"name": "name"}, {"name": "name", "new": "name"}, {"name": "name", "new": "new", "old": "old"}):
        with pytest.raises(TypeError, match="stored name"):
            StoredForm(Grown, **names)
    assert StoredForm(Grown, never=("new",), name="name").names == {"name": "name"}


def test_a_struct_that_is_stored_names_each_field_by_a_literal():
    """`stored("name")`: a field of a `msgspec.Struct` would have the name that it has in Python."""
    bare: list[tuple[str, str]] = []
    for path in sorted(Path(mergelake.__file__).parent.rglob("*.py")):
        for struct in re.finditer(r"^class (\w+)\(msgspec\.Struct(.|\n)*?(?=^\S|\Z)", path.read_text(), re.MULTILINE):
            fields = [line.strip() for line in struct[0].splitlines()[1:] if re.match(r"    \w+: ", line)]
            bare += [(struct[1], field) for field in fields if "stored(" not in field]
    in_memory = {"Extent", "PartFile", "NodeSeen", "NodeWork", "PartitionSeen", "Overview"}
    assert {name for name, _ in bare} <= in_memory, bare


def test_no_names_of_python_are_asked_for_where_bytes_are_made():
    """What made names of classes and fields into stored ones: `__name__`, `asdict` and their like; errors may."""
    package = Path(mergelake.__file__).parent
    asked = re.compile(r"asdict\(|\.__dataclass_fields__|\.__slots__|\.__struct_fields__|\.__name__|\bvars\(")
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for place in ("log", "core/model", "table", "jobs/merge", "jobs/gc", "jobs/publish")
        for path in sorted((package / place).rglob("*.py"))
        for line in path.read_text().splitlines()
        if asked.search(line) and not re.search(r'\bf".*__name__', line)
    ]
    assert [line for line in found if "keeper.py" not in line] == []  # there: names of ZooKeeper's exceptions


def test_encoded_operations_are_readable_without_python():
    assert json.loads(json.dumps(encode_op(ops.Tag("release", 7)))) == {"op": "Tag", "name": "release", "version": 7}
