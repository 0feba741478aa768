"""The order of rows, below tables: keys, sorting, merging of sorted runs, and engines' rules for rows with equal keys.

=================  ============================================================================
`keys`             partition and sorting keys as columns of a block
`normalized_keys`  sorting keys as whole numbers that compare as the keys do
`sorting`          the order of rows, exactly ClickHouse's
`merging`          sorted runs -> one order
`modes`            what the engine of a table does with rows of equal keys; `mode` is the type of it
`replacing`        ReplacingMergeTree
`collapsing`       CollapsingMergeTree and VersionedCollapsingMergeTree
`coalescing`       CoalescingMergeTree
`summing`          SummingMergeTree; `sums` of groups of rows
`aggregating`      AggregatingMergeTree; `aggregates` are its functions
`states`           aggregate states, merged here or by a function that is passed in
`combining`        values of several rows as one, in memory and in pieces
=================  ============================================================================
"""
