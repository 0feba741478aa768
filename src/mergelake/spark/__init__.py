"""The one door to PySpark: sessions, tasks, scans, writes, merges, and the data source `mergelake`.

Spark carries bytes; it decides nothing. What to read, write or merge is a value made by the rooms below, a task
runs their plain functions on it, and the caller commits what comes back.
"""
