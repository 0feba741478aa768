"""The log is the truth: one dense, totally ordered sequence of entries per table (and one for the catalog).

==============  ==========================================================================
`operations`    what an entry may say: closed sum of frozen dataclasses, and `Entry`
`encoding`      entries to JSON and back; newer formats are refused, never guessed
`state`         what the entries add up to: parts, schemas, counters, windows, floors
`volatile`      Live volatile parts among the active ones: who covers whom, what is pending; pure
`fold`          entries -> state; pure; block numbers are given here, by position
`conflict`      the precondition of each operation on the state just before it; pure
`machine`       those four as one value, so that tables and the catalog share the code below
`checkpoint`    a state as one columnar object
`tail`          reading: entries, checkpoints, the newest state
`sequencer`     who gives out positions; `moving`: handing a log over
`backend`       what a log asks of that place, and the bucket as one; `backends`: from an sequencer to its backend
`backend_…`     ZooKeeper as another; `sealing`: its entries on their way to the bucket; `keeper`: the door to kazoo
`commit`        append by create-if-absent, follow the tail, open from a checkpoint, AS OF
`group`         several callers' commits in one entry; `turns`: writers of several processes
`sending`       passing commits on to a leader; `leader`: taking those of others; `passing`: what is said between them
`recent`        the newest entries of a log, and the attempts in them: what a leader has to know
`trust`         how long the head is believed; `truncate`: cutting the beginning off
`verify`        is a log whole?
`words`         operations in words
`catalog`       databases and table names as a second, small state machine
==============  ==========================================================================
"""
