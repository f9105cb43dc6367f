/* SPDX-License-Identifier: MIT */
/*
 * Which mistake libcachealloc_mutants.so makes: CACHEALLOC_TEST_MUTANT=NAME (config/mutant.h);
 * unset: none. The variable is taken out of the environment, where the library would report it;
 * what the program executes then makes no mistake.
 */
#include "config/mutant.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum ca_mutant ca_mutant_chosen;

static const char *const names[] = {
#define X(name) #name,
	CA_MUTANT_NAMES(X)
#undef X
};

__attribute__((constructor)) static void
choose(void)
{
	static const char unknown[] = "CACHEALLOC_TEST_MUTANT: no such mutant\n";
	const char *chosen = getenv("CACHEALLOC_TEST_MUTANT");

	if (!chosen || !*chosen)
		return;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(chosen, names[i]) == 0)
			ca_mutant_chosen = (enum ca_mutant)(i + 1);
	if (!ca_mutant_chosen) {
		if (write(STDERR_FILENO, unknown, sizeof(unknown) - 1))
			_exit(2);
		_exit(2);
	}
	unsetenv("CACHEALLOC_TEST_MUTANT");
}
