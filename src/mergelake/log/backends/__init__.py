"""Where entries are ordered: the bucket or ZooKeeper; the intake of members, sealing and batches."""
