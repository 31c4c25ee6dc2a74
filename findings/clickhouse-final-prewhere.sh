#!/usr/bin/env bash
# ClickHouse 26.7: SELECT … FINAL with PREWHERE shows rows that were replaced or deleted. PREWHERE
# filters before FINAL merges the versions of a row, so where the newest version does not match, an
# older one that matches is shown. WHERE filters afterwards.
#
# Remedy: WHERE, which the server moves to PREWHERE only where that is right. Seen 2026-11-28 with
# the engine in chdb-core 26.7.0 of PyPI.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check chdb-core==26.7.0
cd "$dir"
"$dir/venv/bin/python" - <<'PYTHON'
from chdb.session import Session

db = Session("data")
run = lambda sql: str(db.query(sql, "CSV")).strip()
run("CREATE DATABASE fruit")
run("CREATE TABLE fruit.bananas (id String, version UInt64, is_deleted UInt8, state String) "
    "ENGINE = ReplacingMergeTree(version, is_deleted) ORDER BY id")
run("INSERT INTO fruit.bananas VALUES ('a', 1, 0, 'green'), ('b', 1, 0, 'green')")
run("INSERT INTO fruit.bananas VALUES ('a', 2, 0, 'ripe'), ('b', 2, 1, '')")
for what, got, seen in [
    ("version", run("SELECT substring(version(), 1, 5)"), '"26.7."'),
    ("FINAL", run("SELECT id, version, state FROM fruit.bananas FINAL"), '"a",2,"ripe"'),
    ("FINAL WHERE", run("SELECT id, version, state FROM fruit.bananas FINAL WHERE state = 'green'"), ""),
    ("FINAL PREWHERE", run("SELECT id, version, state FROM fruit.bananas FINAL PREWHERE state = 'green' ORDER BY id"), '"a",1,"green"\n"b",1,"green"'),
]:
    print(f"{what}: {got!r}")
    assert got == seen, f"{what}: seen {seen!r}"
PYTHON
