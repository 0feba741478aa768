"""Appending: groups, contention, lost replies, members for other writers, transactions that are prepared."""
