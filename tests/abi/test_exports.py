# SPDX-License-Identifier: MIT
"""What the built library shows to the loader: names, needs, and nothing that runs by itself."""

import os
import re
import signal
import subprocess

import pytest

from abi_source import hook_rows
from conftest import BUILD, LIBRARY, ROOT

# With an auditor, or opened late, all libraries together have 1664 bytes in today's glibc; libc takes 144 of them
TLS_MAX = 640
# libc's own parts on x86-64 and aarch64; before glibc 2.34 libdl and libpthread were files of their own
LIBC = re.compile(r"^(libc\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux[\w-]*\.so\.\d)$")
OURS = {"dlsym", "dlvsym", "cachealloc_check_settings", "cachealloc_site_conf", "cachealloc_trim", "cachealloc_stats_json",
        "cachealloc_version", *(f"cachealloc_torch_{name}" for name in ("malloc", "free", "record_stream", "empty_cache"))}
SANITIZERS = re.compile(r"NEEDED.*lib(asan|ubsan|tsan)")


def tool(*argv):
    return subprocess.run(argv, text=True, check=True, stdout=subprocess.PIPE, timeout=60).stdout


@pytest.fixture(scope="module")
def dynamic():
    text = tool("readelf", "-dW", LIBRARY)
    if SANITIZERS.search(text):
        pytest.skip("a sanitizer build needs more than libc")
    return text


def test_exported_names_are_hooks_def(build):
    names = tool("nm", "-D", "--defined-only", LIBRARY)
    exported = {name.split("@")[0] for name in re.findall(r" [A-Za-z] (\S+)$", names, re.M)}
    hooks = {row[1] for row in hook_rows() if row[0] == "HOOK"}
    assert exported - hooks - OURS == set(), "exported without being hooked"
    assert hooks - exported == set(), "hooked without being exported"
    assert "dlsym" in exported


def test_needs_libc_only(dynamic):
    needed = re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", dynamic)
    assert needed and [name for name in needed if not LIBC.match(name)] == []


def test_no_glibc_symbol_newer_than_2_28(dynamic):
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", tool("readelf", "-VW", LIBRARY))}
    assert versions, "no versioned symbol was found: is the check blind?"
    needs = tool("readelf", "-VW", LIBRARY).split("Version needs section", 1)[1]
    newer = [v for v in re.findall(r"GLIBC_([\d.]+)", needs) if tuple(map(int, v.split("."))) > (2, 28)]
    assert newer == []


# nor is one to be had by what these do: a thread that the program cancels would leave the library in the middle
CANCELLATION_POINTS = {"nanosleep", "clock_nanosleep", "usleep", "sleep", "pause", "select", "pselect", "poll", "ppoll", "sigsuspend",
                       "sigtimedwait", "sigwait", "sigwaitinfo", "open", "openat", "creat", "close", "read", "readv", "pread", "write",
                       "writev", "pwrite", "fsync", "fdatasync", "msync", "wait", "waitpid", "waitid", "system", "lockf", "tcdrain",
                       "pthread_cond_wait", "pthread_cond_timedwait", "pthread_join", "sem_wait", "sem_timedwait", "connect", "accept",
                       "recv", "recvmsg", "recvfrom", "send", "sendmsg", "sendto", "pthread_testcancel"}


def test_no_cancellation_point(dynamic):
    undefined = re.findall(r" U (\w+)", tool("nm", "-D", "--undefined-only", LIBRARY))
    assert "syscall" in undefined
    assert [name for name in undefined if name.removesuffix("64") in CANCELLATION_POINTS] == []


def string_functions(library):
    undefined = re.findall(r" U (\w+)", tool("nm", "-D", "--undefined-only", library))
    assert "mmap64" in undefined or "mmap" in undefined
    return [name for name in undefined if re.match(r"_*(str|stp|mem|rawmem|b(cmp|copy|zero)$)", name)]


def test_no_string_function_of_the_process(dynamic):
    """Under a sanitizer they are its own, and look at memory that only uninstrumented code wrote (shim/bind/string.c)."""
    assert string_functions(LIBRARY) == []


