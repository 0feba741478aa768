"""Objects in a directory, in memory or in a bucket: `open_store(url)` gives a `Store`.

A *key* names an object; a *spec* (`StoreSpec`) holds all that another process needs to open the same store; `create` is
the only conditional operation, with three outcomes (`Stored | Lost | Unknown`), and the correctness of the engine
depends on it. Only this wing imports obstore.
"""

from mergelake.store.interface.protocol import (
    Buffer,
    Counters,
    Lost,
    ObjectMeta,
    OutcomeUnknown,
    PutOutcome,
    Store,
    Stored,
    StoreSpec,
)
from mergelake.store.open import open_store

__all__ = [
    "Buffer",
    "Counters",
    "Lost",
    "ObjectMeta",
    "OutcomeUnknown",
    "PutOutcome",
    "Store",
    "StoreSpec",
    "Stored",
    "open_store",
]
