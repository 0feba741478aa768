"""Inserts: blocks -> parts in the store, parts -> one entry of the log; deduplication, back-pressure."""
