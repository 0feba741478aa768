"""A table over its log: open it, read its state, insert rows.

=============  ================================================================================
`handle`       `TableHandle` (store, directory, log) and `Snapshot` (the view of a reader)
`define`       checks the schema of a new table before anything is written
`blocks`       cut a stream of batches into blocks; complete them with defaults
`insert`       blocks -> parts in the store, and parts -> one log entry
`throttle`     delays inserts, then refuses them, if merges do not keep up
`catalog`      names of databases and tables
`clone`        another table over the same objects
`gc_notes`     the notes of collectors
=============  ================================================================================
"""
