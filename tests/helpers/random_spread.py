"""Random SELECTs of the forms that are spread over tasks; each has one answer, in whatever order rows come."""

from __future__ import annotations

import random

from tests.helpers.random_selects import Selects

_JOINS = (
    "INNER JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "RIGHT JOIN", "RIGHT SEMI JOIN", "RIGHT ANTI JOIN",
    "FULL JOIN", "ALL INNER JOIN", "GLOBAL LEFT JOIN",
)  # fmt: skip


_BY_ALL = "SETTINGS optimize_redundant_functions_in_order_by = 0"
"""Subtotals are ordered by a key that is a function of another, too, which is not so by default."""
_TWICE = (
    "WITH c AS (SELECT k % 10 AS d, count() AS n FROM e GROUP BY d) SELECT a.d, a.n, b.n FROM c AS a "
    "INNER JOIN c AS b ON a.d = b.d + 1 ORDER BY ALL"
)
_ASOF = (
    "SELECT l.k, l.t, x.k FROM e AS l ASOF LEFT JOIN (SELECT k, max(ver) AS ver FROM r GROUP BY k) AS x "
    "ON l.p = x.ver AND l.k >= x.k"
)


class SpreadSelects(Selects):
    """Draws statements; those of `Selects`, and others."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._forms = (
            super().statement, self.limit_by, self.distinct, self.subtotals, self.over_groups, self.in_subquery,
            self.scalar, self.ctes, self.set_operation, self.joins, self.nested, self.aliased, self.ordered,
            self.window, self.compared, self.constants,
        )  # fmt: skip

    def statement(self) -> str:
        """One SELECT."""
        return self.rng.choice(self._forms)()

    def _where(self, table: str, alias: str = "") -> str:
        return self.where(table, alias).replace("PREWHERE", "WHERE")

    def _and(self, table: str, alias: str = "") -> str:
        found = self._where(table, alias)
        return f"AND ({found.removeprefix('WHERE ')})" if found else ""

    def limit_by(self) -> str:
        """LIMIT n BY, with an offset and a LIMIT at times."""
        table = self.table()
        offset = f"{self.rng.randrange(1, 3)}, " if self.rng.random() < 0.3 else ""
        columns = f"{self.value(table)} AS x0, {self.value(table)} AS x1, k"
        by = self.rng.choice(["x0", "x0, x1", "k % 3", "x1"])
        return (
            f"SELECT {columns} FROM {self.source(table)} {self._where(table)} ORDER BY k, x0, x1 "
            f"LIMIT {offset}{self.rng.randrange(1, 4)} BY {by}{self.limit()}"
        )

    def distinct(self) -> str:
        """DISTINCT, ordered and limited."""
        table = self.table()
        first, second = self.value(table), self.value(table)
        order = self.rng.choice(["x0, x1", "x0 DESC, x1", "2, 1", "ALL", "toString(x0), toString(x1), x0, x1"])
        return (
            f"SELECT DISTINCT {first} AS x0, {second} AS x1 FROM {self.source(table)} {self._where(table)} "
            f"ORDER BY {order}{self.limit()}"
        )

    def subtotals(self) -> str:
        """ROLLUP, CUBE, GROUPING SETS, totals."""
        table = self.table()
        keys = [self.value(table), f"{self.value(table)}"]
        form = self.rng.choice(
            [
                "GROUP BY {0}, {1} WITH ROLLUP", "GROUP BY {0}, {1} WITH CUBE", "GROUP BY ROLLUP({0}, {1})",
                "GROUP BY CUBE({0}, {1})", "GROUP BY GROUPING SETS (({0}, {1}), ({1}), ())",
                "GROUP BY {0}, {1} WITH TOTALS",
                "GROUP BY GROUPING SETS (({0}), ({1}))", "GROUP BY ALL", "GROUP BY 1, 2",
            ]
        ).format("g", "h")  # fmt: skip
        aggregates = f"{self.aggregate(table)}, {self.aggregate(table)}"
        rows = f"{self.source(table)} {self._where(table)}"
        return f"SELECT {keys[0]} AS g, {keys[1]} AS h, {aggregates} FROM {rows} {form} ORDER BY ALL {_BY_ALL}"

    def aggregate(self, table: str) -> str:
        """One aggregate."""
        found = self.rng.choice(
            [
                "count()", "min({})", "max({})", "uniqExact({})", "countIf({} IS NULL)",
                "arraySort(groupUniqArray({}))", "count(DISTINCT {})", "sum(k)", "avg(k)", "uniq({})",
                "max(k) - min(k)",
                "count() FILTER (WHERE k % 2 = 0)", "round(sum(k) / count(), 3)", "argMax(k, k)", "toString(count())",
                "quantileExact(0.5)(k)", "sumIf(k, k % 3 = 1)",
            ]
        )  # fmt: skip
        return found.format(self.value(table))

    def over_groups(self) -> str:
        """Windows, HAVING and limits over groups."""
        table = self.table()
        tail = self.rng.choice(
            [
                "",
                "HAVING c > 1",
                "HAVING count() BETWEEN 2 AND 40",
                "QUALIFY n < 4",
                "WINDOW w AS (ORDER BY toString(g))",
            ]
        )
        window = "row_number() OVER (ORDER BY c DESC, toString(g))"
        if tail.startswith("WINDOW"):
            window = self.rng.choice(["sum(count()) OVER w", "max(sum(k)) OVER w"])
        return (
            f"SELECT {self.value(table)} AS g, count() AS c, {window} AS n FROM {self.source(table)} "
            f"{self._where(table)} GROUP BY g {tail} ORDER BY ALL{self.limit()}"
        )

    def in_subquery(self) -> str:
        """IN and NOT IN over subqueries, plain and grouped, and over tables of tuples."""
        left, right = self.table(), self.table()
        word = self.rng.choice(["IN", "NOT IN", "GLOBAL IN"])
        inside = self.rng.choice(
            [
                f"SELECT k FROM {self.source(right)} {self._where(right)}",
                f"SELECT max(k) FROM {right} GROUP BY k % 13",
                f"SELECT k FROM {right} {self._where(right)} UNION ALL SELECT k + 1 FROM {left}",
                f"SELECT k FROM {right} WHERE k IN (SELECT k FROM r WHERE ver > 1)",
                "SELECT number * 3 FROM numbers(200)",
            ]
        )
        rest = self.rng.choice(
            ["SELECT {} AS g, count() FROM {} WHERE {} {} GROUP BY g", "SELECT {} AS g, k FROM {} WHERE {} {}"]
        )
        return rest.format(self.value(left), left, f"k {word} ({inside})", self._and(left)) + " ORDER BY ALL"

    def scalar(self) -> str:
        """Scalar subqueries in every clause."""
        table, other = self.table(), self.table()
        one = self.rng.choice(["max(k)", "count()", "intDiv(sum(k), 100)", "min(k)"])
        value = f"(SELECT {one} FROM {self.source(other)} {self._where(other)})"
        form = self.rng.choice(
            [
                "SELECT {v} AS g, count() FROM {t} WHERE k < {s} {a} GROUP BY g ORDER BY ALL",
                "SELECT {v} AS g, count() + {s} AS p FROM {t} {w} GROUP BY g ORDER BY ALL",
                "SELECT k, {v} AS g, k - {s} AS d FROM {t} {w} ORDER BY ALL",
                "SELECT {v} AS g, max(k) FROM {t} {w} GROUP BY g HAVING max(k) < {s} ORDER BY ALL",
                "WITH {s} AS m SELECT {v} AS g, count(), m FROM {t} {w} GROUP BY g ORDER BY ALL",
                "WITH {s} AS m SELECT k, m - k AS d FROM {t} WHERE k < m {a} ORDER BY ALL",
                "SELECT {s} AS a, {s} + 1 AS b",
                "SELECT count(), exists(SELECT 1 FROM r WHERE k > 190) AS x, {s} AS y FROM {t} {w}",
            ]
        )
        return form.format(v=self.value(table), t=table, s=value, w=self._where(table), a=self._and(table))

    def ctes(self) -> str:
        """CTEs, named once and more often, of each other."""
        inner, group = self.plain(alias=True), self.grouped()
        return self.rng.choice(
            [
                f"WITH c AS ({inner}) SELECT x0, count(), uniqExact(x1) FROM c GROUP BY x0 ORDER BY ALL",
                f"WITH c AS ({group}) SELECT g, (SELECT count() FROM c) AS n FROM c ORDER BY ALL",
                f"WITH c AS ({group}), d AS (SELECT count() AS n FROM c) SELECT c.g, n FROM c, d ORDER BY ALL",
                f"WITH 3 AS three, c AS ({inner}) SELECT x0, x1, three FROM c WHERE toString(x0) != '7' ORDER BY ALL",
                "WITH c AS (SELECT k FROM r WHERE ver > 1) SELECT count(), max(k) FROM e WHERE k IN c OR k + 1 IN c",
                _TWICE,
                "WITH k % 7 AS seven SELECT seven, count() FROM e WHERE seven > 2 GROUP BY seven ORDER BY ALL",
            ]
        )

    def set_operation(self) -> str:
        """UNION, INTERSECT, EXCEPT, on top and in a FROM."""
        word = self.rng.choice(
            ["UNION ALL", "UNION DISTINCT", "INTERSECT", "EXCEPT", "INTERSECT DISTINCT", "EXCEPT DISTINCT"]
        )
        together = f"{self.body()} {word} {self.body()}"
        return self.rng.choice(
            [
                f"SELECT a, b FROM ({together}) ORDER BY ALL{self.limit()}",
                f"SELECT count(), max(a) FROM ({together})",
                f"SELECT a, count() FROM (({self.body()}) {word} ({self.body()})) AS q GROUP BY a ORDER BY ALL",
            ]
        )

    def joins(self) -> str:
        """Joins of two and three tables and of subqueries, with conditions on either side."""
        left, right, kind = self.table(), self.table(), self.rng.choice(_JOINS)
        both, third = f"{left} AS l {kind} {right} AS x", self.rng.choice(["LEFT", "INNER", "RIGHT"])
        grouped = f"(SELECT k, count() AS n FROM {right} GROUP BY k) AS x USING k"
        fourths = f"(SELECT DISTINCT k % 4 AS q FROM {right}) AS x WHERE l.k % 4 = x.q {self._and(left, 'l')}"
        of_three = f"{left} AS l INNER JOIN {right} AS x ON l.k = x.k {third} JOIN r ON x.k = r.k"
        # Which of several rows a SEMI JOIN takes is left open.
        left_where, right_where = ("", "") if "SEMI" in kind else (self._where(left, "l"), self._where(right, "x"))
        mine = self.rng.choice(
            [
                f"SELECT l.k, x.k, count() FROM {both} ON l.k = x.k {left_where} GROUP BY ALL",
                f"SELECT l.k AS a, x.k AS b FROM {both} ON l.k = x.k + 1 {right_where}",
                f"SELECT l.k % 5 AS m, sum(x.n), count() FROM {left} AS l {kind} {grouped} GROUP BY m",
                f"SELECT l.k % 9 AS m, count() FROM {left} AS l, {fourths} GROUP BY m",
                f"SELECT l.k % 6 AS m, count(), max(r.ver) FROM {of_three} GROUP BY m",
                f"SELECT DISTINCT x.k FROM {both} ON l.k = x.k",
                _ASOF,
            ]
        )
        return f"{mine} ORDER BY ALL{self.limit()}"

    def nested(self) -> str:
        """Subqueries that filter and project, group, order, limit."""
        table = self.table()
        inner = f"SELECT k AS a, {self.value(table)} AS b FROM {self.source(table)} {self._where(table)}"
        counted = f"SELECT a % 3 AS g, b, count() AS n FROM ({inner}) GROUP BY g, b"
        return self.rng.choice(
            [
                f"SELECT a % 10 AS g, count(), uniqExact(b) FROM ({inner}) GROUP BY g ORDER BY ALL",
                f"SELECT a, b FROM ({inner}) AS q WHERE q.a % 2 = 0 ORDER BY a, b{self.limit()}",
                f"SELECT g, max(n) FROM ({counted}) GROUP BY g ORDER BY ALL",
                f"SELECT count(), sum(a) FROM (SELECT a, b FROM ({inner}) ORDER BY a, b LIMIT 20)",
                f"SELECT * FROM (SELECT * FROM ({inner})) ORDER BY ALL",
                f"SELECT x.a, r.ver FROM ({inner}) AS x INNER JOIN r ON x.a = r.k ORDER BY ALL",
            ]
        )

    def aliased(self) -> str:
        """Aliases that other clauses use."""
        table = self.table()
        return (
            f"SELECT {self.value(table)} AS g, k % 4 AS m, m + 1 AS o, count() AS c, sum(m) AS s FROM {table} "
            f"WHERE m > 0 {self._and(table)} GROUP BY g, m HAVING c > 1 OR s > 2 ORDER BY ALL"
        )

    def ordered(self) -> str:
        """Ordered by what the SELECT list does not have, in either direction."""
        table = self.table()
        order = self.rng.choice(
            [
                "k DESC, x0 DESC",
                "k % 10, k, x0",
                "intDiv(k, 7) DESC NULLS LAST, k, 1, x0",
                "toString(k) COLLATE 'en', x0",
            ]
        )
        star = "k, " if self.rng.random() < 0.5 else ""
        rows = f"{self.source(table)} {self._where(table)}"
        return f"SELECT {star}{self.value(table)} AS x0 FROM {rows} ORDER BY {order}{self.limit()}"

    def window(self) -> str:
        """Windows by partition and over all rows."""
        table = self.table()
        over = self.rng.choice(
            ["PARTITION BY k % 5", f"PARTITION BY {self.value(table)}", "PARTITION BY k % 3, k % 5", ""]
        )
        call = self.rng.choice(
            [
                f"count() OVER ({over})", f"max(k) OVER ({over} ORDER BY k)",
                f"dense_rank() OVER ({over} ORDER BY k DESC)",
                f"uniqExact(k) OVER ({over} ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
            ]
        )  # fmt: skip
        rows = f"{self.source(table)} {self._where(table)}"
        return self.rng.choice(
            [
                f"SELECT k, {self.value(table)} AS x0, {call} AS w FROM {rows} ORDER BY ALL",
                f"SELECT k, x FROM (SELECT k, {call} AS x FROM {rows}) WHERE k % 2 = 1 ORDER BY ALL",
                f"SELECT DISTINCT k, {call} AS w FROM {rows} QUALIFY w > 1 ORDER BY ALL{self.limit()}",
            ]
        )

    def compared(self) -> str:
        """Groups of a subquery compared with groups of another."""
        left, right = self.table(), self.table()
        one = f"SELECT k % 12 AS g, count() AS n FROM {left} {self._where(left)} GROUP BY g"
        two = f"SELECT k % 12 AS g, max(k) AS n FROM {self.source(right)} {self._where(right)} GROUP BY g"
        kind = self.rng.choice(["INNER", "LEFT", "FULL"])
        return f"SELECT g, a.n, b.n FROM ({one}) AS a {kind} JOIN ({two}) AS b USING g ORDER BY ALL{self.limit()}"

    def constants(self) -> str:
        """Constants as columns and keys, arrays, ARRAY JOIN."""
        return self.rng.choice(
            [
                f"SELECT 1 AS one, 'x' AS x, count() FROM e {self._where('e')} GROUP BY one, x ORDER BY ALL",
                f"SELECT k, y, 5 AS five FROM e ARRAY JOIN a AS y {self._where('e')} ORDER BY ALL{self.limit()}",
                f"SELECT y, count() FROM e LEFT ARRAY JOIN a AS y {self._where('e')} GROUP BY y ORDER BY ALL",
                f"SELECT arrayJoin(a) AS y, k FROM e {self._where('e')} ORDER BY ALL{self.limit()}",
                f"SELECT u, count(), any(1) FROM e {self._where('e')} GROUP BY u ORDER BY u DESC{self.limit()}",
                f"SELECT _partition_id AS p, count() FROM e {self._where('e')} GROUP BY p ORDER BY ALL",
            ]
        )
