#!/usr/bin/env python3
"""Check vectors.json against canonicaltree/structural-hash.md, without any of the Go code.

    verify.py [vectors.json]          check, exit 1 if anything differs
    verify.py --write [vectors.json]  fill in encodings and digests

Only the standard library is used. The json module reads the documents; its
leniencies (NaN, duplicate names, lone surrogates) are closed here.
"""

import hashlib
import json
import pathlib
import re
import sys

SCHEME = 1
DEPTH = 512
sys.setrecursionlimit(10 * DEPTH)  # encode takes two levels for each


class Literal(str):
    """A number as it is written."""


def members(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("duplicate name")
    return dict(pairs)


def constant(word):
    raise ValueError(word)


def parse(document: bytes):
    return json.loads(
        document.decode("utf-8"),  # strict; a byte-order mark stays and is refused
        parse_int=Literal,
        parse_float=Literal,
        parse_constant=constant,
        object_pairs_hook=members,
    )


def normal(literal: str) -> str:
    sign, whole, fraction, exponent = re.fullmatch(
        r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", literal
    ).groups("")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    short = digits.rstrip("0")
    power = int(exponent or 0) - len(fraction) + len(digits) - len(short)
    return sign + short + (f"e{power}" if power else "")


def head(major: int, n: int) -> bytes:
    if n < 24:
        return bytes([major << 5 | n])
    for code, width in (24, 1), (25, 2), (26, 4):
        if n < 1 << 8 * width:
            return bytes([major << 5 | code]) + n.to_bytes(width, "big")
    raise ValueError("too large")


def text(s: str) -> bytes:
    content = s.encode("utf-8")  # refuses lone surrogates
    return head(3, len(content)) + content


def encode(value, numbers: str, depth: int = 0) -> bytes:
    if isinstance(value, (list, dict)) and depth == DEPTH:
        raise ValueError("too deep")
    if value is None:
        return b"\xf6"
    if value is False:
        return b"\xf4"
    if value is True:
        return b"\xf5"
    if isinstance(value, Literal):
        content = (normal(value) if numbers == "decimal" else value).encode("ascii")
        return head(2, len(content)) + content
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(encode(v, numbers, depth + 1) for v in value)
    ordered = sorted(value.items(), key=lambda member: member[0].encode("utf-8"))
    return head(5, len(value)) + b"".join(
        text(name) + encode(v, numbers, depth + 1) for name, v in ordered
    )


def document(row) -> bytes:
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    return row["document"].encode("utf-8")


def main(arguments):
    write = arguments[:1] == ["--write"]
    files = arguments[1:] if write else arguments
    path = pathlib.Path(files[0]) if files else pathlib.Path(__file__).with_name("vectors.json")
    vectors = json.loads(path.read_text("utf-8"))
    if vectors["scheme"] != SCHEME:
        sys.exit(f"scheme {vectors['scheme']}, want {SCHEME}")
    wrong = 0
    for row in vectors["accepted"]:
        for numbers in "literal", "decimal":
            encoding = encode(parse(document(row)), numbers)
            got = {"encoding": encoding.hex(), "digest": hashlib.sha256(encoding).hexdigest()}
            if write:
                row[numbers] = got
            elif row[numbers] != got:
                wrong += 1
                print(f"{row['name']}, {numbers}: got {got}, want {row[numbers]}")
    for row in vectors["refused"]:
        try:
            encode(parse(document(row)), "literal")
        except (ValueError, RecursionError):
            continue
        wrong += 1
        print(f"{row['name']}: accepted, want an error")
    if write:
        path.write_text(json.dumps(vectors, indent=2, ensure_ascii=True) + "\n", "utf-8")
    print(f"{len(vectors['accepted'])} accepted, {len(vectors['refused'])} refused, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
