#!/usr/bin/env bash
# DuckDB 2.0.1 reads JSON lines, such as those of a file sink, with other numbers than they hold:
#
# 1. A fraction behind the sample of the first 20,480 rows is rounded to a whole number, without an
#    error: a column whose sampled values are whole is BIGINT.
# 2. Digits beyond a double are lost, also where the column is declared as JSON and the value is
#    cast to DECIMAL.
#
# Remedies: sample_size=-1, or columns={…, doc: 'JSON'}, for 1; numbers as texts, or the text of
# read_json_objects with another parser, for 2. Seen 2026-11-28 with the package of PyPI.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1
cd "$dir"
"$dir/venv/bin/python" - <<'PYTHON'
import duckdb

with open("prices.jsonl", "w") as f:
    for i in range(30000):
        f.write('{"entity":"%d","doc":{"price":%d}}\n' % (i, i))
    f.write('{"entity":"last","doc":{"price":1.5}}\n')
with open("exact.jsonl", "w") as f:
    f.write('{"entity":"1","doc":{"amount":12345678901234567890.123}}\n')


def one(sql):
    return duckdb.sql(sql).fetchall()[0]


declared = "columns={entity: 'VARCHAR', doc: 'JSON'}"
for what, got, seen in [
    ("version", one("select version()"), ("v2.0.1",)),
    ("a fraction behind the sample", one("select doc.price::varchar, typeof(doc.price) from read_json('prices.jsonl') where entity = 'last'"), ("2", "BIGINT")),
    ("with sample_size=-1", one("select doc.price::varchar from read_json('prices.jsonl', sample_size=-1) where entity = 'last'"), ("1.5",)),
    ("with a declared column", one(f"select doc->>'$.price' from read_json('prices.jsonl', {declared}) where entity = 'last'"), ("1.5",)),
    ("a long decimal", one("select doc.amount::varchar, typeof(doc.amount) from read_json('exact.jsonl')"), ("1.2345678901234567e+19", "DOUBLE")),
    ("a long decimal as JSON", one(f"select doc->>'$.amount' from read_json('exact.jsonl', {declared})"), ("12345678901234567000.0",)),
    ("cast to DECIMAL", one("select (json->>'$.doc.amount')::decimal(38, 3)::varchar from read_json_objects('exact.jsonl')"), ("12345678901234567000.000",)),
    ("the text itself", one("select json::varchar from read_json_objects('exact.jsonl')"), ('{"entity":"1","doc":{"amount":12345678901234567890.123}}',)),
]:
    print(f"{what}: {got}")
    assert got == seen, f"{what}: seen {seen}"
PYTHON
