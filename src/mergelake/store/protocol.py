"""Public path of `mergelake.store.interface.protocol`."""

from mergelake.store.interface.protocol import (
    Buffer as Buffer,
    Counters as Counters,
    Lost as Lost,
    ObjectMeta as ObjectMeta,
    OutcomeUnknown as OutcomeUnknown,
    PutOutcome as PutOutcome,
    Store as Store,
    Stored as Stored,
)
