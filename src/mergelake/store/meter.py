"""Public path of `mergelake.store.metering.meter`."""

from mergelake.store.metering.meter import Tally as Tally
