"""The order of rows, below tables: keys, sorting, merging of sorted runs, and what engines make of rows with equal
keys.

=================  ============================================================================
`keys`             partition and sorting keys as columns of a block
`normalized_keys`  sorting keys as whole numbers that compare as the keys do
`sorting`          the order of rows, exactly ClickHouse's
`merging`          sorted runs -> one order
`replacing`        which rows of a key a ReplacingMergeTree keeps
=================  ============================================================================
"""
