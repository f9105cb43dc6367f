/* SPDX-License-Identifier: MIT */
/*
 * cfi_rows LIBRARY: for each address in the library (hexadecimal, one a line of stdin) the rule
 * that shim/cfi.c finds, in readelf's words: "ADDRESS CFA ra FP", or "ADDRESS unknown".
 */
#include "shim/cfi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define SP "rsp"
#define FP "rbp"
#else
#define SP "sp"
#define FP "x29"
#endif

static void
row(const struct ca_object *object, uintptr_t address)
{
	struct ca_cfi_rule rule;

	if (!ca_cfi_find(object, object->base + address, &rule)) {
		printf("%lx unknown\n", (unsigned long)address);
		return;
	}
	printf("%lx %s+%u c%+d ", (unsigned long)address, rule.from_fp ? FP : SP, rule.frame,
	       rule.return_to);
	if (rule.fp == CA_CFI_FP_SAVED)
		printf("c%+d\n", rule.fp_saved);
	else
		puts(rule.fp == CA_CFI_FP_SAME ? "u" : "?");
}

static bool
visit(const struct ca_object *object, void *arg)
{
	char line[64];

	if (strcmp(object->path, arg))
		return false;
	while (fgets(line, sizeof(line), stdin))
		row(object, strtoul(line, NULL, 16));
	return true;
}

int
main(int argc, char **argv)
{
	if (argc != 2 || !dlopen(argv[1], RTLD_LAZY)) {
		fprintf(stderr, "cfi_rows: %s\n",
			argc == 2 ? dlerror() : "usage: cfi_rows LIBRARY");
		return 2;
	}
	return !ca_object_walk(visit, argv[1]);
}
