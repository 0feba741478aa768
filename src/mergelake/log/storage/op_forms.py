"""The stored form of each kind of operation: its name and the names of its fields in entries of the log.

They are literals, which never change: not with the names of classes and fields in Python, and not in meaning. What is
stored in another way gets a new name (of an operation) or the entry a new format, so that older releases refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mergelake.core.model.stored_form import StoredForm
from mergelake.log.model import operations as ops
from mergelake.log.model.operations import LogOp

RECIPE = StoredForm(ops.MergeRecipe, schema_version="schema_version", time_ms="time_ms", kind="kind")

OP_FORMS: Mapping[str, tuple[type[LogOp], StoredForm[Any]]] = {
    "CreateTable": (ops.CreateTable, StoredForm(ops.CreateTable, schema="schema")),
    "AlterMetadata": (ops.AlterMetadata, StoredForm(ops.AlterMetadata, schema="schema")),
    "AddParts": (
        ops.AddParts,
        StoredForm(
            ops.AddParts,
            parts="parts",
            dedup_token="dedup_token",
            dedup_hash="dedup_hash",
            detached="detached",
            begun="begun",
            schema_version="schema_version",
            held="held",
        ),
    ),
    "Publish": (
        ops.Publish,
        StoredForm(
            ops.Publish,
            part="part",
            replaced="replaced",
            kind="kind",
            volatile="volatile",
            mutations="mutations",
            begun="begun",
        ),
    ),
    "AddVolatile": (
        ops.AddVolatile,
        StoredForm(
            ops.AddVolatile, id="id", partition_id="partition_id", sources="sources", recipe="recipe", owner="owner"
        ),
    ),
    "CancelVolatile": (ops.CancelVolatile, StoredForm(ops.CancelVolatile, ids="ids", reason="reason")),
    "AdoptVolatile": (ops.AdoptVolatile, StoredForm(ops.AdoptVolatile, id="id", owner="owner", previous="previous")),
    "RenewLease": (
        ops.RenewLease,
        StoredForm(
            ops.RenewLease,
            node="node",
            version="version",
            until_ms="until_ms",
            address="address",
            token="token",
            disk="disk",
        ),
    ),
    "ReleaseLease": (ops.ReleaseLease, StoredForm(ops.ReleaseLease, node="node")),
    "RowsUnchanged": (ops.RowsUnchanged, StoredForm(ops.RowsUnchanged, since="since")),
    "Mutation": (
        ops.Mutation,
        StoredForm(
            ops.Mutation,
            id="id",
            commands="commands",
            partition_ids="partition_ids",
            drops_rows="drops_rows",
            only="only",
            schema_version="schema_version",
        ),
    ),
    "MarkMutated": (
        ops.MarkMutated,
        StoredForm(ops.MarkMutated, partition_id="partition_id", ids="ids", mutations="mutations"),
    ),
    "FinishMutations": (ops.FinishMutations, StoredForm(ops.FinishMutations, ids="ids")),
    "MutationFailed": (
        ops.MutationFailed,
        StoredForm(ops.MutationFailed, mutations="mutations", part="part", code="code", reason="reason"),
    ),
    "KillMutation": (ops.KillMutation, StoredForm(ops.KillMutation, id="id")),
    "DropRange": (
        ops.DropRange,
        StoredForm(
            ops.DropRange,
            partition_id="partition_id",
            kind="kind",
            max_block="max_block",
            remember="remember",
            tokens="tokens",
            hashes="hashes",
        ),
    ),
    "DropParts": (ops.DropParts, StoredForm(ops.DropParts, partition_id="partition_id", ids="ids", kind="kind")),
    "DropTable": (ops.DropTable, StoredForm(ops.DropTable)),
    "UndropTable": (ops.UndropTable, StoredForm(ops.UndropTable)),
    "DropDetached": (ops.DropDetached, StoredForm(ops.DropDetached, ids="ids")),
    "Tag": (ops.Tag, StoredForm(ops.Tag, name="name", version="version", partition_ids="partition_ids")),
    "Untag": (ops.Untag, StoredForm(ops.Untag, name="name")),
    "AddReference": (ops.AddReference, StoredForm(ops.AddReference, holder="holder", directories="directories")),
    "DropReference": (ops.DropReference, StoredForm(ops.DropReference, holder="holder")),
    "AdvanceGcHorizon": (
        ops.AdvanceGcHorizon,
        StoredForm(ops.AdvanceGcHorizon, base_version="base_version", history="history"),
    ),
    "MoveLog": (ops.MoveLog, StoredForm(ops.MoveLog, sequencer="sequencer")),
    "Prepare": (
        ops.Prepare,
        StoredForm(
            ops.Prepare,
            never=("decision",),
            transaction="transaction",
            base_version="base_version",
            others="others",
            ops="ops",
        ),
    ),
    "CreateDatabase": (ops.CreateDatabase, StoredForm(ops.CreateDatabase, name="name")),
    "DropDatabase": (ops.DropDatabase, StoredForm(ops.DropDatabase, name="name")),
    "RenameDatabase": (ops.RenameDatabase, StoredForm(ops.RenameDatabase, name="name", new_name="new_name")),
    "PutTable": (ops.PutTable, StoredForm(ops.PutTable, database="database", name="name", table_id="table_id")),
    "RemoveTable": (
        ops.RemoveTable,
        StoredForm(ops.RemoveTable, database="database", name="name", table_id="table_id"),
    ),
    "RenameTable": (
        ops.RenameTable,
        StoredForm(ops.RenameTable, database="database", name="name", new_database="new_database", new_name="new_name"),
    ),
    "Exchange": (
        ops.Exchange,
        StoredForm(
            ops.Exchange, database="database", name="name", other_database="other_database", other_name="other_name"
        ),
    ),
    "PutVirtual": (
        ops.PutVirtual,
        StoredForm(
            ops.PutVirtual,
            database="database",
            name="name",
            table_id="table_id",
            schema="schema",
            query="query",
            reads="reads",
        ),
    ),
    "RemoveVirtual": (
        ops.RemoveVirtual,
        StoredForm(ops.RemoveVirtual, database="database", name="name", table_id="table_id"),
    ),
}
"""Stored name of a kind -> its class and the names of its fields. Entries are read by it."""

NAMES: Mapping[type[LogOp], tuple[str, StoredForm[Any]]] = {
    kind: (name, form) for name, (kind, form) in OP_FORMS.items()
}
"""Class -> its stored name and the names of its fields. Entries are written by it."""
