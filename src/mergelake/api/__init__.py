"""What users touch: Python objects, SQL statements, Spark and the command line.

One process opens a warehouse by `connect`; all doors call the same functions. The HTTP server (`server`) will stand
beside the command line.
"""
