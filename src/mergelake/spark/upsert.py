"""Public path of `mergelake.api.python.merge_into`."""

from mergelake.api.python.merge_into import merge_into as merge_into
