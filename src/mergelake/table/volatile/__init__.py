"""Volatile parts: their bytes on disks of nodes, records of them, reads through peers."""
