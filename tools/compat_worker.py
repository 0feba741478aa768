"""Runs inside one old ClickHouse (a virtual environment that holds nothing but chdb): attach, check, merge, read.

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
    return str(found) if found is not None else ""


def run(job):
    name = job["name"]
    try:
        ask(f"CREATE TABLE compat.{name} ({job['columns']}) ENGINE = MergeTree {job['clauses']}")
    except Exception as failure:
        return {"unknown": str(failure).split("\n")[0][:200]}
    if ask(f"EXISTS TABLE compat.{name}").strip() != "1":
        return {"unknown": "refused"}
    path = ask(f"SELECT data_paths[1] FROM system.tables WHERE database = 'compat' AND name = '{name}'").strip()
    for part, directory in job["parts"].items():
        shutil.copytree(directory, f"{path}/detached/{part}")
        ask(f"ALTER TABLE compat.{name} ATTACH PART '{part}'")
    answer = {"rows": ask(f"SELECT count() FROM compat.{name}").strip()}
    answer["before"] = state(name, job)
    ask(f"OPTIMIZE TABLE compat.{name} FINAL")
    answer["after"] = state(name, job)
    parts = f"SELECT count(), uniqExact(partition) FROM system.parts WHERE active AND database = 'compat' AND table = '{name}'"
    answer["parts"], answer["partitions"] = ask(parts).split()
    ask(f"DROP TABLE compat.{name} SYNC")
    return answer


def state(name, job):
    check = ask(f"CHECK TABLE compat.{name} SETTINGS check_query_single_value_result = 1").strip()
    text = ask(f"SELECT * FROM compat.{name} ORDER BY k")
    return {
        "check": check.split("\t")[0],
        "text": hashlib.md5(text.encode("utf-8", "surrogateescape")).hexdigest(),
        "range": ask(f"SELECT count(), sum(k) FROM compat.{name} WHERE {job['where']}").split(),
    }


def main():
    jobs, answers = sys.argv[1:]
    ask("CREATE DATABASE compat ENGINE = Atomic")
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
