/* SPDX-License-Identifier: MIT */
/*
 * Prints the environment that main() gets and the one that getenv() reads, one NAME=value a line
 * each sorted by nobody: environment NAME... With "call" as a first word a driver call is made
 * before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuMemAlloc_v2(unsigned long long *address, size_t n_bytes);

static void
print_main(char **entries, const char *name)
{
	size_t length = strlen(name);

	for (; *entries; entries++)
		if (!strncmp(*entries, name, length) && (*entries)[length] == '=')
			printf("main %s\n", *entries);
}

int
main(int argc, char **argv, char **envp)
{
	unsigned long long address;
	int first = argc > 1 && !strcmp(argv[1], "call") ? 2 : 1;

	if (first == 2 && !cuMemAlloc_v2(&address, 1))
		return 1; /* without cuInit it has to fail */
	for (int i = first; i < argc; i++) {
		const char *value = getenv(argv[i]);

		print_main(envp, argv[i]);
		if (value)
			printf("getenv %s=%s\n", argv[i], value);
	}
	return 0;
}
