"""Random sequences of schema changes, moves of partitions and changes of rows, played here and in ClickHouse.

Two tables, `t` and `u`, begin alike. What is drawn depends on the columns that there are then, so a sequence is drawn
while it is played; what is told of one that differs is the plain script, shortened.
"""
