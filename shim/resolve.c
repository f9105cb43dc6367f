/* SPDX-License-Identifier: MIT */
/*
 * Finding the real dlsym and dlopen.
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
#include "shim/early.h"
#include "shim/loader.h"

#include <errno.h>

#include "shim/object.h"
#include "shim/trampoline.h"

static uintptr_t next_dlsym; /* 0: not looked for, or none */
static uintptr_t libc_dlsym;
static uintptr_t libc_dlopen;

struct search {
	bool passed_self;
	uintptr_t next;
	uintptr_t dlsym;
	uintptr_t dlopen;
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
	if (is_libc(object)) {
		if (!search->dlsym)
			search->dlsym = ca_object_symbol(object, "dlsym", NULL);
		if (!search->dlopen)
			search->dlopen = ca_object_symbol(object, "dlopen", NULL);
	}
	return false;
}

static void
find(void)
{
	struct search search = { 0 };
	int saved = errno;

	ca_object_walk(visit_object, &search);
	__atomic_store_n(&libc_dlopen, search.dlopen, __ATOMIC_RELAXED);
	__atomic_store_n(&libc_dlsym, search.dlsym, __ATOMIC_RELAXED);
	__atomic_store_n(&next_dlsym, search.next ? search.next : search.dlsym, __ATOMIC_RELEASE);
	errno = saved;
}

static void
find_once(void)
{
	if (!__atomic_load_n(&next_dlsym, __ATOMIC_ACQUIRE))
		find();
}

ca_dlsym_fn *
ca_loader_dlsym(void)
{
	find_once();
	return (ca_dlsym_fn *)__atomic_load_n(&libc_dlsym, __ATOMIC_RELAXED);
}

ca_dlopen_fn *
ca_loader_dlopen(void)
{
	find_once();
	return (ca_dlopen_fn *)__atomic_load_n(&libc_dlopen, __ATOMIC_RELAXED);
}

ca_dlsym_fn *
ca_loader_next_dlsym(void)
{
	find_once();
	return (ca_dlsym_fn *)__atomic_load_n(&next_dlsym, __ATOMIC_RELAXED);
}
