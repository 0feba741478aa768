"""MERGE: rows of a source replace, change or delete those of a table with the same keys, and are added; one commit.

One entry of the log holds a lightweight DELETE of keys, then the new parts: operations of an entry get block numbers in
order, so the delete concerns the rows before it and not the parts after it. `request` says what is wanted, `keys` makes
the condition of a delete, `pairs` computes new rows, `execute` reads, writes and commits.
"""
