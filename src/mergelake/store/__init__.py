"""Objects in a directory, in memory or in a bucket: `open_store(url)` gives a `Store`.

A *key* names an object; a *spec* (`StoreSpec`) holds all that another process needs to open the same store; `create` is
the only conditional operation, with three outcomes (`Stored | Lost | Unknown`), and the correctness of the engine
depends on it. Only this room imports obstore.
"""

from mergelake.store.objects.open import open_store
from mergelake.store.objects.protocol import (
    Buffer,
    Counters,
    Lost,
    ObjectMeta,
    OutcomeUnknown,
    PutOutcome,
    Store,
    Stored,
)
from mergelake.store.objects.spec import StoreSpec

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
