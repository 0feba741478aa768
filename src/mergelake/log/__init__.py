"""The log: one dense, totally ordered sequence of entries per table, and one for the catalog. All state is its fold.

==============  ==========================================================================
`operations`    the operations of an entry: a closed sum of frozen dataclasses, and `Entry`
`encoding`      entries to JSON and back; newer formats are refused
`state`         the result of folding entries: parts, schemas, counters, windows, floors
`volatile`      Live volatile parts among the active ones: which covers which, what is pending; pure
`fold`          entries -> state; pure; block numbers are assigned here, by position
`conflict`      the precondition of each operation on the state just before it; pure
`machine`       those four as one value, so that tables and the catalog share the code below
`checkpoint`    a state as one columnar object
`tail`          reading: entries, checkpoints, the newest state
`sequencer`     which system assigns positions; `migrate`: moving a log to another one
`backend`       the protocol of that system, and the bucket as one; `backends`: from a sequencer to its backend
`backend_…`     ZooKeeper as another; `sealing`: copying its entries to the bucket; `keeper`: the only user of kazoo
`commit`        append by create-if-absent, follow the tail, open from a checkpoint, AS OF
`group`         several callers' commits in one entry; `contention`: writers of several processes
`sending`       passing commits on to a leader; `leader`: taking those of others; `passing`: their messages
`recent`        the newest entries of a log, and the attempts in them, for a leader
`head_freshness`  how long knowledge of the head is believed; `truncate`: cutting off the beginning
`verify`        checks a whole log
`describe`      operations in words
`catalog`       databases and table names as a second, small state machine
==============  ==========================================================================
"""
