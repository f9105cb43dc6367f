#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what derives from config/options.def: docs/settings.md's tables, the manual page's lists, options.json; and
docs/statistics.md's table, from the descriptions in scripts/schema/stats.schema.json.

usage: gen_options.py [--check | --json]

Without an option the generated parts are rewritten in place. --check writes nothing and exits with status 1
if one of them is stale; --json prints the table that the `cachealloc` command reads.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "config" / "options.def"
PAGE = ROOT / "docs" / "settings.md"
MANUAL = ROOT / "scripts" / "man" / "cachealloc.7"
JSON = ROOT / "scripts" / "options.json"
SCHEMA = ROOT / "scripts" / "schema" / "stats.schema.json"
STATISTICS = ROOT / "docs" / "statistics.md"

MARKERS = {
    PAGE: ("<!-- options:begin -->", "<!-- options:end -->"),
    MANUAL: ('.\\" options:begin', '.\\" options:end'),
    STATISTICS: ("<!-- statistics:begin -->", "<!-- statistics:end -->"),
}
COLUMNS = ("name", "place", "type", "default", "min", "max", "unit", "accepted", "status", "doc")
STATUS = {"BUILT": "built", "LATER": "later", "FOREIGN": "foreign", "OURS": "ours"}
TOKEN = re.compile(r'/\*.*?\*/|"(?:[^"\\]|\\.)*"|[(),]|[^\s"(),/]+|/', re.S)


class TableError(Exception):
    """options.def does not have the form that its head comment describes."""


def tokens(text):
    return [t for t in TOKEN.findall(text) if not t.startswith("/*")]


def cell(words):
    """One cell: adjacent string literals are joined; CA_AT(field) gives its text."""
    if words and words[0].startswith('"'):
        return "".join(json.loads(w) for w in words)
    return "".join(words)


def rows(text):
    """Yields (macro, [cell, ...]) for each row of the table."""
    words = tokens(text)
    at = 0
    while at < len(words):
        macro = words[at]
        if at + 1 == len(words) or words[at + 1] != "(":
            raise TableError(f"expected a row, found {macro!r}")
        cells, current, depth = [], [], 1
        at += 2
        while depth:
            if at == len(words):
                raise TableError(f"{macro}: no closing parenthesis")
            word = words[at]
            depth += (word == "(") - (word == ")")
            if depth == 0 or (depth == 1 and word == ","):
                cells.append(cell(current))
                current = []
            else:
                current.append(word)
            at += 1
        yield macro, cells


def parse(path=TABLE):
    """The options as a list of dictionaries in the order of the file."""
    options = []
    for macro, cells in rows(Path(path).read_text()):
        if macro not in ("CA_VARIABLE", "CA_KEY") or len(cells) != len(COLUMNS):
            raise TableError(f"{macro}({cells[0]}, ...): {len(cells)} columns, expected {len(COLUMNS)}")
        row = dict(zip(COLUMNS, cells))
        options.append({
            "kind": "key" if macro == "CA_KEY" else "variable",
            "name": row["name"] if macro == "CA_KEY" else "CACHEALLOC_" + row["name"],
            "type": row["type"].lower(),
            "status": STATUS[row["status"]],
            "default": row["default"],
            "min": int(row["min"]) if row["max"] != "0" else None,
            "max": int(row["max"]) if row["max"] != "0" else None,
            "unit": row["unit"],
            "accepted": row["accepted"],
            "doc": row["doc"],
        })
    return options


def select(options, kind, status):
    return [o for o in options if o["kind"] == kind and o["status"] == status]


def default_text(option):
    if option["default"] == "":
        return "unset"
    if option["default"].isdigit() and option["unit"]:
        return f"{option['default']} {option['unit']}"
    return option["default"]


def to_json(options):
    document = {"format": "options", "format_version": 1,
                "options": [o for o in options if o["status"] != "ours"]}
    return json.dumps(document, indent=1) + "\n"


def markdown_table(options, head):
    lines = [f"| {head} | accepted | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{o['name']}` | {o['accepted']} | {default_text(o)} | {o['doc']} |" for o in options]
    return "\n".join(lines)


def markdown_names(options):
    return ", ".join(f"`{o['name']}`" for o in options)


