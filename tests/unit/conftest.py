"""What unit tests do without: threads of their own."""

from __future__ import annotations

import pytest

from mergelake.log.commit import commit


@pytest.fixture(autouse=True)
def checkpoints_at_once(monkeypatch):
    """A checkpoint that is due has been written when the commit returns; elsewhere a thread of its own does it."""
    monkeypatch.setattr(commit, "apart", lambda work, name: work())
