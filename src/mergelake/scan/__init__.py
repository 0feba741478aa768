"""Reading tables: which marks of which parts, and then the rows that pass.

- `request`: what is asked; `plan`: what has to be read for it; `read`: reading it; `explain`: the plan in words.
- `analyze` turns a predicate into a `condition` on a key, `boxes` judges it for ranges of keys, `prune` picks marks.
- `prewhere` orders conditions, `filter` runs them, `source` gives a part the columns that the table has now.
- `final` is SELECT … FINAL.

::

    plan = plan_scan(store, directory, snapshot, ScanRequest(("ts", "level"), where="ts >= '2026-01-01'"), caches)
    for batch in read_items(store, directory, plan, caches=caches): ...
"""

from mergelake.scan.explain import explain_text
from mergelake.scan.plan import IndexStep, ScanItem, ScanPlan, plan_scan
from mergelake.scan.read import batch_schema, read_items
from mergelake.scan.request import VIRTUAL_COLUMNS, ScanRequest
from mergelake.scan.stats import ScanStats

__all__ = [
    "VIRTUAL_COLUMNS",
    "IndexStep",
    "ScanItem",
    "ScanPlan",
    "ScanRequest",
    "ScanStats",
    "batch_schema",
    "explain_text",
    "plan_scan",
    "read_items",
]
