/* SPDX-License-Identifier: MIT */
/*
 * Bounded text without stdio, locale or malloc.
 *
 * Formats: %s %c %d %i %u %x %lld %llu %llx %ld %lu %lx %zu %p %% with width, '-' and '0' flags and %.Ns.
 * Output is cut at the buffer's end and always terminated.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length that the whole text has (like snprintf); size may be 0. */
size_t ca_text_vformat(char *ret, size_t size, const char *format, va_list args);
size_t ca_text_format(char *ret, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* "1.25 GiB", "512 B": at most CA_TEXT_SIZE_MAX bytes with the terminator. Returns ret. */
enum { CA_TEXT_SIZE_MAX = 16 };
char *ca_text_bytes(char ret[CA_TEXT_SIZE_MAX], uint64_t bytes);
/* write(2) until all is written or an error other than EINTR. 0 or -errno; errno kept. */
int ca_text_write(int fd, const char *text, size_t length);
