"""Public path of `mergelake.api.python.seal`."""

from mergelake.api.python.seal import seal_logs as seal_logs