@pytest.mark.skipif(not os.environ.get("CACHEALLOC_TEST_LONG"), reason="builds the library again: CACHEALLOC_TEST_LONG=1")
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_nor_with_a_distributions_flags(cc, tmp_path):
    """What Ubuntu's gcc defines by itself, and Debian's, Fedora's and Ubuntu's packages are built with."""
    flags = "-O2 -Wp,-U_FORTIFY_SOURCE -Wp,-D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection"
    if cc == "gcc":  # clang's wants a linker of its own
        flags += " -flto=auto -ffat-lto-objects"
    for command in (["meson", "setup", "--buildtype=plain", ROOT, tmp_path], ["meson", "compile", "-C", tmp_path, "cachealloc"]):
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, env={**os.environ, "CC": cc, "CFLAGS": flags})
    assert string_functions(tmp_path / "shim" / "libcachealloc.so") == []


CHECKED = """
#include <stddef.h>
void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__memset_chk(void *, int, size_t, size_t);
char *__strcpy_chk(char *, const char *, size_t);

int
main(int argc, char **argv)
{
	char text[8] = "abcdefg";
	size_t room = argc > 2 ? 3 : 4;

	switch (*argv[1]) {
	case 'c':
		return __memcpy_chk(text, "xyz", 4, room) != text || text[2] != 'z' || text[4] != 'e';
	case 'm':
		return __memmove_chk(text + 1, text, 4, room) != text + 1 || text[4] != 'd' || text[5] != 'f';
	case 's':
		return __memset_chk(text, 'x', 4, room) != text || text[3] != 'x' || text[4] != 'e';
	default:
		return __strcpy_chk(text, "xyz", room) != text || text[2] != 'z' || text[4] != 'e';
	}
}
"""


def test_checked_copies_are_our_own(build, tmp_path):
    """What such flags have the compiler call: they copy, and end a program that would write beyond the target."""
    library = BUILD / "shim" / "libca-string.a"
    if not library.exists() or os.environ.get("CACHEALLOC_TEST_EMULATOR"):
        pytest.skip("a sanitizer or cross build has none that runs here")
    defined = set(re.findall(r" T (\w+)", tool("nm", "--defined-only", library)))
    assert {f"__{name}_chk" for name in ("memcpy", "memmove", "memset", "strcpy")} <= defined
    (tmp_path / "a.c").write_text(CHECKED)
    subprocess.run(["gcc", "-o", tmp_path / "a", tmp_path / "a.c", library], check=True)
    for which in "cmsy":
        fits, over = (subprocess.run([tmp_path / "a", which, *more], check=False).returncode for more in ([], ["over"]))
        assert fits == 0 and over in (-signal.SIGILL, -signal.SIGTRAP), which  # the second on aarch64


def test_two_constructors_of_ours(dynamic):
    """Those of shim/framework/take_over.c and shim/bind/variables.c; gcc's own frame_dummy is in every shared library."""
    size = re.search(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    assert int(size.group(1)) <= 24


def test_bound_at_load_and_not_writable_afterwards(dynamic):
    assert re.search(r"\(FLAGS_1\).*NOW", dynamic)
    assert "GNU_RELRO" in tool("readelf", "-lW", LIBRARY)
    assert "TEXTREL" not in dynamic
    stack = re.search(r"GNU_STACK\s.*", tool("readelf", "-lW", LIBRARY)).group()
    assert " RWE " not in stack, "an assembly file lacks its .note.GNU-stack"


def test_thread_locals_fit_into_what_the_loader_keeps(dynamic):
    """They are of the initial-exec model, so that no hit pays for finding them."""
    segment = re.search(r"^\s*TLS\s+\S+ \S+ \S+ \S+ (0x[0-9a-f]+)", tool("readelf", "-lW", LIBRARY), re.M)
    assert segment, "no thread-locals were found: is the check blind?"
    assert 0 < int(segment.group(1), 16) <= TLS_MAX
