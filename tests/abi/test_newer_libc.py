# SPDX-License-Identifier: MIT
"""The sources compile with a libc whose search functions are macros, as glibc's are from 2.43 on: C23 has them answer with a
pointer to const where the text is const. Such a libc is made of the one at hand."""

import json
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor

from conftest import BUILD, ROOT

#: function: (type of what it points to, its parameters)
FUNCTIONS = {
    "memchr": ("void", "s, c, n"), "strchr": ("char", "s, c"), "strrchr": ("char", "s, c"), "strpbrk": ("char", "s, accept"),
    "strstr": ("char", "s, part"), "bsearch": ("void", "key, s, n, size, compare"),
}
OF_CONST = "_Generic(0 ? (s) : (void *)1, const void *: (const {} *)({}), default: {})"


def header(name, functions):
    lines = [f"#include_next <{name}.h>\n"]
    for function in functions:
        result, parameters = FUNCTIONS[function]
        call = f"{function}({parameters})"
        lines.append(f"#undef {function}\n#define {call} {OF_CONST.format(result, call, call)}\n")
    return "".join(lines)


def newer(folder):
    """A folder of headers that goes before the system's."""
    (folder / "string.h").write_text(header("string", [name for name in FUNCTIONS if name != "bsearch"]))
    (folder / "stdlib.h").write_text(header("stdlib", ["bsearch"]))
    return folder


def complaints(folder, command):
    words = shlex.split(command["command"])
    words = words[:words.index("-o")] + words[words.index("-o") + 2:]  # nothing is written
    done = subprocess.run([words[0], "-isystem", folder, *words[1:], "-fsyntax-only"], cwd=command["directory"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout if done.returncode else ""


def test_every_source_that_searches_compiles(tmp_path):
    named = re.compile(rf"\b({'|'.join(FUNCTIONS)})\(")
    commands = {}
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        source = (BUILD / command["file"]).resolve()
        if source.suffix == ".c" and ROOT in source.parents and named.search(source.read_text(encoding="utf-8")):
            commands.setdefault(source, command)
    assert {ROOT / "shim/bind/string.c", ROOT / "config/parse.c"} <= set(commands), sorted(commands)
    folder = newer(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        found = [text for text in pool.map(lambda command: complaints(folder, command), commands.values()) if text]
    assert not found, "\n".join(found)


def test_what_such_a_libc_refuses_is_found(tmp_path):
    (tmp_path / "a.c").write_text("#include <string.h>\nchar *f(const char *text) { return strchr(text, 'a'); }\n")
    command = {"command": "gcc -Werror -o a.o -c a.c", "directory": tmp_path}
    (tmp_path / "headers").mkdir()
    assert "discard" in complaints(newer(tmp_path / "headers"), command)
