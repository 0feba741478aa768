"""Spark sessions with the settings that this engine relies on.

The default master is `local[*]`; a cluster is a master URL. A session of the caller is used unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mergelake.api.spark.java import archive_option, java_binary
from mergelake.core.base.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",  # ClickHouse wraps and yields inf where ANSI Spark raises
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # Spark estimates a scan by the tiny size of its spark.range
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
}
"""Configuration of the sessions that `session` makes."""


def session(master: str | None = None, *, config: Mapping[str, str] | None = None) -> SparkSession:
    """The active Spark session, or a new one on `master` (default: `$SPARK_MASTER_URL`, else `local[*]`).

    Raises UnavailableError if PySpark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise UnavailableError("PySpark is not installed", hint="pip install 'mergelake[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None and master is None and not config:
        return active
    java_binary()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or os.environ.get("SPARK_MASTER_URL") or "local[*]"
    builder = SparkSession.builder.master(master).appName("mergelake")
    for name, value in {**CONFIG, "spark.driver.memory": "2g", **(config or {})}.items():
        builder = builder.config(name, value)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    if not (config and "spark.driver.extraJavaOptions" in config):
        quiet = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
        builder = builder.config("spark.driver.extraJavaOptions", f"{quiet} {archive_option()}")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
