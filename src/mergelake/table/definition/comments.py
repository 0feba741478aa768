"""MODIFY COMMENT. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.core.model.schema import TableSchema


@dataclass(frozen=True, slots=True)
class ModifyComment:
    """MODIFY COMMENT '…': the comment of the table; empty removes it."""

    comment: str

    def applied(self, schema: TableSchema) -> TableSchema:
        """Every text is taken."""
        return replace(schema, comment=self.comment)
