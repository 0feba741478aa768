"""PySpark, which only this room imports: sessions, tasks, scans, writes, merges, and the data source `mergelake`.

Spark makes no decisions: what to read, write or merge is a value from the wings below, a task calls their plain
functions on it, and the caller commits the results.
"""
