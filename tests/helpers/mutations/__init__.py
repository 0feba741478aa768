"""Random sequences of inserts, mutations, merges and reads, played here and in ClickHouse.

`tables` draws a table, `expressions` what is assigned and compared, `sequences` the statements and the reads after
each, `sides` runs statements on either side, `play` runs a sequence on both, compares, and shrinks one that differs.
`doors` are other processes that read and write the same table.
"""
