/* SPDX-License-Identifier: MIT */
/*
 * The answers of dlsym and dlvsym.
 *
 * Called by the trampoline for every dlsym in the process, so: three bytes of the name decide for
 * almost all. For a name that could be the driver's and an explicit handle, the real dlsym is asked
 * first, with the caller's own arguments, and its answer is replaced only if it lies in a CUDA
 * driver. Nothing is ever turned into a miss, and a miss never into an answer: those go on to the
 * real dlsym, which sets dlerror as it does natively.
 *
 * RTLD_NEXT and RTLD_DEFAULT always go on, and straight to libc, because they depend on the caller,
 * which a wrapper of dlsym behind us may lose. With a handle the caller does not matter, and such a
 * wrapper is asked next. Under RTLD_DEFAULT our exports stand first in the global scope anyway, and
 * RTLD_NEXT asks for what comes after the caller. A name that we do not know is then only counted,
 * if a loaded driver defines it: the answer depends on the caller, so no thunk can be put in its
 * place.
 *
 * The driver itself is never answered for (a loader library on WSL asks the true driver for its own
 * names), and nothing here opens a library or waits (drivers call dlsym while they start).
 *
 * Registration functions of network and storage libraries have thunks (dlsym_registration.c). They
 * are all that dlvsym is answered for: a driver has no versions.
 *
 * dlsym on libc's handle for "dlsym" gives ours, except to a wrapper of dlsym that stands behind
 * us: that one wants libc's, and given ours, would call itself in a circle.
 */
#include "shim/bind/early.h"
#include "shim/bind/loader.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "config/log.h"
#include "shim/bind/dlsym_registration.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/bind/trampoline.h"
#include "shim/bind/unseen_calls.h"
#include "shim/bind/variables.h"

_Atomic uint64_t ca_loader_lookups = 1;

static bool verbose_lookups;
static _Atomic unsigned roads; /* CA_ROAD_* */

void
ca_loader_set_verbose(bool verbose)
{
	__atomic_store_n(&verbose_lookups, verbose, __ATOMIC_RELAXED);
}

unsigned
ca_loader_sources(void)
{
	return atomic_load_explicit(&roads, memory_order_relaxed);
}

static void
note_source(const char *road, const char *name, enum ca_answer outcome)
{
	unsigned bit = ca_early_equal(road, "dlsym") ? CA_ROAD_DLSYM : CA_ROAD_GETPROC;

	if (outcome == CA_ANSWER_OURS && !(ca_loader_sources() & bit) &&
	    !ca_early_starts_with(name, "cuGetProcAddress"))
		atomic_fetch_or_explicit(&roads, bit, memory_order_relaxed);
}

void
ca_loader_note_lookup(const char *road, const char *name, enum ca_answer outcome)
{
	static const char *const texts[] = {
		[CA_ANSWER_OURS] = "ours",
		[CA_ANSWER_THUNK] = "counted",
	};

	note_source(road, name, outcome);
	if (outcome != CA_ANSWER_DRIVER && __atomic_load_n(&verbose_lookups, __ATOMIC_RELAXED))
		ca_debug("asked for %s by %s: %s", name, road, texts[outcome]);
}

static uintptr_t
route_unknown(const char *name, uintptr_t real)
{
	uintptr_t thunk;
	unsigned type;

	if (!ca_object_driver_defines(name, real, &type) || type == STT_OBJECT)
		return 0;
	if (type != STT_FUNC) {
		ca_unseen_note_lookup();
		return 0;
	}
	thunk = ca_unseen_thunk(real);
	ca_loader_note_lookup("dlsym", name, thunk ? CA_ANSWER_THUNK : CA_ANSWER_DRIVER);
	return thunk;
}

static uintptr_t
route_explicit(void *handle, const char *name, uintptr_t caller)
{
	const struct ca_row *hook = ca_row_of_hook(name);
	ca_dlsym_fn *real_dlsym = ca_loader_dlsym();
	uintptr_t real;

	if (!real_dlsym || (!hook && ca_name_is_symbol(name)) || ca_object_driver_holds(caller))
		return 0;
	real = (uintptr_t)real_dlsym(handle, name);
	if (!real)
		return 0;
	if (!hook)
		return route_unknown(name, real);
	if (!ca_object_driver_holds(real))
		return 0;
	ca_loader_note_lookup("dlsym", name, CA_ANSWER_OURS);
	return hook->hook;
}

