"""An open table: its directory and log, and the snapshots that readers see."""
