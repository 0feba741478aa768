"""From a store to a state: the newest entries after a checkpoint, verification, transactions, truncation."""
