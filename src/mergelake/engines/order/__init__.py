"""The order of rows: keys as columns, sorting exactly as ClickHouse, merging of sorted runs.

==================  =====================================================
`keys`              partition and sorting keys as columns of a block
`normalized_keys`   sorting keys as whole numbers that compare as the keys
`sorting`           the order of rows
`merging`           sorted runs -> one order
==================  =====================================================
"""
