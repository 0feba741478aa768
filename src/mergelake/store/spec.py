"""Public path of `mergelake.store.interface.protocol`."""

from mergelake.store.interface.protocol import StoreSpec as StoreSpec
