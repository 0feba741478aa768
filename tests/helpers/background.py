"""What the engine does in threads of its own, waited for."""

from __future__ import annotations

import threading


def settle() -> None:
    """Return when the checkpoints that are due have been written."""
    for thread in threading.enumerate():
        if thread.name == "mergelake-checkpoint":
            thread.join()
