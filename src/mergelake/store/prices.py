"""Public path of `mergelake.store.metering.prices`."""

from mergelake.store.metering.prices import Prices as Prices
