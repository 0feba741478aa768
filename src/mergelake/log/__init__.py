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
`commit`        append by create-if-absent, follow the tail, open from a checkpoint, AS OF
`catalog`       databases and table names as a second, small state machine
==============  ==========================================================================
"""
