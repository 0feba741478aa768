"""Requests and bytes of each operation, counted wherever its threads send them; prices."""
