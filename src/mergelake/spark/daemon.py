"""PySpark's worker daemon with the engine already imported: workers fork from it in milliseconds.

Only imports happen here. No object-store client may be made before the fork (obstore's runtime does not
survive one), and none is: clients are made per process, on first use.
"""

from __future__ import annotations

import numpy  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import mergelake.scan.read
import mergelake.table.insert  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
