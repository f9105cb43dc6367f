/* SPDX-License-Identifier: MIT */
/*
 * The real function is asked for first, and a thunk for it is the answer; a miss goes on to the
 * real dlsym, which sets dlerror.
 *
 * The meaning of RTLD_DEFAULT depends on the caller: first the global scope, which is the same for
 * all, then the caller's own, for which its own handle is asked. RTLD_NEXT always goes on. A
 * wrapper that defines the name itself is called through a thunk of its own, and only passes on
 * what was seen there; anybody else gets hold of the function without our seeing its calls.
 */
#include "shim/bind/dlsym_registration.h"

#include <dlfcn.h>

#include "shim/bind/loader.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"

enum { PATH_BYTES = 4096 };

static uintptr_t
query(void *handle, const char *name, const char *version)
{
	ca_dlsym_fn *real_dlsym = ca_loader_dlsym();
	ca_dlvsym_fn *real_dlvsym = ca_loader_dlvsym();

	if (version)
		return real_dlvsym ? (uintptr_t)real_dlvsym(handle, name, version) : 0;
	return real_dlsym ? (uintptr_t)real_dlsym(handle, name) : 0;
}

struct place {
	const char *name;
	uintptr_t caller;
	bool passed_caller;
	bool by_caller; /* the caller defines the name */
	bool after;     /* so does somebody behind it */
	bool anywhere;
	bool by_program; /* which sees the global scope only */
	char *path;      /* PATH_BYTES, of the caller; "": the program, or too long */
};

static bool
visit_place(const struct ca_object *object, void *arg)
{
	struct place *place = arg;
	bool is_caller = ca_object_holds(object, place->caller);
	bool defines = ca_object_symbol(object, place->name, NULL) != 0;
	unsigned i;

	place->anywhere |= defines;
	place->by_caller |= is_caller && defines;
	place->after |= place->passed_caller && defines;
	if (!is_caller)
		return false;
	place->passed_caller = true;
	place->by_program = !object->path[0];
	for (i = 0; i < PATH_BYTES - 1 && object->path[i]; i++)
		place->path[i] = object->path[i];
	place->path[object->path[i] ? 0 : i] = '\0';
	return false;
}

/* In what the caller's object needs. */
static uintptr_t
query_own(const struct place *place, const char *version)
{
	ca_dlopen_fn *real_dlopen = ca_loader_dlopen();
	ca_dlclose_fn *real_dlclose = ca_loader_dlclose();
	uintptr_t real = 0;
	void *handle;

	if (!place->path[0] || !real_dlopen || !real_dlclose)
		return 0;
	handle = real_dlopen(place->path, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return 0;
	real = query(handle, place->name, version);
	real_dlclose(handle);
	return real;
}

static uintptr_t
find_scoped(void *handle, const char *name, const char *version, uintptr_t caller)
{
	char path[PATH_BYTES];
	struct place place = { .name = name, .caller = caller, .path = path };
	uintptr_t real = handle == RTLD_DEFAULT ? query(handle, name, version) : 0;

	if (real)
		return real;
	place.path[0] = '\0';
	ca_object_walk(visit_place, &place);
	if (handle == RTLD_DEFAULT) {
		real = place.anywhere ? query_own(&place, version) : 0;
		if (!real && place.anywhere && !place.by_program)
			ca_registration_miss();
		return real;
	}
	if (place.after && !place.by_caller &&
	    (!place.by_program || query(RTLD_DEFAULT, name, version)))
		ca_registration_miss();
	return 0;
}

uintptr_t
ca_route_registration(enum ca_registration which, void *handle, const char *version,
		      uintptr_t caller)
{
	const char *name = ca_registration_names[which];
	bool scoped = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
	CA_KEEP_ERRNO;
	uintptr_t real;

	real = scoped ? find_scoped(handle, name, version, caller) : query(handle, name, version);
	if (real) {
		real = ca_registration_thunk(which, real);
		if (!real)
			ca_registration_miss();
	}
	if (real)
		ca_loader_note_lookup(version ? "dlvsym" : "dlsym", name, CA_ANSWER_OURS);
	return real;
}
