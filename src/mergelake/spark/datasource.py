"""The data source `mergelake`: a thin facade over the same functions as everything else.

::

    spark.read.format("mergelake").load("s3://bucket/warehouse/default.events")
    df.write.format("mergelake").mode("append").save("/data/warehouse/default.events")

Options for reading: `version` or `timestamp_ms` (time travel; else the newest version, fixed when the frame is made),
`columns` (comma-separated: Spark tells a Python source which filters it wants, but not which columns), `where`
(a ClickHouse expression, for what Spark cannot push), `final`. For writing: `dedup_token`. Options that start with `store.`
go to the object store.

What Spark pushes down is applied exactly here and in the part's index; what has another meaning in ClickHouse
(NaN, zones) is left to Spark.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from mergelake.core import types as t
from mergelake.core.errors import error
from mergelake.core.manifest import PartManifest
from mergelake.core.text import back_quote, quote_string
from mergelake.lake import Table, open_table
from mergelake.scan import ScanRequest
from mergelake.scan.plan import ScanItem, ScanPlan
from mergelake.scan.read import read_items
from mergelake.spark.types import spark_schema, to_spark
from mergelake.spark.write import check_columns, write_parts
from mergelake.store import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("mergelake")` known to this session (a no-op where `pyspark_mergelake` is importable)."""
    spark.dataSource.register(MergelakeDataSource)
