/* SPDX-License-Identifier: MIT */
#include "shim/hooks/late_free.h"

#include <stdatomic.h>

#include "allocator/told/told.h"
#include "shim/driver/told_pools.h"
#include "shim/hooks/hook.h"
#include "shim/state/record_arena.h"
#include "shim/track/captures.h"
#include "shim/track/streams.h"

enum {
	PART_NOTES = 64,
	TOLD = 1, /* in a serial's lowest bit */
};

enum { EMPTY, IN_USE, NOTED };

struct late_free {
	_Atomic unsigned state;
	_Atomic uint64_t thread; /* which noted it, and is the one that does it; 0: any */
	CUdeviceptr address;
	/* Of the block: its context may end before, and the address be another's by then. */
	uint64_t serial;
};

/* Kept for ever. */
static struct part {
	struct late_free note[PART_NOTES];
	_Atomic unsigned taken; /* notes; what is full or empty need not be looked at */
	struct part *_Atomic next;
} first;
static _Atomic unsigned n_noted;

#define EACH_PART(part) for (struct part *part = &first; part; part = atomic_load(&part->next))
#define EACH_NOTE(late, part)                                                                      \
	for (struct late_free *late = (part)->note; late < (part)->note + PART_NOTES; late++)

/* 0: not ours. Otherwise *ret_live tells whether a block in use begins there. */
static uint64_t
serial_of(struct ca_heap *heap, CUdeviceptr dptr, bool *ret_live)
{
	struct ca_block_info info;
	struct ca_told_info told;

	if (!ca_lookup(heap, dptr, &info)) {
		*ret_live = info.live && info.address == dptr;
		return (info.serial + 1) << 1;
	}
	if (!atomic_load(&ca_told_on) || ca_told_lookup(heap, dptr, &told))
		return 0;
	*ret_live = told.live && told.address == dptr;
	return (told.serial + 1) << 1 | TOLD;
}

/* The thread, as its notes name it; 0 where nobody would come. */
static __thread uint64_t own_thread __attribute__((tls_model("initial-exec")));

static void
thread_ends(void *ignored)
{
	own_thread = 0;
	EACH_PART(part) {
		EACH_NOTE(late, part) {
			uint64_t thread = ca_order_thread();

			atomic_compare_exchange_strong(&late->thread, &thread, 0);
		}
	}
}

static void
note_thread(void)
{
	static __thread bool noted_once __attribute__((tls_model("initial-exec")));

	if (!noted_once && ca_streams_at_thread_end(thread_ends))
		own_thread = ca_order_thread();
	noted_once = true;
}

/* True: there is room, now or since then. */
static bool
add_part(void)
{
	struct part *last = &first, *next, *part = ca_slab_take(sizeof(*part));

	while ((next = atomic_load(&last->next)))
		last = next;
	return part && (atomic_compare_exchange_strong(&last->next, &next, part) || next);
}

/* There is one: not more are taken than there are. */
static struct late_free *
find_empty_in(struct part *part)
{
	for (;;) {
		EACH_NOTE(late, part) {
			unsigned state = EMPTY;

			if (atomic_compare_exchange_strong(&late->state, &state, IN_USE))
				return late;
		}
	}
}

static struct late_free *
find_empty(void)
{
	do {
		EACH_PART(part) {
			if (atomic_fetch_add(&part->taken, 1) < PART_NOTES)
				return find_empty_in(part);
			atomic_fetch_sub(&part->taken, 1);
		}
	} while (add_part());
	return NULL;
}

bool
ca_late_free_note(CUdeviceptr dptr, CUresult *ret_rc)
{
	struct ca_process *process = ca_process();
	struct late_free *late;
	uint64_t serial = 0;
	bool is_live = false;
	CA_KEEP_ERRNO;

	if (process && process->caches && dptr)
		serial = serial_of(process->heap, dptr, &is_live);
	if (!serial)
		return false;
	*ret_rc = CUDA_ERROR_INVALID_VALUE;
	if (!is_live)
		return true;
	note_thread();
	late = find_empty();
	*ret_rc = late ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (!late)
		return true;
	atomic_store(&late->thread, own_thread);
	late->address = dptr;
	late->serial = serial;
	atomic_fetch_add(&n_noted, 1);
	if (serial & TOLD)
		ca_told_slow_begin(process->heap);
	atomic_store(&late->state, NOTED);
	ca_quick.looks = 1;
	return true;
}

/* The free names no stream: the name that the program used may be another stream's by now, or in
 * another thread or context. So all that works is a user. */
static CUresult
free_now(struct ca_heap *heap, const struct late_free *late)
{
	if (late->serial & TOLD)
		return (CUresult)ca_told_free(heap, late->address, NULL);
	return cuMemFree_v2(late->address);
}

/* The thread that noted it does it: then the call that it came in has returned, and its work is
 * known. */
static bool
is_own(const struct late_free *late)
{
	uint64_t thread = atomic_load(&late->thread);

	return !thread || thread == ca_order_thread();
}

/* While something captures, a free that names no stream would invalidate that. */
static bool
is_due(const struct late_free *late)
{
	return is_own(late) && (late->serial & TOLD || !ca_capture_active());
}

/* A free that a capture prohibits is tried again; one that is refused otherwise loses its memory.
 */
static void
do_one(struct ca_heap *heap, struct part *part, struct late_free *late)
{
	unsigned state = NOTED;
	bool is_live = false;
	CUresult rc = CUDA_SUCCESS;

	if (!atomic_compare_exchange_strong(&late->state, &state, IN_USE))
		return;
	if (!is_due(late)) { /* it is another by now */
		atomic_store(&late->state, NOTED);
		return;
	}
	if (serial_of(heap, late->address, &is_live) == late->serial && is_live)
		rc = free_now(heap, late);
	if (ca_capture_is_error(rc)) {
		atomic_store(&late->state, NOTED);
		return;
	}
	if (late->serial & TOLD)
		ca_told_slow_end(heap);
	atomic_fetch_sub(&n_noted, 1);
	atomic_store(&late->state, EMPTY);
	atomic_fetch_sub(&part->taken, 1);
}

void
ca_late_free_all(void)
{
	struct ca_process *process = atomic_load(&n_noted) ? ca_hook_active_process() : NULL;
	CA_KEEP_ERRNO;

	if (!process)
		return;
	EACH_PART(part) {
		if (!atomic_load(&part->taken))
			continue;
		EACH_NOTE(late, part)
			if (atomic_load(&late->state) == NOTED && is_own(late))
				do_one(process->heap, part, late);
	}
}
