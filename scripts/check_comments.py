#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts sentences of comments that begin with no subject.

A sentence that begins with What, Who, Whoever or Somebody leaves its reader to find the noun. At
most one in 1,000 words of comments is let pass in each folder of allocator/, shim/ and config/ (mimalloc,
jemalloc, RMM, snmalloc and kmod have at most 0.4). Prints those of a folder that has more, and
exits with 1.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_PER_1000 = 1
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
HEAD = re.compile(r"(?:^|[.:;!?]\s+)((?:What|Who|Whoever|Somebody|what|who|whoever|somebody)\b[^.;]*)")


def comments(text):
    """Each comment of a C file as one line of words."""
    for match in COMMENT.finditer(text):
        lines = (re.sub(r"^\s*\*+ ?", "", line) for line in match.group(1).split("\n"))
        yield match.start(), " ".join(" ".join(lines).split())


def headless(text):
    """(line, sentence) of each sentence without a subject, and the number of words."""
    found, words = [], 0
    for start, comment in comments(text):
        words += len(comment.split())
        line = text.count("\n", 0, start) + 1
        found += [(line, sentence) for sentence in HEAD.findall(comment)]
    return found, words


def folders(root):
    """folder -> ([(path, line, sentence)], words)"""
    result = collections.defaultdict(lambda: ([], [0]))
    for top in ("allocator", "shim", "config"):
        for path in sorted((root / top).rglob("*.[ch]")):
            found, words = headless(path.read_text())
            folder = path.parent.relative_to(root).as_posix()
            result[folder][0].extend((path.relative_to(root), *each) for each in found)
            result[folder][1][0] += words
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--all", action="store_true", help="print every one")
    arguments = parser.parse_args()
    failed = False
    for folder, (found, (words,)) in sorted(folders(arguments.root).items()):
        too_many = len(found) * 1000 > words * MAX_PER_1000
        failed |= too_many
        print(f"{folder}: {len(found)} in {words} words")
        for path, line, sentence in found if too_many or arguments.all else []:
            print(f"  {path}:{line}: {sentence[:90]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
