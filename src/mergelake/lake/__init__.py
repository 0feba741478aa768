"""Public paths of what `mergelake.api.python` has: `work`, `cost`, `seal`."""
