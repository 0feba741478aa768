"""Writing a part: from rows in memory, column by column, by copying files, or assembled from slices."""
