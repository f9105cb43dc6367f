# SPDX-License-Identifier: MIT
"""The rules of the house: who may include whom, headers that stand alone, and the words of names. Each is seen to fail."""

import shutil
import subprocess
import sys

import pytest

from conftest import ROOT

INCLUDES = ROOT / "scripts" / "check_includes.py"
HEADERS = ROOT / "scripts" / "check_headers.py"
WORDS = ROOT / "scripts" / "check_words.py"

# (file, text, part of the complaint)
BREACHES = [
    ("config/text.c", '#include "allocator/api/heap.h"\n', 'may not include "allocator/api/heap.h"'),
    ("config/text.c", "#include <dlfcn.h>\n", "may not include <dlfcn.h>"),
    ("config/text.c", "#include <stdio.h>\n", "may not include <stdio.h>"),
    ("allocator/pool.h", '#include "shim/bind/cuda_abi.h"\n', 'may not include "shim/bind/cuda_abi.h"'),
    ("allocator/block/pool.c", "#include <cuda.h>\n", "may not include <cuda.h>"),
    ("allocator/block/pool.c", 'char *f(void) { return secure_getenv("X"); }\n', "may not use secure_getenv"),
    ("allocator/block/pool.c", '#include "heap.h"\n', 'may not include "heap.h"'),
    ("shim/hook.c", '#include "tests/sim/engine.h"\n', 'may not include "tests/sim/engine.h"'),
    ("shim/hook.c", '#include "shim/gone.h"\n', 'no "shim/gone.h"'),
    ("tests/sim/engine/x.c", '#include "allocator/api/heap.h"\n', 'may not include "allocator/api/heap.h"'),
]


def script(path, *arguments):
    return subprocess.run([sys.executable, path, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)


def test_includes():
    done = script(INCLUDES)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file, text, complaint", BREACHES)
def test_a_wrong_include_is_found(tmp_path, file, text, complaint):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    done = script(INCLUDES, tmp_path)
    assert done.returncode == 1 and complaint in done.stdout, done.stdout


def test_comments_and_strings_are_no_breach(tmp_path):
    (tmp_path / "allocator").mkdir()
    (tmp_path / "allocator" / "a.c").write_text('/* #include "shim/x.h"; no getenv */\nchar *s = "getenv";\n')
    done = script(INCLUDES, tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_headers_compile_alone(cc):
    if not shutil.which(cc):
        pytest.skip(f"{cc} is not installed")
    done = script(HEADERS, "--cc", cc)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("text", ["size_t size;\n", "#include <stddef.h>\nstruct twice { int x; };\n"])
def test_a_header_that_does_not_stand_alone_is_found(tmp_path, text):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "bad.h").write_text(text)
    done = script(HEADERS, tmp_path)
    assert done.returncode == 1 and "config/bad.h" in done.stdout, done.stdout


def words(root, text):
    for name in ("scripts/vocabulary.txt", "docs/ARCHITECTURE.md", "config/options.def"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "allocator").mkdir()
    (root / "allocator/a.c").write_text(text)
    return script(WORDS, "--root", root)


@pytest.mark.parametrize("text", [
    "int\nwibble(void)\n{\n}\n",
    "struct wibble {\n\tint size;\n};\n",
    "enum wibble { CA_SIZE };\n",
    "typedef int (*wibble)(int size);\n",
    "struct ca_block {\n\tunion {\n\t\tint size;\n\t\tint bytes[2], wibble[4];\n\t};\n};\n",
    "struct ca_block {\n\t_Alignas(64) _Atomic int wibble : 3; /* size */\n};\n",
    "struct ca_block {\n\tint (*wibble)(void *size, int bytes);\n};\n",
])
def test_a_word_that_nobody_else_has_is_found(tmp_path, text):
    done = words(tmp_path, text)
    assert done.returncode == 1 and done.stdout.startswith("wibble: allocator/a.c:"), done.stdout


def test_locals_comments_and_macros_have_any_words(tmp_path):
    done = words(tmp_path, "/* struct wibble { int wobble; } */\n#define WIBBLE \\\n\tstruct wibble {}\n"
                 "int\nca_free(int wibble)\n{\n\tint wobble = wibble;\n}\nstruct ca_pool {\n\tint re_sized, give_back;\n};\n")
    assert done.returncode == 0, done.stdout
