"""The other files of a part: marks, checksums, columns.txt, partition and minmax files, ttl.txt, its profile."""
