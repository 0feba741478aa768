"""Reading tables: which marks of which parts, and then the rows that pass.

- `request`: what is asked; `plan`: what has to be read for it; `read`: reading it; `explain`: the plan in words.
- `analyze` turns a predicate into a `condition` on a key, `hyperrectangles` judges it for ranges of keys, `prune` picks
  marks.
- `prewhere` orders conditions, `filter` runs them, `source` gives a part the columns that the table has now.
- `final` is SELECT … FINAL.

::

    plan = plan_scan(store, directory, snapshot, ScanRequest(("ts", "level"), where="ts >= '2026-01-01'"), caches)
    for batch in read_items(store, directory, plan, caches=caches): ...
"""
