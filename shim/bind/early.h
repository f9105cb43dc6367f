/* SPDX-License-Identifier: MIT */
/*
 * String functions for code that may run inside dlsym before a sanitizer's runtime is up: while
 * that runtime looks up the functions it is going to wrap, its own strcmp calls through a pointer
 * that is still NULL.
 */
#pragma once

#include <stdbool.h>

/* As strcmp. */
static inline int
ca_early_compare(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return (unsigned char)*a - (unsigned char)*b;
}

static inline bool
ca_early_equal(const char *a, const char *b)
{
	return !ca_early_compare(a, b);
}

static inline bool
ca_early_starts_with(const char *text, const char *prefix)
{
	while (*prefix)
		if (*text++ != *prefix++)
			return false;
	return true;
}
