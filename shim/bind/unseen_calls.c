/* SPDX-License-Identifier: MIT */
/*
 * Counting thunks for entry points that we do not know.
 *
 * The code is assembled once (thunks_*.S); thunk i jumps to slot i of a table. Slots are filled
 * from the front by compare-and-swap and never emptied, so a target that is there stands before the
 * first empty slot, and two threads that bring the same target meet in the same slot.
 */
#include "shim/bind/unseen_calls.h"

#include "shim/bind/trampoline.h"

uintptr_t ca_thunk_targets[CA_THUNK_COUNT];
uint64_t ca_thunk_calls;
void (*ca_thunk_alarm)(void);
static uint64_t lookups;

uint64_t
ca_unseen_calls(void)
{
	return __atomic_load_n(&ca_thunk_calls, __ATOMIC_RELAXED) +
	       __atomic_load_n(&lookups, __ATOMIC_RELAXED);
}

void
ca_unseen_set_callback(void (*alarm)(void))
{
	__atomic_store_n(&ca_thunk_alarm, alarm, __ATOMIC_RELEASE);
}

void
ca_unseen_raise(void)
{
	void (*alarm)(void) = __atomic_load_n(&ca_thunk_alarm, __ATOMIC_ACQUIRE);

	if (alarm)
		alarm();
}

void
ca_unseen_note_lookup(void)
{
	__atomic_fetch_add(&lookups, 1, __ATOMIC_RELAXED);
}

uintptr_t
ca_unseen_thunk(uintptr_t target)
{
	for (unsigned i = 0; i < CA_THUNK_COUNT; i++) {
		uintptr_t held = 0;

		if (__atomic_compare_exchange_n(&ca_thunk_targets[i], &held, target, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
		    held == target)
			return (uintptr_t)ca_thunks + (uintptr_t)i * CA_THUNK_BYTES;
	}
	ca_unseen_note_lookup();
	return 0;
}

bool
ca_unseen_is_thunk(uintptr_t address)
{
	return address - (uintptr_t)ca_thunks < (uintptr_t)CA_THUNK_COUNT * CA_THUNK_BYTES;
}
