/* SPDX-License-Identifier: MIT */
/*
 * Registration thunks are assembled once (thunks_*.S); thunk i jumps to slot i of a table.
 * Slots are filled from the front by compare-and-swap and never emptied: a library that is unloaded
 * leaves a thunk that nobody has any more, and serves again if it comes back to the same address.
 */
#include "shim/bind/registrations.h"

#include <stdatomic.h>
#include <stddef.h>

#include "shim/bind/early.h"
#include "shim/bind/object.h"
#include "shim/bind/scope.h"

const char *const ca_registration_names[CA_REGISTRATION_COUNT] = {
#define CA_REGISTRATION(name, how) [CA_REGISTRATION_##name] = #name,
#include "shim/bind/registrations.def"
};

uintptr_t ca_registration_targets[CA_REGISTRATION_THUNKS];
/* 1 + which, written after the target; 0: not yet */
static _Atomic unsigned char kinds[CA_REGISTRATION_THUNKS];
static const struct ca_registration_listener *_Atomic listening;
static atomic_bool missed;

enum ca_registration
ca_registration_of(const char *name)
{
	unsigned low = 0, high = CA_REGISTRATION_COUNT;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		int order = ca_early_compare(ca_registration_names[middle], name);

		if (!order)
			return (enum ca_registration)middle;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return CA_REGISTRATION_NONE;
}

void
ca_registration_miss(void)
{
	const struct ca_registration_listener *listener;

	if (atomic_exchange(&missed, true))
		return;
	listener = atomic_load(&listening);
	if (listener)
		listener->missed();
}

/* The slot is the function's, under that name or (then it is not) another. */
static bool
is_slot_of(unsigned i, enum ca_registration which)
{
	unsigned char none = 0, own = (unsigned char)(which + 1);

	return atomic_compare_exchange_strong(&kinds[i], &none, own) || none == own;
}

uintptr_t
ca_registration_thunk(enum ca_registration which, uintptr_t real)
{
	if (ca_registration_is_thunk(real))
		return real;
	for (unsigned i = 0; i < CA_REGISTRATION_THUNKS; i++) {
		uintptr_t held = 0;

		if (!__atomic_compare_exchange_n(&ca_registration_targets[i], &held, real, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
		    held != real)
			continue;
		if (is_slot_of(i, which))
			return (uintptr_t)ca_registration_thunks +
			       (uintptr_t)i * CA_REGISTRATION_THUNK_BYTES;
	}
	return 0;
}

bool
ca_registration_is_thunk(uintptr_t address)
{
	return address - (uintptr_t)ca_registration_thunks <
	       (uintptr_t)CA_REGISTRATION_THUNKS * CA_REGISTRATION_THUNK_BYTES;
}

bool
ca_registration_set_callback(const struct ca_registration_listener *listener)
{
	atomic_store(&listening, listener);
	return atomic_load(&missed);
}

void
ca_registration_look(void)
{
	const struct ca_registration_listener *listener = atomic_load(&listening);

	if (listener)
		listener->loaded();
}

void
ca_registration_enter(uint64_t thunk, const uint64_t *arguments)
{
	const struct ca_registration_listener *listener = atomic_load(&listening);
	unsigned kind = atomic_load(&kinds[thunk]);
	CA_KEEP_ERRNO;

	if (listener && kind)
		listener->called((enum ca_registration)(kind - 1), arguments);
}
