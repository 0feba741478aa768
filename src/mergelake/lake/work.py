"""Public path of `mergelake.api.python.work`."""

from mergelake.api.python.work import (
    commit_work as commit_work,
    plan_work as plan_work,
    work as work,
    work_and_commit as work_and_commit,
    work_on_spark as work_on_spark,
)
