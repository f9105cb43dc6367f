# SPDX-License-Identifier: MIT
"""NVIDIA's own driver library answers and refuses with the library as without, by whichever road it is asked."""

import os
import re

import pytest

from probing import KNOWN, Probe, differing, drivers, name_of, ours, symbols, version_of

QUICK_EVERY = 4  # conftest.py

# Functions of the driver that are in no cuda.h. The library counts a call of them as one that it cannot see.
IN_NO_HEADER = {
    "cuEGLApiInit": "between the driver and its EGL library",
    "cuMemGetAttribute": "answers CUDA_ERROR_NOT_SUPPORTED",
    "cuMemGetAttribute_v2": "answers CUDA_ERROR_NOT_SUPPORTED",
}
# The debugger's entries begin with cudbg: no names of the API. These return nothing, so what they seem to return is chance;
# cudbgMain waits for a debugger.
RETURN_NOTHING = {"cudbgApiAttach", "cudbgApiDetach", "cudbgApiInit", "cudbgReportDriverApiError", "cudbgReportDriverInternalError"}
WAITS = "cudbgMain"

FOUND = drivers()


@pytest.fixture(scope="module", params=FOUND or [None], ids=[*map(name_of, FOUND)] or ["none"])
def driver(request):
    if not request.param:
        pytest.skip("no driver library of NVIDIA's (build-drivers of scripts/setup.sh, see build-drivers.log)")
    return request.param


@pytest.fixture(scope="module")
def functions(driver):
    """{name: address}"""
    found = symbols(driver, "T")
    assert len(found) > 400
    return found


@pytest.fixture(scope="module")
def probe(driver, functions, tmp_path_factory):
    base = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
    asked = {*functions, *(base.sub("", name, count=1) for name in functions), *symbols(driver, "BDR"), "cuNothing"}
    asked |= {name for symbol, name, _ in KNOWN} | {symbol for symbol, _, _ in KNOWN}
    called = sorted({*functions} - {WAITS, "cuInit"}) + ["cuInit"]
    return Probe(tmp_path_factory.mktemp("probe"), [driver], "libcuda.so.1", "cuInit", sorted(functions), sorted(asked), called)


@pytest.fixture(scope="module")
def known():
    return {name for row in KNOWN for name in row[:2]}


class Judge:
    """Whether an answer with the library is what an answer without it has to become."""

    def __init__(self, functions, known):
        self.at = {f"driver+{address:#x}": name for name, address in functions.items()}
        self.hooked = ours() & set(functions)
        self.known = known
        assert len(self.at) == len(functions), "two names of one function"
        assert len(self.hooked) > 150

    def expected(self, asked, native):
        """For a function's address."""
        name = self.at.get(native)
        if name in self.hooked:
            return f"ours {name}"
        return native if asked in self.known or name is None or not re.match("cu[A-Z]", name) else "thunk"


def unexpected(lines, expected):
    """The pairs of lines that differ from what is expected: the line natively, with the library, and as it should be."""
    plain, loaded = lines
    assert len(plain) == len(loaded)
    triples = ((one, other, expected(*one.split(": ", 1))) for one, other in zip(plain, loaded))
    return [triple for triple in triples if triple[1] != triple[2]]


def test_names(functions, known):
    """A function that cuda_names.def lacks is seen by the library as an unknown one."""
    unknown = {name for name in functions if re.match("cu[A-Z]", name)} - known
    assert unknown - set(IN_NO_HEADER) == set()


def test_look_ups(probe, driver, functions, known):
    judge = Judge(functions, known)

    def expected(name, answers):
        explicit = answers.split(", ")
        want = [judge.expected(name, answer) for answer in explicit]
        if len(explicit) > 1:  # only a link and an explicit handle give a thunk; elsewhere our exports stand first
            want = [each if each != "thunk" or index < 2 else explicit[0] for index, each in enumerate(want)]
        return f"{name}: {', '.join(want)}"

    lines = probe.both(["lookup"], [driver.parent])
    assert len(lines[0]) > 2 * len(functions)
    assert unexpected(lines, expected) == []


def test_get_proc_address(probe, driver, functions, known):
    judge = Judge(functions, known)

    def expected(question, answers):
        name = question.split()[0]
        rc1, one, rc2, status, two = answers.split(", ")
        return f"{question}: {rc1}, {judge.expected(name, one)}, {rc2}, {status}, {judge.expected(name, two)}"

    lines = probe.both(["proc"], [driver.parent])
    assert len(lines[0]) > 64 * len(functions)
    if version_of(driver) >= (465,):
        assert sum("driver+" in line for line in lines[0]) > 5000 and sum("ours " in line for line in lines[1]) > 2000
    assert unexpected(lines, expected) == []


@pytest.mark.parametrize("seed", range(100 if os.environ.get("CACHEALLOC_TEST_LONG") else 3))
def test_calls(probe, driver, functions, seed):
    """Codes, errno, and what a process dies of: with zeros (seed 0), and with NULL and addresses mixed."""
    plain, loaded = probe.calls(seed, [driver.parent], RETURN_NOTHING)
    assert len(plain) >= 2 * (len(functions) - 1)
    assert differing(plain, loaded) == []
