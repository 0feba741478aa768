"""A table over its log: open it, look at it, put rows into it.

=============  ================================================================================
`handle`       `TableHandle` (store, directory, log) and `Snapshot` (what a reader holds)
`define`       is this schema a table that we can keep? Coded errors before anything is written
`blocks`       cut a stream of batches into blocks; complete them with defaults
`insert`       blocks -> parts in the store, and parts -> one log entry
`throttle`     slower inserts, then none, where merges do not keep up
`catalog`      names of databases and tables
`clone`        another table over the same objects
`gc_notes`     what a collector has written down, for all who list a table
=============  ================================================================================
"""
