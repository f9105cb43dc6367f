/* SPDX-License-Identifier: MIT */
/*
 * The out-of-memory report: a few warnings with the figures, what was tried and one line of advice.
 *
 * Once a size class (a power of two) and device, at most one a second and CA_REPORTS_MAX of a
 * process: programs look for the end of the memory by failing.
 */
#pragma once

enum { CA_REPORTS_MAX = 16 };

/* A forked child has reported nothing. */
void ca_report_after_fork_child(void);
