"""Reading tables: select marks of parts by their indexes, then read and filter their rows.

- `request` is the query, `plan` selects parts and marks for it, `read` executes the plan, `explain` prints it.
- `analyze` turns a predicate into a `condition` on a key, `hyperrectangles` evaluates it on ranges of keys, `prune`
  selects marks; `skip` applies skip indexes.
- `prewhere` orders conditions, `filter` evaluates them, `source` gives a part the columns of the table's schema.
- `layers` reads by ranges of keys over all parts: SELECT … FINAL and ordered reads. `ahead` reads far stores.

::

    plan = plan_scan(store, directory, snapshot, ScanRequest(("ts", "level"), where="ts >= '2026-01-01'"), caches)
    for batch in read_items(store, directory, plan, caches=caches): ...
"""
