#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Names functions, types and fields in the field's words.

Each name is made of words that occur in an identifier of PyTorch's allocator headers,
mimalloc, jemalloc, RMM, snmalloc, kmod or cuda.h (scripts/vocabulary.txt, in lower case), are
another inflection of one, or stand in the glossary of docs/ARCHITECTURE.md. Prints each word that
is none, with the names that use it; exits with 1 if there is any.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The project itself, functions of libc that are defined anew or stood in for, file formats, ELF and the verbs library,
# printf, our own tests, statistics.
OTHERS = {"cachealloc", "dlvsym", "strspn", "bcmp", "setcancelstate", "pickle", "memo", "trc", "phdr", "rela", "sysv", "jump", "devx", "iova",
          "verbs", "spec", "branch", "mutant", "histogram", "percentile"}
PREFIX = "un"
SUFFIXES = ("s", "es", "ed", "d", "ing", "er", "est", "ly", "able")
DEFINITION = re.compile(r"^([a-z_]\w*)\([^;]*?\)\n\{", re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
TOKEN = re.compile(r"(?P<record>\b(?:struct|union|enum)\s*(?P<tag>\w*)\s*(?=\{))|[{}]|[^{}]+?(?=[{}]|\b(?:struct|union|enum)\b|\Z)", re.S)
TYPEDEF = re.compile(r"\btypedef\b[^;{]*?\(?\*?\s*(\w+)\)?(?:\([^;]*\))?;")
# Written as cuda.h and the graphics headers have them.
OF_THE_DRIVER = ("cuda_abi.h", "graphics_abi.h")


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


def options(text):
    """The words of the options' names."""
    return {word for key in re.findall(r"^CA_KEY\((\w+)", text, re.M) for word in key.split("_")}


def functions(root):
    """(path, name) of each function that allocator/, shim/ and config/ define."""
    for path in sorted(p for folder in ("allocator", "shim", "config") for p in (root / folder).rglob("*.[ch]")):
        for name in DEFINITION.findall(COMMENT.sub(" ", path.read_text())):
            yield path.relative_to(root).as_posix(), name


def bodies(text):
    """(tag or "", body without the bodies of its own records) of each struct, union and enum of a text without comments."""
    stack, kind = [], None
    for token in TOKEN.finditer(text):
        if token["record"]:
            kind = token
            continue
        if token[0] == "{":
            stack.append((kind["tag"] or "" if kind else None, []))
        elif token[0] == "}" and stack:
            tag, parts = stack.pop()
            if tag is not None:
                yield tag, "".join(parts)
        elif stack:
            stack[-1][1].append(token[0])
        kind = None


def fields(body):
    for declaration in body.split(";"):
        for part in re.sub(r"\([^()]*\)(?!\s*\()|\[[^]]*\]|:\s*\w+", " ", re.sub(r"\(\*(\w+)\)\s*\([^;]*", r"\1", declaration)).split(","):
            names = re.findall(r"[A-Za-z_]\w*", part)
            if names:
                yield names[-1]


def types(root):
    """(path, name) of each struct, union, enum and typedef, and of each field."""
    for path in sorted(p for folder in ("allocator", "shim", "config") for p in (root / folder).rglob("*.[ch]")):
        if path.name in OF_THE_DRIVER:
            continue
        text = DIRECTIVE.sub("", COMMENT.sub(" ", path.read_text()))
        for name in TYPEDEF.findall(text):
            yield path.relative_to(root).as_posix(), name
        for tag, body in bodies(STRING.sub("0", text)):
            for name in [tag, *(() if "=" in body else fields(body))]:
                if name:
                    yield path.relative_to(root).as_posix(), name


def unknown_words(root, known):
    """word -> names that use it."""
    found = collections.defaultdict(list)
    for path, name in [*functions(root), *types(root)]:
        if name.startswith("cu"):
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
    known |= OTHERS | options((root / "config/options.def").read_text())
    known |= glossary((root / "docs/ARCHITECTURE.md").read_text())
    found = unknown_words(root, known)
    for word, names in sorted(found.items()):
        print(f"{word}: {', '.join(names)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
