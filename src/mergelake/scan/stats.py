"""Public path of `mergelake.scan.read.stats`."""

from mergelake.scan.read.stats import ScanStats as ScanStats
