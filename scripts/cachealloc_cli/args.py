# SPDX-License-Identifier: MIT
"""Options of a verb: one table drives parsing and --help.

Unlike argparse, parsing stops at the first word that is not an option (the program to run), and an optional
value is only taken when written with `=`: `--stats ./app` never eats the program's name.
"""

import difflib


class UsageError(Exception):
    """One sentence naming what is wrong with the command line."""


class Option:
    """kind: "flag" (no value), "value" (needs one), "optional" (--name or --name=VALUE)."""

    def __init__(self, names, kind, text, meta="", default=None, convert=str, repeat=False):
        self.names = names.split()
        self.kind = kind
        self.text = text
        self.meta = meta
        self.default = default
        self.convert = convert
        self.repeat = repeat

    @property
    def key(self):
        return self.names[-1].lstrip("-").replace("-", "_")

    def usage(self):
        names = ", ".join(self.names)
        if self.kind == "value":
            return f"{names} {self.meta}"
        return f"{names}[={self.meta}]" if self.kind == "optional" else names


def nearest(word, names):
    """The known name that `word` probably means, or None."""
    found = difflib.get_close_matches(word, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def _lookup(table, name):
    if name in table:
        return table[name]
    close = nearest(name, table)
    raise UsageError(f"unknown option {name}" + (f"; did you mean {close}?" if close else ""))


def _converted(option, name, text):
    try:
        return option.convert(text)
    except ValueError as error:
        raise UsageError(f"{name} {text}: {error}") from None


def parse(options, argv, anywhere=False):
    """Returns ({key: value}, words after the options; with `anywhere` those between, too). Raises UsageError."""
    table = {name: option for option in options for name in option.names}
    values = {option.key: [] if option.repeat else option.default for option in options}
    words, at = [], 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return values, words + argv[at + 1:]
        if not word.startswith("-") or word == "-":
            if not anywhere:
                break
            words.append(word)
            at += 1
            continue
        at += 1
        name, equals, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            name, equals, value = word[:2], "=", word[2:].lstrip("=")
        option = _lookup(table, name)
        if option.kind == "flag":
            if equals:
                raise UsageError(f"{name} takes no value")
            value = True
        elif option.kind == "optional":
            value = _converted(option, name, value) if equals else True
        else:
            if not equals:
                if at == len(argv):
                    raise UsageError(f"{name} needs a value: {option.usage()}")
                value = argv[at]
                at += 1
            value = _converted(option, name, value)
        if option.repeat:
            values[option.key].append(value)
        else:
            values[option.key] = value
    return values, words + argv[at:]


def integer(low, high=2**63):
    """A converter for whole numbers from low to high."""
    def convert(text):
        try:
            number = int(text)
        except ValueError:
            raise ValueError("expected a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"expected {low} or more" if number < low else f"expected {high} or less")
        return number
    return convert


def describe(options):
    """The options' part of --help."""
    lines = []
    for option in options:
        left = "  " + option.usage()
        text = option.text
        if len(left) > 25:
            lines.append(left)
            left = ""
        words, line = text.split(), ""
        for word in words:
            if len(line) + len(word) > 52:
                lines.append(f"{left:<27}{line}")
                left, line = "", ""
            line += (" " if line else "") + word
        lines.append(f"{left:<27}{line}")
    return "\n".join(lines)
