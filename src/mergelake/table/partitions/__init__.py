"""Parts and partitions as a whole: detach, attach, freeze, clone, move between tables, roll back, undrop."""
