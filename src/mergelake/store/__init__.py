"""Objects in a directory, in memory or in a bucket: `open_store(url)` gives a `Store`.

Nouns: a *key* names an object; a *spec* (`StoreSpec`) is what another process needs to open the same store;
`create` is the only conditional operation, with three outcomes (`Stored | Lost | Unknown`), and all of the
engine's safety rests on it. This room is the only door to obstore.
"""

from mergelake.store.open import open_store
from mergelake.store.protocol import (
    Buffer,
    Counters,
    Lost,
    ObjectMeta,
    PutOutcome,
    Store,
    Stored,
    Unknown,
)
from mergelake.store.spec import StoreSpec

__all__ = [
    "Buffer",
    "Counters",
    "Lost",
    "ObjectMeta",
    "PutOutcome",
    "Store",
    "StoreSpec",
    "Stored",
    "Unknown",
    "open_store",
]
