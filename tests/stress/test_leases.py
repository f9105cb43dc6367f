# SPDX-License-Identifier: MIT
"""The mistakes (config/mutant.h) that could be made of leased segments (allocator/block/lease.h). Most are a matter of what two
threads do at certain moments, so it is unit tests that find them: test_lease.c, test_leased*.c."""
import subprocess

import pytest

from conftest import BUILD, clean_env

QUICK_EVERY = 4  # conftest.py

#: The program, and its test that finds the mistake.
MUTANTS = {
    "LEASES_GO_ON": ("leased", "test_who_looks_at_blocks_ends_leases"),
    "LEASED_IN_CAPTURE": ("leased", "test_who_looks_at_blocks_ends_leases"),
    "LEASED_OVER_HELD": ("lease", "test_a_segment_where_something_waits_is_not_leased"),
    "LEASED_USER_LOST": ("leased", "test_what_a_stream_uses_is_not_merged"),
    "LEASE_UNLOCKED": ("leased_threads", "test_who_merges_in_anothers_segment_waits_for_it"),
    "LEASE_ENTERS_OVER": ("lease", "test_two_threads_enter_blocks_at_one_place"),
    "LEASE_UNCOUNTED": ("leased_threads", "test_the_table_grows_while_it_is_shared"),
    "LEASE_SPARES_UNEQUAL": ("leased", "test_records_run_out_and_are_supplied"),
}


def failed_units(program, mutant, *unit):
    """None but `unit` are run, if there is one."""
    path = BUILD / "tests" / "stress" / f"{program}_mutants"
    if not path.exists():
        pytest.skip("built without mutants")
    done = subprocess.run([path, *unit], env=clean_env() | {"CACHEALLOC_TEST_MUTANT": mutant, "CMOCKA_MESSAGE_OUTPUT": "TAP"},
                          capture_output=True, text=True, timeout=300)
    return [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("not ok")]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant):
    program, unit = MUTANTS[mutant]
    assert failed_units(program, mutant, unit) == [unit]


@pytest.mark.parametrize("program", ["lease", "leased", "leased_property", "leased_threads"])
def test_no_mutant_no_catch(program):
    assert not failed_units(program, "")
