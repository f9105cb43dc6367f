/* SPDX-License-Identifier: MIT */
/* deepbind_probe LIBRARY now|lazy: opens it with RTLD_DEEPBIND and uses it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int
main(int argc, char **argv)
{
	int flags = (argc > 2 && !strcmp(argv[2], "lazy") ? RTLD_LAZY : RTLD_NOW) | RTLD_DEEPBIND;
	void *library = dlopen(argc > 1 ? argv[1] : "", flags);
	int (*use)(int);

	if (!library)
		return fprintf(stderr, "%s\n", dlerror()), 1;
	*(void **)&use = dlsym(library, "deepbind_use");
	return use(10);
}
