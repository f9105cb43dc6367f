/* SPDX-License-Identifier: MIT */
/*
 * SIMCUDA_STATS: what reached the simulated driver, as JSON. `calls` holds the names that were
 * called at least once, `peak_bytes` and `used_bytes` (now) one number for each device, `races`
 * what the oracle found; further keys may be added.
 */
#pragma once

#include <stddef.h>

/* Writes the JSON text, ended by NUL, as far as it fits.
 * Returns its full length without the NUL. */
size_t simb_stats_format(char *buffer, size_t n_buffer);

/* Writes it to the file that the pattern names (%p:
 * process id), replacing what was there. 0 or -errno. */
int simb_stats_write(const char *pattern);

/* Exported: the same as simb_stats_format, for programs and ctypes. */
size_t simcuda_stats(char *buffer, size_t n_buffer);
/* Exported: with SIMCUDA_CLOCK=manual, completes up to n operations; returns how many. */
unsigned long long simcuda_step(unsigned long long n);
/* Exported: for stand-ins of devices that are no streams (network cards), which read or write the
 * memory now: the race oracle judges it. */
void simcuda_touch(unsigned long long address, size_t n_bytes, int writes);
