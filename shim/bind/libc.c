/* SPDX-License-Identifier: MIT */
/*
 * Finding the real dlsym, dlvsym, dlopen and dlclose, and mprotect.
 *
 * Neither can be had by asking: plain `dlsym` is our own export, and dlvsym needs the version to be
 * guessed (it differs between architectures and changed in glibc 2.34) and is itself in libdl
 * before 2.34. So the loaded objects are read: the first libc.so.N or libdl.so.N that defines the
 * name. libdl is not among our own needs, since on today's glibc that would open a second file in
 * every process; where it is not loaded, nobody in the process can have called dlsym natively.
 *
 * Next to libc's there is the next dlsym: the first definition after ours in load order, as
 * RTLD_NEXT would find it, so that another preloaded wrapper behind us is still asked. Usually it
 * is libc's as well.
 *
 * Idempotent: every thread that comes early finds the same values and stores them.
 */
#include "shim/bind/early.h"
#include "shim/bind/loader.h"

#include <dlfcn.h>

#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/bind/trampoline.h"

static uintptr_t next_dlsym; /* 0: not looked for, or none */

enum { DLSYM, DLVSYM, DLOPEN, DLCLOSE, DLADDR, MPROTECT, FUNCTIONS };
static const char *const names[FUNCTIONS] = { "dlsym",   "dlvsym", "dlopen",
					      "dlclose", "dladdr", "mprotect" };
static uintptr_t libc_functions[FUNCTIONS];

struct search {
	bool passed_self;
	uintptr_t next;
	uintptr_t found[FUNCTIONS];
};

static bool
is_libc(const struct ca_object *object)
{
	return ca_early_starts_with(object->soname, "libc.so.") ||
	       ca_early_starts_with(object->soname, "libdl.so.");
}

static bool
visit_object(const struct ca_object *object, void *arg)
{
	struct search *search = arg;

	if (ca_object_holds(object, (uintptr_t)ca_dlsym_trampoline)) {
		search->passed_self = true;
		return false;
	}
	if (search->passed_self && !search->next)
		search->next = ca_object_symbol(object, "dlsym", NULL);
	for (unsigned i = 0; i < FUNCTIONS && is_libc(object); i++)
		if (!search->found[i])
			search->found[i] = ca_object_symbol(object, names[i], NULL);
	return false;
}

static void
find(void)
{
	struct search search = { 0 };
	CA_KEEP_ERRNO;

	ca_object_walk(visit_object, &search);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		__atomic_store_n(&libc_functions[i], search.found[i], __ATOMIC_RELAXED);
	__atomic_store_n(&next_dlsym, search.next ? search.next : search.found[DLSYM],
			 __ATOMIC_RELEASE);
}

static void
find_once(void)
{
	if (!__atomic_load_n(&next_dlsym, __ATOMIC_ACQUIRE))
		find();
}

static uintptr_t
libc_function(unsigned which)
{
	find_once();
	return __atomic_load_n(&libc_functions[which], __ATOMIC_RELAXED);
}

ca_dlsym_fn *
ca_loader_dlsym(void)
{
	return (ca_dlsym_fn *)libc_function(DLSYM);
}

ca_dlvsym_fn *
ca_loader_dlvsym(void)
{
	return (ca_dlvsym_fn *)libc_function(DLVSYM);
}

ca_dlopen_fn *
ca_loader_dlopen(void)
{
	return (ca_dlopen_fn *)libc_function(DLOPEN);
}

ca_dlclose_fn *
ca_loader_dlclose(void)
{
	return (ca_dlclose_fn *)libc_function(DLCLOSE);
}

ca_mprotect_fn *
ca_loader_mprotect(void)
{
	return (ca_mprotect_fn *)libc_function(MPROTECT);
}

/* A thread that gets the lock of dlopen has waited for those that had it. (dladdr takes it, and
 * asks nothing else for an address that no object has. dlopen itself would end the process if it is
 * called within another dlopen of the same thread, as by a wrapper of malloc that calls dlsym.) */
void
ca_loader_wait(void)
{
	ca_dladdr_fn *real_dladdr = (ca_dladdr_fn *)libc_function(DLADDR);
	Dl_info info;

	if (real_dladdr)
		real_dladdr(NULL, &info);
}

ca_dlsym_fn *
ca_loader_next_dlsym(void)
{
	find_once();
	return (ca_dlsym_fn *)__atomic_load_n(&next_dlsym, __ATOMIC_RELAXED);
}

struct wanted {
	const char *name;
	uintptr_t address;
};

static bool
visit_any(const struct ca_object *object, void *arg)
{
	struct wanted *wanted = arg;

	if (!ca_object_holds(object, (uintptr_t)ca_dlsym_trampoline))
		wanted->address = ca_object_symbol(object, wanted->name, NULL);
	return wanted->address != 0;
}

uintptr_t
ca_loader_find(const char *name)
{
	struct wanted wanted = { .name = name };
	int saved = errno;

	ca_object_walk(visit_any, &wanted);
	errno = saved;
	return wanted.address;
}
