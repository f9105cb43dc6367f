/* SPDX-License-Identifier: MIT */
/*
 * The parts of the loader side share these: the real resolver, the tables of names, and the route
 * from a real address to our entry point.
 *
 * Everything here is thread-safe without locks and keeps errno. A function marked "early" may run
 * inside dlsym: in a constructor, inside the driver's own start, before a sanitizer's runtime is
 * up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"

typedef void *ca_dlsym_fn(void *handle, const char *name);
typedef void *ca_dlvsym_fn(void *handle, const char *name, const char *version);
typedef void *ca_dlopen_fn(const char *name, int mode);
typedef int ca_dlclose_fn(void *handle);
typedef int ca_dladdr_fn(const void *address, void *ret_info);
typedef int ca_mprotect_fn(void *start, size_t bytes, int protection);

/* Early. libc's own functions (libdl's before glibc 2.34), NULL if there are none in this process.
 */
ca_dlsym_fn *ca_loader_dlsym(void);
ca_dlvsym_fn *ca_loader_dlvsym(void);
ca_dlopen_fn *ca_loader_dlopen(void);
ca_dlclose_fn *ca_loader_dlclose(void);
ca_mprotect_fn *ca_loader_mprotect(void);
/* Early. Waits for every dlopen that was begun before, as dlsym does. */
void ca_loader_wait(void);
/* Early. The dlsym of the next object in load order that defines one:
 * another wrapper's, or libc's. */
ca_dlsym_fn *ca_loader_next_dlsym(void);

/* A function that the process has from another library than this: of the first loaded object that
 * defines `name`. 0: none does. */
uintptr_t ca_loader_find(const char *name);

/*
 * Early. Advances with every dlsym of the process. A caller into a library that was opened late has
 * asked for its functions by dlsym first, so while this stands still nobody uses a new one (but for
 * libraries that do everything in their constructors).
 */
extern _Atomic uint64_t ca_loader_lookups __attribute__((visibility("hidden")));

/* One row of hooks.def, in the order of the file, which is also the order of struct ca_real. */
struct ca_row {
	const char *symbol;
	const char *base;
	int version;     /* CUDA version that brought this ABI */
	bool per_thread; /* the per-thread default stream's flavour */
	uintptr_t hook;  /* our entry point; 0: CA_NEED, never answered for */
};
extern const struct ca_row ca_rows[];
enum {
#define CA_HOOK(symbol, base, version, flags, params, args) CA_ROW_##symbol,
#define CA_NEED(symbol, base, version, flags, params) CA_ROW_##symbol,
#include "shim/bind/hooks.def"
	CA_ROW_COUNT
};

/* Early. The row of that exported symbol, NULL if there is none; and NULL if it is not hooked. */
const struct ca_row *ca_row_of(const char *symbol);
const struct ca_row *ca_row_of_hook(const char *symbol);
/* Early. Names of cuda_names.def: as exported by libcuda, and as asked of cuGetProcAddress. */
bool ca_name_is_symbol(const char *name);
bool ca_name_is_base(const char *name);
/* Early. A name as all of the driver's are, known or not: cuInit, and not cudaMalloc. */
static inline bool
ca_name_is_drivers(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}
/* The newest CUDA version in cuda_names.def: above it,
 * a known name may mean an ABI that we do not know. */
int ca_name_newest_version(void);
/* Calls visit for each exported symbol of a base name until it returns true; true then. */
bool ca_name_each_symbol(const char *base, bool (*visit)(const char *symbol, void *arg), void *arg);

/* Our entry point for an address that the real driver answered with; 0: none.
 * Needs ca_real() first. */
uintptr_t ca_route(uintptr_t real_address);

enum ca_answer {
	CA_ANSWER_DRIVER, /* left as the driver answered: not worth a line */
	CA_ANSWER_OURS,   /* one of our entry points */
	CA_ANSWER_THUNK,  /* a counting thunk: the name is unknown to us */
};
/* Early. One debug line for each replaced answer,
 * once ca_loader_set_verbose(true) was called; silent before. */
void ca_loader_note_lookup(const char *road, const char *name, enum ca_answer outcome);
void ca_loader_set_verbose(bool verbose);
/* Early. The roads by which functions of ours were answered with so far, but for cuGetProcAddress
 * itself; 0: none, so whoever calls us is linked to our names. */
enum { CA_ROAD_DLSYM = 1, CA_ROAD_GETPROC = 2 };
unsigned ca_loader_sources(void);