static void
count_scoped(const char *name, uintptr_t caller)
{
	unsigned type;

	if (ca_row_of_hook(name) || ca_name_is_symbol(name) || ca_object_driver_holds(caller))
		return;
	if (ca_object_driver_defines(name, 0, &type) && type != STT_OBJECT)
		ca_unseen_note_lookup();
}

struct wrapper {
	uintptr_t caller;
	bool passed_self;
	bool after_us;
};

static bool
visit_wrapper(const struct ca_object *object, void *arg)
{
	struct wrapper *wrapper = arg;

	if (ca_object_holds(object, (uintptr_t)ca_dlsym_trampoline))
		wrapper->passed_self = true;
	if (!ca_object_holds(object, wrapper->caller))
		return false;
	wrapper->after_us = wrapper->passed_self && ca_object_symbol(object, "dlsym", NULL);
	return true;
}

static uintptr_t
route_dlsym(void *handle, const char *name, uintptr_t caller)
{
	struct wrapper wrapper = { .caller = caller };
	ca_dlsym_fn *real_dlsym = ca_loader_dlsym();

	ca_object_walk(visit_wrapper, &wrapper);
	if (!real_dlsym || wrapper.after_us ||
	    (uintptr_t)real_dlsym(handle, name) != (uintptr_t)real_dlsym)
		return 0;
	return (uintptr_t)ca_dlsym_trampoline;
}

static __attribute__((noinline)) uintptr_t
route_named(void *handle, const char *name, uintptr_t caller, bool scoped)
{
	uintptr_t answer = 0;
	CA_KEEP_ERRNO;

	if (scoped)
		count_scoped(name, caller);
	else if (name[0] == 'c')
		answer = route_explicit(handle, name, caller);
	else
		answer = route_dlsym(handle, name, caller);
	return answer;
}

/* Of cuFile, libcxi, gdrcopy, libibverbs, libmlx5. */
static enum ca_registration
registration_of(const char *name)
{
	if (name[0] != 'c' && name[0] != 'g' && name[0] != 'i' && name[0] != 'm')
		return CA_REGISTRATION_NONE;
	return ca_registration_of(name);
}

/* In a forked child the loader's lock may be held for ever by a thread that the child has not: only
 * a name of the driver's is worth the risk. */
static void
look_at_variables(const char *name)
{
	if ((name && ca_name_is_drivers(name)) || !ca_variables_in_forked_child())
		ca_variables_restore(ca_object_generation());
}

struct ca_dlsym_way
ca_dlsym_route(void *handle, const char *name, uintptr_t caller)
{
	bool scoped = handle == RTLD_NEXT || handle == RTLD_DEFAULT;
	struct ca_dlsym_way way = {
		.jump = (uintptr_t)(scoped ? ca_loader_dlsym() : ca_loader_next_dlsym()),
	};
	enum ca_registration which;

	atomic_fetch_add_explicit(&ca_loader_lookups, 1, memory_order_release);
	look_at_variables(name);
	ca_registration_look();
	if (!name)
		return way;
	which = registration_of(name);
	if (which != CA_REGISTRATION_NONE)
		way.answer = ca_route_registration(which, handle, NULL, caller);
	else if (ca_name_is_drivers(name))
		way.answer = route_named(handle, name, caller, scoped);
	else if (!scoped && name[0] == 'd' && ca_early_equal(name, "dlsym"))
		way.answer = route_named(handle, name, caller, false);
	return way;
}

struct ca_dlsym_way
ca_dlvsym_route(void *handle, const char *name, const char *version, uintptr_t caller)
{
	struct ca_dlsym_way way = { .jump = (uintptr_t)ca_loader_dlvsym() };
	enum ca_registration which;

	atomic_fetch_add_explicit(&ca_loader_lookups, 1, memory_order_release);
	look_at_variables(name);
	ca_registration_look();
	which = name && version ? registration_of(name) : CA_REGISTRATION_NONE;
	if (which != CA_REGISTRATION_NONE)
		way.answer = ca_route_registration(which, handle, version, caller);
	return way;
}
