/* SPDX-License-Identifier: MIT */
/*
 * variables_probe CASE HOLDER READER: variables named like the driver's functions, in the library
 * HOLDER, which READER is linked to, too. Built with -DLINKED it is linked to both, otherwise it
 * opens them. 0: right; 1: wrong, with a line for each wrong answer.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int alloc_fn(unsigned long long *, size_t);
typedef int free_fn(unsigned long long);

static int wrong;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: %s\n", __func__, __LINE__, #condition);                     \
			wrong = 1;                                                                 \
		}                                                                                  \
	} while (0)

struct holder {
	void (*load)(void);
	int (*was_set)(void);
	alloc_fn **(*alloc)(void);
	free_fn **(*free)(void);
};

struct reader {
	alloc_fn **(*alloc)(void);
	free_fn **(*free)(void);
};

#ifdef LINKED
void holder_load(void);
int holder_was_set(void);
alloc_fn **holder_alloc(void);
free_fn **holder_free(void);
alloc_fn **reader_alloc(void);
free_fn **reader_free(void);

extern alloc_fn *cuMemAlloc_v2; /* the program reads it, too */

static void
check_program(const struct holder *holder)
{
	CHECK(&cuMemAlloc_v2 == holder->alloc());
}

static struct holder
get_holder(const char *name)
{
	return (struct holder){ holder_load, holder_was_set, holder_alloc, holder_free };
}

static struct reader
get_reader(const char *name)
{
	return (struct reader){ reader_alloc, reader_free };
}
#else
static void
check_program(const struct holder *holder)
{
}

static void *
open_library(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		printf("%s\n", dlerror());
		exit(2);
	}
	return library;
}

static struct holder
get_holder(const char *name)
{
	void *library = open_library(name);
	struct holder holder;

	*(void **)&holder.load = dlsym(library, "holder_load");
	*(void **)&holder.was_set = dlsym(library, "holder_was_set");
	*(void **)&holder.alloc = dlsym(library, "holder_alloc");
	*(void **)&holder.free = dlsym(library, "holder_free");
	return holder;
}

static struct reader
get_reader(const char *name)
{
	void *library = open_library(name);
	struct reader reader;

	*(void **)&reader.alloc = dlsym(library, "reader_alloc");
	*(void **)&reader.free = dlsym(library, "reader_free");
	return reader;
}
#endif

/* The name of the file that holds an address. */
static const char *
file_of(void *address)
{
	Dl_info info = { .dli_fname = NULL };
	const char *slash;

	if (!address || !dladdr(address, &info) || !info.dli_fname)
		return "";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

/* The answer of dlsym is the preloaded library's where there is one. */
static void
check_function(void *function)
{
	const char *preloads = getenv("LD_PRELOAD");
	int preloaded = preloads && strstr(preloads, "libcachealloc");
	const char *expected = preloaded ? "libcachealloc" : "libcuda.so";

	CHECK(!strncmp(file_of(function), expected, strlen(expected)));
}

static void
use(const struct holder *holder)
{
	unsigned long long address = 0;

	for (int i = 0; i < 3; i++) {
		CHECK(!(*holder->alloc())(&address, 1 << 20));
		CHECK(address != 0);
		(*holder->free())(address);
	}
}

static void
check_holder(const struct holder *holder, const char *name)
{
	CHECK(!holder->was_set());
	CHECK(!strcmp(file_of(holder->alloc()), name));
	CHECK(!strcmp(file_of(holder->free()), name));
	check_function((void *)*holder->alloc());
	check_function((void *)*holder->free());
	use(holder);
}

static void
check_reader(const struct holder *holder, const struct reader *reader)
{
	CHECK(reader->alloc() == holder->alloc());
	CHECK(reader->free() == holder->free());
}

/* The holder's constructor has written, or it is told to write now. */
static void
one(char **argv, int loads)
{
	struct holder holder = get_holder(argv[2]);
	struct reader reader = get_reader(argv[3]);

	check_program(&holder);
	if (loads)
		holder.load();
	check_holder(&holder, argv[2]);
	check_reader(&holder, &reader);
}

#ifndef LINKED
/* Two libraries that know nothing of each other have a variable each. */
static void
two(char **argv)
{
	struct holder first = get_holder(argv[2]), second = get_holder(argv[4]);

	first.load();
	second.load();
	check_holder(&first, argv[2]);
	check_holder(&second, argv[4]);
}

/* It is closed, and opened again at the same place. */
static void
turns(char **argv)
{
	for (int i = 0; i < 3; i++) {
		void *library = open_library(argv[2]);
		struct holder holder = get_holder(argv[2]);

		holder.load();
		check_holder(&holder, argv[2]);
		dlclose(open_library(argv[3])); /* so that there is another look */
		dlsym(RTLD_DEFAULT, "nothing");
		dlclose(library);
		dlclose(library);
	}
}

/* A library that is linked to the driver still calls functions, beside one with variables. */
static void
caller(char **argv)
{
	struct holder holder = get_holder(argv[2]);
	void *library = open_library(argv[4]);
	alloc_fn *(*alloc)(void);

	*(void **)&alloc = dlsym(library, "caller_alloc");
	holder.load();
	check_holder(&holder, argv[2]);
	check_function((void *)alloc());
}
#endif

int
main(int argc, char **argv)
{
	const char *name = argv[1];

	if (!strcmp(name, "loads"))
		one(argv, 1);
	else if (!strcmp(name, "constructor"))
		one(argv, 0);
#ifndef LINKED
	else if (!strcmp(name, "two"))
		two(argv);
	else if (!strcmp(name, "turns"))
		turns(argv);
	else if (!strcmp(name, "caller"))
		caller(argv);
#endif
	else
		return 2;
	return wrong;
}
