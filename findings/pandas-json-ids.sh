#!/usr/bin/env bash
# pandas 3.1.1: read_json, also with lines=True, turns a column of texts into numbers if all of them
# look like numbers. Ids lose leading zeros ("007" is 7), and large ones become equal.
#
# Remedy: dtype={"entity": str}, or dtype=False. Texts inside nested objects stay. Seen 2026-11-29
# with the package of PyPI.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check pandas==3.1.1
cd "$dir"
printf '{"entity":"%s","doc":{"zip":"0150"}}\n' 007 7 >short.jsonl
printf '{"entity":"%s"}\n' 18446744073709551615 18446744073709551614 >long.jsonl
"$dir/venv/bin/python" - <<'PYTHON'
import pandas

short, long, kept = (pandas.read_json(f"{n}.jsonl", lines=True, **o) for n, o in [("short", {}), ("long", {}), ("short", {"dtype": {"entity": str}})])
for what, got, seen in [
    ("entities 007 and 7", short.values.tolist(), [[7, {"zip": "0150"}], [7, {"zip": "0150"}]]),
    ("distinct of two long ids", long["entity"].nunique(), 1),
    ("with dtype", kept["entity"].tolist(), ["007", "7"]),
]:
    print(f"{what}: {got!r}")
    assert got == seen, seen
PYTHON
