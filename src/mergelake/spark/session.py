"""Public path of `mergelake.api.spark.session`."""

from mergelake.api.spark.session import session as session
