"""Runs inside one old ClickHouse (a virtual environment that holds nothing but chdb): attach, check, merge, read.

    python compat_worker.py families                     # the types that it knows
    python compat_worker.py jobs.json answers.json

A job is a table and the directories of its parts; the answer is its text before and after OPTIMIZE FINAL, or what went
wrong. Old chdb prints errors instead of raising them, so every step is judged by a question with a known answer.
"""

import hashlib
import json
import shutil
import sys

from chdb import session

S = session.Session()


def ask(sql, form="TabSeparated"):
    found = S.query(sql, form)
    return found.bytes().decode("utf-8", "surrogateescape") if found is not None and found.bytes() else ""


def run(job):
    name = job["name"]
    try:
        ask(f"CREATE TABLE compat.{name} ({job['columns']}) ENGINE = MergeTree {job['clauses']}")
    except Exception as failure:
        return {"unknown": str(failure).split("\n")[0][:200]}
    path = ask(f"SELECT data_paths[1] FROM system.tables WHERE database = 'compat' AND name = '{name}'").strip()
    if not path:
        return {"unknown": "the table was refused"}
    for part, directory in job["parts"].items():
        shutil.copytree(directory, f"{path}/detached/{part}")
        ask(f"ALTER TABLE compat.{name} ATTACH PART '{part}'")
    before = state(name, job)
    ask(f"OPTIMIZE TABLE compat.{name} FINAL")
    after = state(name, job)
    parts, partitions = ask(f"SELECT uniqExact(_part), uniqExact(_partition_id) FROM compat.{name}").split()
    return {"before": before, "after": after, "parts": parts, "partitions": partitions}


def state(name, job):
    """What CHECK TABLE says, rows, a hash of each column's text in the order of k, and a range of the primary key."""
    check = ask(f"CHECK TABLE compat.{name} SETTINGS check_query_single_value_result = 1").strip()
    rows = ask(f"SELECT * FROM compat.{name} ORDER BY k").split("\n")[:-1]
    columns = zip(*(row.split("\t") for row in rows), strict=True)
    return {
        "check": check.split("\t")[0],
        "rows": len(rows),
        "text": [hashlib.md5("\n".join(c).encode("utf-8", "surrogateescape")).hexdigest() for c in columns],
        "range": ask(f"SELECT count(), sum(k) FROM compat.{name} WHERE {job['where']}").split(),
    }


def main():
    if sys.argv[1:] == ["families"]:
        print(json.dumps(ask("SELECT name FROM system.data_type_families").split("\n")))
        return
    jobs, answers = sys.argv[1:]
    ask("CREATE DATABASE compat ENGINE = Atomic")
    for name in ("enable_time_time64_type", "allow_experimental_bfloat16_type"):
        if ask(f"SELECT count() FROM system.settings WHERE name = '{name}'").strip() == "1":
            ask(f"SET {name} = 1")
    out = {"version": ask("SELECT version()").strip(), "answers": {}}
    with open(jobs) as file:
        todo = json.load(file)
    for job in todo:
        try:
            out["answers"][job["name"]] = run(job)
        except Exception as failure:
            out["answers"][job["name"]] = {"failure": str(failure).split("\n")[0][:300]}
        with open(answers, "w") as file:
            json.dump(out, file)


main()
