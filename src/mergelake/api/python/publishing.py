"""`Table`'s methods that show it to servers of ClickHouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mergelake.core.base.errors import error
from mergelake.jobs.publish.plan import GRACE_SECONDS

if TYPE_CHECKING:
    from mergelake.api.python.environment import Environment
    from mergelake.jobs.publish.publish import PublishReport
    from mergelake.table.handle.handle import TableHandle

_PUBLISH_TRIES = 10
"""How often a table is published while mutations are submitted in between."""


class PublishMethods:
    """Publishing, and the statement by which a server attaches what is published."""

    name: str
    handle: TableHandle
    env: Environment

    def publish(self, *, grace_seconds: float = GRACE_SECONDS, redefine: bool = False) -> PublishReport:
        """Make the newest version visible to a ClickHouse server that has attached `location` (see `attach_statement`).

        Pending mutations are applied first (`apply_mutations`), as the server sees only what lies in parts; while one
        fails, the version before stays visible, and UNFINISHED is raised. Names of parts that others replaced stay
        visible for `grace_seconds`, for queries that still read them.

        A server reads columns by name, by the definition with which it attached the table. Where that would be wrong
        now (a column was renamed, has another type, …), INCOMPATIBLE_COLUMNS is raised, and the last published version
        stays visible: drop the table on the servers, publish with `redefine=True`, and attach it by a new statement.
        Parts with columns of other names are rewritten first.

        A partition that gets other rows in one part, by an overwrite or a rollback, changes in one instant there.
        """
        from mergelake.jobs.merge.optimize import rewrite
        from mergelake.jobs.mutate.commit import apply_mutations
        from mergelake.jobs.publish.publish import publish, unpublish

        if redefine:
            unpublish(self.handle)
        for _ in range(_PUBLISH_TRIES):
            report = publish(self.handle, grace_seconds=grace_seconds)
            if report.redefined:
                message = f"A server that attached {self.name} would read it wrongly: {report.redefined}"
                hint = "DROP TABLE on the servers, publish(redefine=True), and attach it by a new attach_statement()"
                raise error("INCOMPATIBLE_COLUMNS", message, hint)
            if report.outdated:
                one_job = self.env.spark is not None
                rewrite(self.handle, self.env.run_merges, report.outdated, one_job=one_job, threads=self.env.threads)
            elif report.pending:
                apply_mutations(self.handle, lambda tasks: self.env.run_mutations(self.handle, tasks))
            else:
                return report
        if not report.pending:
            message = f"Part {report.outdated[0]} has columns of other names, and others change it all the time"
            raise error("UNFINISHED", message, "Publish again when there are fewer merges")
        message = f"Mutation {report.pending[0]} is not finished: others are submitted faster than they are applied"
        raise error("UNFINISHED", message, "Publish again when there are fewer of them")

    def attach_statement(
        self,
        name: str = "",
        *,
        refresh_seconds: int = 1,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        show_secrets: bool = False,
    ) -> str:
        """The CREATE TABLE by which a ClickHouse server attaches the published table, read-only.

        Parameters
        ----------
        name
            `database.table` on the server; default: the name here.
        refresh_seconds
            How often the server looks for new parts.
        access_key_id, secret_access_key
            Credentials for the server, which should be its own. If the bucket needs credentials and these are not
            given, the statement has `[HIDDEN]` in their place.
        show_secrets
            Use the credentials of this process instead of `[HIDDEN]`.

        Raises
        ------
        MergelakeError
            INCOMPATIBLE_COLUMNS if what is published now would be read wrongly by it, or by servers with earlier ones:
            see `publish`.
        """
        from mergelake.jobs.publish.definition import create_statement
        from mergelake.jobs.publish.publish import shown_wrongly
        from mergelake.jobs.publish.served import read_wrongly, serve

        if not isinstance(name, str):
            raise error("BAD_ARGUMENTS", f"{name!r} is no name of a table", "Give `database.table`")
        message = f"What is published of {self.name} would be read wrongly"
        reason, versions = read_wrongly(self.handle, self.handle.log.state)
        if reason:
            hint = "DROP TABLE on the servers that have it, and publish(redefine=True) first"
            raise error("INCOMPATIBLE_COLUMNS", f"{message}: {reason}", hint)
        if part := shown_wrongly(self.handle):
            reason = f"part {part} has a column or an index of before under a name that is another one's now"
            raise error("INCOMPATIBLE_COLUMNS", f"{message}: {reason}", "publish() first")
        serve(self.handle, versions | {self.handle.log.state.schema_version})
        database, _, table = (name or self.name).rpartition(".")
        return create_statement(
            self.handle,
            database or "default",
            table,
            refresh_seconds=refresh_seconds,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            show_secrets=show_secrets,
        )
