/* SPDX-License-Identifier: MIT */
/*
 * Bounded text without stdio, locale or malloc.
 *
 * Formats: %s %c %d %i %u %x %lld %llu %llx %ld %lu %lx %zu %p %% with width, '-' and '0' flags and
 * %.Ns; `*` takes width or precision from an int argument. Output is cut at the buffer's end and
 * always terminated. An unknown conversion, and all that follows it, is copied as it stands.
 * Thread-safe, async-signal-safe, errno kept.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length that the whole text has (like snprintf); size may be 0. */
size_t ca_text_format_va(char *ret, size_t size, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));
size_t ca_text_format(char *ret, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* "1.25 GiB", "512 B": at most CA_TEXT_SIZE_MAX bytes with the terminator;
 * rounded to two decimals. Returns ret. */
enum { CA_TEXT_SIZE_MAX = 16 };
char *ca_text_bytes(char ret[CA_TEXT_SIZE_MAX], uint64_t bytes);
/*
 * Copies `text` to `ret` so that it is safe to show on a terminal and stays on one line: bytes
 * outside printable ASCII become \xNN, and what does not fit (size, at least 8) ends in "...".
 * Returns ret.
 */
char *ca_text_escape(char *ret, size_t size, const char *text);
/*
 * write(2) until all is written or an error other than EINTR. 0 or -errno; errno kept. The signals
 * that a write can raise (SIGPIPE, SIGXFSZ) do not reach the program; not a cancellation point.
 */
int ca_text_write(int fd, const char *text, size_t length);
