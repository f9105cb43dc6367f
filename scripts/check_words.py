#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Names functions in the field's words.

A function's name is made of words that occur in an identifier of PyTorch's allocator headers,
mimalloc, jemalloc, RMM, snmalloc, kmod or cuda.h (scripts/vocabulary.txt, in lower case), are
another inflection of one, or stand in the glossary of docs/ARCHITECTURE.md. Prints each word that
is none, with the functions that use it; exits with 1 if there is any.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The inner names of these folders wait for their new structures.
PENDING = ("allocator/tcache/", "allocator/block/", "allocator/util/")
# The project itself, functions of libc that are defined anew or stood in for, and file formats.
OTHERS = {"cachealloc", "dlvsym", "strspn", "pickle", "trc"}
PREFIX = "un"
SUFFIXES = ("s", "es", "ed", "d", "ing", "er", "est", "ly", "able")
DEFINITION = re.compile(r"^([a-z_]\w*)\([^;]*?\)\n\{", re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def stems(word):
    """All words of which `word` may be an inflection; itself first."""
    if word.startswith(PREFIX):
        yield from stems(word[len(PREFIX):])
    yield word
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 2:
            stem = word[: -len(suffix)]
            yield stem
            yield stem + "e"
            if len(stem) > 2 and stem[-1] == stem[-2]:
                yield stem[:-1]
            if stem.endswith("i"):
                yield stem[:-1] + "y"


def glossary(text):
    """The words of the glossary's first column."""
    table = text.split("\n## Words\n")[1]
    return {word for row in re.findall(r"^\| ([^|]+) \|", table, re.M) for word in re.findall(r"[a-z]+", row.lower())}


def functions(root):
    """(path, name) of each function that allocator/, shim/ and config/ define."""
    for path in sorted(p for folder in ("allocator", "shim", "config") for p in (root / folder).rglob("*.[ch]")):
        for name in DEFINITION.findall(COMMENT.sub(" ", path.read_text())):
            yield path.relative_to(root).as_posix(), name


def unknown_words(root, known):
    """word -> functions that use it."""
    found = collections.defaultdict(list)
    for path, name in functions(root):
        if path.startswith(PENDING) or name.startswith("cu"):
            continue
        for word in re.findall(r"[a-z]+", name):
            if len(word) > 1 and not any(stem in known for stem in stems(word)):
                found[word].append(f"{path}:{name}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    root = parser.parse_args().root
    known = set((root / "scripts/vocabulary.txt").read_text().split())
    known |= OTHERS | glossary((root / "docs/ARCHITECTURE.md").read_text())
    found = unknown_words(root, known)
    for word, names in sorted(found.items()):
        print(f"{word}: {', '.join(names)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
