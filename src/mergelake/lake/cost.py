"""Public path of `mergelake.api.python.cost`."""

from mergelake.api.python.cost import TableCost as TableCost, Written as Written, table_cost as table_cost
