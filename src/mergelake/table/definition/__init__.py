"""ALTER TABLE of a table's definition: commands that make a new schema of a schema, and their commit.

Columns keep their ids, so no data object is written: parts that were written before are read through
(`parts.read.reader`, `scan.read.source`, `jobs.merge.source`).
"""
