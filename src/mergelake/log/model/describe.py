"""Operations in words, for the history shown to users. Pure."""

from __future__ import annotations

from mergelake.log.model import operations as ops
from mergelake.log.model.operations import LogOp
from mergelake.log.model.state import shortened


def describe_op(op: LogOp) -> str:
    """A short description of an operation.

    >>> describe_op(ops.DropRange("202601", "detach"))
    'detach partition 202601'
    """
    match op:
        case ops.CreateTable():
            return "create table"
        case ops.AlterMetadata(schema):
            return f"alter table to schema {schema.version}"
        case ops.DropTable():
            return "drop table"
        case ops.UndropTable():
            return "undrop table"
        case ops.AddParts(parts, token, _, detached):
            text = f"{'attach' if detached else 'insert'} {_rows(sum(part.rows for part in parts))}"
            text += f" in {_count(len(parts), 'part')}" if len(parts) != 1 else ""
            return f"{text} as '{token}'" if token else text
        case ops.Publish(part, replaced, kind):
            if kind == "mutation":
                return f"mutate a part of {_where(part.partition_id)}"
            verb = "upload the merge of" if kind == "volatile" else "merge"
            return f"{verb} {_count(len(replaced), 'part')} of {_where(part.partition_id)}"
        case ops.DropRange(partition_id, kind):
            return "truncate" if kind == "truncate" else f"{kind} {_where(partition_id)}"
        case ops.DropParts(partition_id, ids, kind):
            return f"{kind} {_count(len(ids), 'part')} of {_where(partition_id)}"
        case ops.DropDetached(ids):
            return f"drop {_count(len(ids), 'detached part')}"
        case ops.AddVolatile(_, partition_id, sources, _, owner):
            return f"intend to merge {_count(len(sources), 'part')} of {_where(partition_id)} on {owner}"
        case ops.CancelVolatile(ids, reason):
            return f"give up {_count(len(ids), 'merge')}" + (f": {reason}" if reason else "")
        case ops.AdoptVolatile(_, owner, previous):
            return f"{owner} takes a merge over from {previous}"
        case ops.RenewLease(node):
            return f"{node} lives" + (f", and takes commits of others at {op.address}" if op.address else "")
        case ops.ReleaseLease(node):
            return f"{node} leaves"
        case ops.RowsUnchanged(since):
            return f"computed from the rows of version {since}"
        case ops.Mutation(name, commands):
            of = f" of {_count(len(op.only), 'part')}" if op.only else ""
            return f"mutation {name}{of}: {shortened(commands)}"
        case ops.MarkMutated(partition_id, ids, mutations):
            return f"mutations {', '.join(map(str, mutations))} change nothing in {len(ids)} parts of {partition_id}"
        case ops.FinishMutations(ids):
            return f"finished mutations: {', '.join(ids)}"
        case ops.MutationFailed(_, part, code):
            return f"mutations fail on {part}: {code}"
        case ops.KillMutation(name):
            return f"kill mutation {name}"
        case ops.Tag(name, version, partition_ids):
            of = "" if partition_ids is None else f" of {', '.join(map(_where, partition_ids))}"
            return f"tag version {version}{of} as {name}"
        case ops.Untag(name):
            return f"remove tag {name}"
        case ops.Prepare(transaction, _, others, inner, decision):
            outcome = "not known" if decision is None else "committed" if decision.committed else "given up"
            what = "; ".join(map(describe_op, inner))
            return f"transaction {transaction[:8]} with {', '.join(name for name, _ in others)} ({outcome}): {what}"
        case ops.AddReference(holder, directories):
            return f"lend {_count(len(directories), 'part')} to table {holder}"
        case ops.DropReference(holder):
            return f"table {holder} gives back what was lent"
        case ops.AdvanceGcHorizon(_, history):
            return f"collect what only versions before {history} need" if history else "collect what nobody needs"
        case ops.MoveLog(sequencer):
            return f"move the log to {sequencer or 'the bucket'}"
        case ops.CreateDatabase(name):
            return f"create database {name}"
        case ops.DropDatabase(name):
            return f"drop database {name}"
        case ops.RenameDatabase(name, new):
            return f"rename database {name} to {new}"
        case ops.PutTable(database, name):
            return f"name table {database}.{name}"
        case ops.RemoveTable(database, name):
            return f"remove table {database}.{name}"
        case ops.RenameTable(database, name, new_database, new_name):
            return f"rename table {database}.{name} to {new_database}.{new_name}"
        case ops.Exchange(database, name, other_database, other_name):
            return f"exchange tables {database}.{name} and {other_database}.{other_name}"
        case ops.PutVirtual(database, name, _, schema):
            return f"name {schema.engine} {database}.{name}"
        case ops.RemoveVirtual(database, name):
            return f"remove {database}.{name}"


def _where(partition_id: str | None) -> str:
    return "all partitions" if partition_id is None else f"partition {partition_id}"


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
