"""What the engine of a table does with rows of equal keys, in merges, FINAL and inserts.

==================  ===================================================================================
`modes`, `mode`     the engine of a table -> its rule; the type of a rule
`replacing`, …      ReplacingMergeTree; also `collapsing`, `coalescing`, `summing`, `aggregating`
`aggregates`        the functions of AggregatingMergeTree; `sums` and `maps` those of SummingMergeTree
`states`            aggregate states, merged here or by functions that are passed in
`combining`         values of several rows as one, in memory and in pieces
==================  ===================================================================================
"""
