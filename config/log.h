/* SPDX-License-Identifier: MIT */
/*
 * Log lines: "cachealloc[7841 r3]: warning: ...", with the process and, where there is one, the
 * rank; one write(2) each, to stderr or CACHEALLOC_LOG_FILE.
 *
 * Safe on every hooked path and in signal handlers: no malloc, no stdio, no lock, no cancellation
 * point, errno kept. Formats are a small subset of printf (see config/text.h). A line is at most
 * 1024 bytes; a longer one is cut and ends in "..."; control characters become spaces. At most
 * CA_LOG_CAP lines of a level are printed, then one line says so. A write that fails is ignored,
 * and raises no signal in the program.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum ca_log_level {
	CA_LOG_OFF,
	CA_LOG_ERROR,
	CA_LOG_WARN,
	CA_LOG_INFO,
	CA_LOG_DEBUG,
};

enum { CA_LOG_CAP = 256 };

/*
 * Sets level and file pattern (empty: stderr); before it, warnings and errors go to stderr. Call it
 * before other threads log. The file is opened at the first line that goes there; if that fails,
 * one line says so on stderr and all lines go there. Should the program close the descriptor, or
 * open something else under its number, a new file is opened.
 */
void ca_log_configure(enum ca_log_level level, const char *file_pattern);
/* In a forked child: a file of its own at the next line, and the count of lines starts again. */
void ca_log_after_fork_child(void);
bool ca_log_enabled(enum ca_log_level level);
/* A phrase for an errno value of a file that cannot be opened or written, "error" for others;
 * strerror() would need the locale. */
const char *ca_log_error_name(int error);
void ca_log(enum ca_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define ca_error(...) ca_log(CA_LOG_ERROR, __VA_ARGS__)
#define ca_warn(...) ca_log(CA_LOG_WARN, __VA_ARGS__)
#define ca_info(...) ca_log(CA_LOG_INFO, __VA_ARGS__)
#define ca_debug(...) ca_log(CA_LOG_DEBUG, __VA_ARGS__)
