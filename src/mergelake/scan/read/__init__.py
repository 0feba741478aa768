"""Plans of reads and their execution: PREWHERE, filters, FINAL in layers, many small parts together."""
