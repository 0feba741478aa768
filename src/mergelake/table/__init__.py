"""A table over its log: open it, look at it, put rows into it.

=============  ================================================================================
`handle`       `TableHandle` (store, directory, log) and `Snapshot` (what a reader holds)
`define`       is this schema a table that we can keep? Coded errors before anything is written
`keys`         partition and sorting keys as columns of a block
`sorting`      the order of rows, exactly ClickHouse's
`blocks`       cut a stream of batches into blocks; complete them with defaults
`insert`       blocks -> parts in the store, and parts -> one log entry
`throttle`     slower inserts, then none, where merges do not keep up
`catalog`      names of databases and tables
=============  ================================================================================
"""