def to_markdown(options):
    return "\n\n".join([
        markdown_table(select(options, "variable", "built"), "variable"),
        "Keys of `CACHEALLOC_CONF`:",
        markdown_table(select(options, "key", "built"), "key"),
        "Known, but not in this version (one line each, then ignored; fatal under `CACHEALLOC_STRICT=1`): "
        + "; ".join(part for part in (markdown_names(select(options, "variable", "later")),
                                      "keys " + markdown_names(select(options, "key", "later"))) if part) + ".",
        "PyTorch keys that do not apply here (treated likewise): "
        + markdown_names(select(options, "key", "foreign")) + ".",
    ]) + "\n"


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def roff_wrapped(lines):
    """Text lines of at most 80 bytes, for mandoc -Tlint; none begins like a request."""
    for line in lines:
        while len(line) > 80 and not line.startswith(".") and " " in line[1:80]:
            at = line.rindex(" ", 1, 81)
            while line[at + 1:at + 2] in (".", "'") and " " in line[1:at]:
                at = line.rindex(" ", 1, at)
            yield line[:at]
            line = line[at + 1:]
        yield line


def roff_list(options):
    lines = []
    for o in options:
        lines += [".TP", f".B {roff(o['name'])}", roff(o["doc"]), ".br",
                  roff(f"Accepted: {o['accepted']}. Default: {default_text(o)}.")]
    return lines


def roff_names(options):
    names = [f"\\fB{roff(o['name'])}\\fR" for o in options]
    return [name + "," for name in names[:-1]] + [name + "." for name in names[-1:]]


def to_roff(options):
    lines = [".SH VARIABLES"] + roff_list(select(options, "variable", "built"))
    lines += [".SH KEYS", "Keys of", ".BR CACHEALLOC_CONF :"] + roff_list(select(options, "key", "built"))
    lines += [".SH NOT IN THIS VERSION",
              "These settings are known. Each gives one line and is ignored; under",
              ".B CACHEALLOC_STRICT=1", "that line is fatal."]
    variables = roff_names(select(options, "variable", "later"))
    lines += ["Variables:", *variables] if variables else []
    lines += [".PP", "Keys:"] + roff_names(select(options, "key", "later"))
    lines += [".PP", "Keys of PyTorch that do not apply here, treated in the same way:"]
    lines += roff_names(select(options, "key", "foreign"))
    return "\n".join(roff_wrapped(lines)) + "\n"


def replace_between(text, markers, body):
    """text with what stands between the two marker lines replaced, or None where they are missing."""
    begin, end = (re.escape(m) for m in markers)
    pattern = re.compile(f"(^{begin}\\n).*?(^{end}$)", re.S | re.M)
    if not pattern.search(text):
        return None
    return pattern.sub(lambda m: m.group(1) + body + m.group(2), text, count=1)


def fields_to_markdown():
    """A row for each field of the object, and for each figure of a device."""
    whole = json.loads(SCHEMA.read_text())["properties"]
    tables = [("field", {name: field for name, field in whole.items() if "description" in field and name != "devices"}),
              ("of a device", whole["devices"]["items"]["properties"])]
    return "\n\n".join("\n".join([f"| {title} | meaning |", "|---|---|",
                                  *(f"| `{name}` | {field['description']} |" for name, field in fields.items())])
                       for title, fields in tables) + "\n"


def outputs(options):
    """Yields (path, old text or None, new text or None where the markers are missing)."""
    for path, body in ((PAGE, to_markdown(options)), (MANUAL, to_roff(options)), (STATISTICS, fields_to_markdown())):
        old = path.read_text() if path.exists() else None
        yield path, old, None if old is None else replace_between(old, MARKERS[path], body)
    yield JSON, JSON.read_text() if JSON.exists() else None, to_json(options)


def update(options, check):
    """Writes (or with check only compares) every output. Returns the number of faults, told on stderr."""
    faults = 0
    for path, old, new in outputs(options):
        name = path.relative_to(ROOT)
        if old is None and new is None:
            print(f"gen_options: {name}: no such file, nothing to update", file=sys.stderr)
        elif new is None:
            print(f"gen_options: {name}: lines {' and '.join(MARKERS[path])} are missing", file=sys.stderr)
            faults += 1
        elif old != new and check:
            print(f"gen_options: {name}: stale; run scripts/gen_options.py", file=sys.stderr)
            faults += 1
        elif old != new:
            path.write_text(new)
            print(f"gen_options: {name}: written", file=sys.stderr)
    return faults


def main(argv=None):
    parser = argparse.ArgumentParser(description="Writes what derives from config/options.def.")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="write nothing; exit 1 if an output is stale")
    group.add_argument("--json", action="store_true", help="print the table as JSON")
    arguments = parser.parse_args(argv)
    try:
        options = parse()
    except (TableError, KeyError, ValueError) as error:
        print(f"gen_options: config/options.def: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        sys.stdout.write(to_json(options))
        return 0
    return 1 if update(options, arguments.check) else 0


if __name__ == "__main__":
    sys.exit(main())
