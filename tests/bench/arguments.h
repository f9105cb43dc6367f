/* SPDX-License-Identifier: MIT */
/* The command lines of this folder's programs: options that each take a value, and one operand. */
#pragma once

#include <stdbool.h>

enum { ARGUMENTS_MAX = 16 };

/* `--name VALUE`. Where the value goes is one of three. */
struct argument {
	const char *name; /* NULL: the end of a list */
	unsigned long *number;
	int *integer; /* may be negative */
	const char **text;
};

/* False where an option is none of the list, which is said on stderr. *ret_operand: what follows
 * the options; "" where that is not exactly one word. */
bool arguments_read(int argc, char **argv, const struct argument *list, const char **ret_operand);
