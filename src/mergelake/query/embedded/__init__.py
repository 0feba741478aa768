"""The embedded ClickHouse: statements, results as they come, values in and out."""
