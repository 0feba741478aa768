"""Found by Spark through its name: makes `format("mergelake")` known to every session without registering."""

from mergelake.spark.datasource import MergelakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
