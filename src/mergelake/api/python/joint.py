"""States of the tables of one statement, such that of a transaction over several of them all are seen, or none.

A state knows the last transaction that it has in common with each other table (`State.joint`), and the version there.
So no request is sent, unless a transaction came between the looks at two tables. States forget transactions with their
history, so one that is too old to be believed (`log.reading.head_freshness`) is refreshed, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mergelake.core.base.errors import ConflictError
from mergelake.log.model.state import State
from mergelake.table.handle.handle import TableHandle

ROUNDS_MAX = 50
"""Rounds of looking after which tables are reported as too busy to be read together."""


def lagging(states: Mapping[str, State]) -> set[str]:
    """The tables, by directory, that lack a transaction which another one of them has. Pure.

    >>> from mergelake.log.model.state import Joint
    >>> lagging({"a": State(version=5), "b": State(version=9, joint={"a": Joint(9, 6, 0)})})
    {'a'}
    """
    return {
        name
        for state in states.values()
        for name, joint in state.joint.items()
        if name in states and states[name].version < joint.other
    }


class JointStates:
    """The states at which a statement reads its tables."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def pin(self, handles: Iterable[TableHandle]) -> None:
        """Read these tables at the states that are known here; one that lags behind another one is refreshed."""
        tables = {handle.directory: handle for handle in handles}
        for _ in range(ROUNDS_MAX):
            self._states = {name: handle.log.fresh() for name, handle in tables.items()}
            late = lagging(self._states)
            if not late:
                return
            for name in late:
                tables[name].refresh()
        raise _busy()

    def of(self, handle: TableHandle) -> State:
        """The state of a table. One that was not pinned is, now: at a version that fits those that are."""
        directory = handle.directory
        if directory in self._states:
            return self._states[directory]
        state = handle.log.fresh()
        if directory in lagging({**self._states, directory: state}):
            state = handle.refresh()
        for _ in range(ROUNDS_MAX):
            late = lagging({**self._states, directory: state})
            if not late:
                self._states[directory] = state
                return state
            if directory in late:
                raise _busy()
            # The others were read before the transaction was committed: so is this one.
            state = handle.state_at(min(state.joint[name].version for name in late) - 1)
        raise _busy()


def _busy() -> ConflictError:
    return ConflictError("Parts moved between the tables while they were looked up", name="ABORTED", hint="Try again")
