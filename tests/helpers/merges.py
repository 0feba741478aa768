"""Random merges, and a table on one list of rows that executes them in the order of the log."""

from __future__ import annotations

from collections import Counter

from mergelake.log.model.operations import AddParts, Entry

COLUMNS = {"k": "UInt32", "n": "Int64"}
FORMS = (
    {},
    {},
    {"when_matched": {"n": "target.n + source.n"}},
    {"when_matched": "delete", "when_not_matched": "ignore"},
    {"when_matched": "delete"},
    {"when_matched": "ignore"},
    {"delete_if": "source.n % 4 = 0"},
    {"matched_if": "target.n < source.n"},
)


def drawn(rng):
    """A random merge: its form and its source."""
    form = int(rng.integers(len(FORMS)))
    keys = rng.choice(10, int(rng.integers(1, 6)), replace=False).tolist()
    return form, {int(k): int(rng.integers(1, 100)) for k in keys}


def merged(rows, form, source):
    """The rows (key, number) after a merge."""
    out = []
    matched = {k for k, _ in rows} & source.keys()
    replaced = set()
    for k, n in rows:
        if k not in source:
            out.append((k, n))
            continue
        given = source[k]
        if form in (0, 1) or (form == 7 and n < given) or (form == 6 and given % 4):
            replaced.add(k)
        elif form == 2:
            out.append((k, n + given))
        elif form in (5, 7):
            out.append((k, n))
    new = source.keys() - matched if form != 3 else set()
    return out + [(k, source[k]) for k in replaced | {k for k in new if form != 6 or source[k] % 4}]


def merge(table, name, form, source):
    data = {"k": list(source), "n": list(source.values())}
    return table.merge(data, on="k", dedup_token=name, **FORMS[form])


def tokens_in(table):
    """The tokens of all merges in the order of the log."""
    table.refresh()
    entries: list[Entry] = list(table.handle.log.entries())
    return [op.dedup_token for entry in entries for op in entry.ops if isinstance(op, AddParts) and op.dedup_token]


def replayed(table, merges):
    rows = []
    for name in tokens_in(table):
        if name in merges:
            rows = merged(rows, *merges[name])
    return Counter(rows)
