"""The process that takes commits of others and appends them with its own."""
