/* SPDX-License-Identifier: MIT */
/*
 * Contexts: which are alive, which space of the heap each owns, and who may call into the driver
 * for it.
 *
 * Every context of the process is registered when it is created (or first seen), since a mark must
 * cover all of them: a copy submitted in one context may touch memory of another. A context is
 * looked up by handle in a list of the living (one to a few entries); a record is never reused for
 * another context, so a stale pointer to a dead one is harmless.
 *
 * Before a context is destroyed its record is closed: no internal driver call for it starts any
 * more, and those in flight have ended. Several calls may close it at once (two holders of a
 * primary context release it): it is open again when all have returned and it lives. A green
 * context has no space: its allocations pass through, and the mark of its primary context covers
 * its work (cuda.h, cuCtxRecordEvent).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/api/heap.h"
#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

struct ca_mark_part;
struct ca_process;

enum ca_context_kind {
	CA_CONTEXT_CREATED,
	CA_CONTEXT_PRIMARY,
	CA_CONTEXT_GREEN,
};

struct ca_context {
	CUcontext handle; /* constant */
	/* In the list of the living; kept when unlinked. Beside the handle, so that a walk touches
	 * one line of each record. */
	struct ca_context *_Atomic next;
	unsigned long long id; /* cuCtxGetId, 0 where the driver has none; constant */
	CUdevice device;       /* ordinal; constant */
	_Atomic enum ca_context_kind kind;
	_Atomic unsigned usage; /* cuCtxCreate + cuCtxAttach - cuCtxDetach */
	/* Of a primary context, those that were seen, less the releases. Green contexts, and what
	 * was not seen, hold it, too. */
	_Atomic unsigned retains;
	struct ca_space *_Atomic space; /* NULL until the first allocation */
	_Atomic bool counts_space;      /* in ca_context_spaces */
	_Atomic unsigned users;         /* internal driver calls in flight */
	_Atomic unsigned closing;   /* calls in flight that may destroy it; stays up when one did */
	_Atomic bool dead;          /* destroyed */
	struct ca_mark_part *spare; /* parts with an event, ready for use; under the marks' lock */
	_Atomic unsigned unmade;    /* events for marks of it, as the device was full, in a row */
	CUstream _Atomic marker; /* a stream of ours, to mark the legacy stream; NULL: none yet */
	/* A stream of ours that depends on no other, to fill memory and for the control of a trial;
	 * NULL: none yet. */
	CUstream _Atomic filler;
	_Atomic unsigned needs;    /* assumptions (shim/track/assumptions.h) that it rests on */
	_Atomic unsigned kept;     /* of these, known to be kept */
	_Atomic unsigned rejected; /* known to be broken, or never to be tried */
	/* page-locked memory: so many frees came before a synchronisation of the context that has
	 * ended (shim/pinned/pinned_marks.c) */
	_Atomic uint64_t pinned_frees;
	/* of the one thread that tries an assumption */
	CUevent tried, control, before; /* recorded in a trial; NULL: not made yet */
	_Atomic uint32_t *word;         /* page-locked; NULL: not made yet */
	uint32_t word_value;            /* the largest that was written or waited for */
	unsigned failed_trials;         /* trials in which even the control did not end */
	_Atomic uint64_t next_trial_ns; /* not before, by the monotonic clock */
	unsigned trial_gap_us;          /* between the last trial and the next */
};

/* The living, newest first. Safe to walk without a lock. */
struct ca_context *ca_context_first(void);
struct ca_context *ca_context_next(struct ca_context *context);

/* True if the process has one context, as far as is known. */
bool ca_context_is_only(void);
/* The record of `handle`, or NULL. */
struct ca_context *ca_context_find(CUcontext handle);
/* Finds or makes the record of a context that the driver just returned. NULL: no memory. `device` <
 * 0: asks the driver, which must have the context current. */
struct ca_context *ca_context_register(const struct ca_real *real, CUcontext handle,
				       CUdevice device, enum ca_context_kind kind);
/* The calling thread's current context; NULL: there is none, or the driver does not say. */
CUcontext ca_context_current(const struct ca_real *real);
/* The space that a context of `device` has; NULL: none has one. */
struct ca_space *ca_context_space_on(CUdevice device);
/* The space that serves the calling thread's current context; NULL: pass the call through. */
struct ca_space *ca_context_space(const struct ca_real *real);
/* The same; *ret_current: that context's handle. It stays that space as long as ca_capture_word,
 * read before, does not move. */
struct ca_space *ca_context_space_current(const struct ca_real *real, CUcontext *ret_current);
/* The same of a context that has a space; NULL: it has none so far, or never will. No driver call.
 */
struct ca_space *ca_context_known_space(CUcontext handle);
struct ca_space *ca_context_make_space(struct ca_process *process, struct ca_context *context);
/* Of a dead context. Two threads may both do it: it is counted out once. */
void ca_context_kill_space(struct ca_context *context, struct ca_space *space);
/* The space of a context that is not green. NULL: no memory. */
static inline struct ca_space *
ca_context_open_space(struct ca_process *process, struct ca_context *context)
{
	struct ca_space *space = atomic_load_explicit(&context->space, memory_order_acquire);

	return space ? space : ca_context_make_space(process, context);
}

/* Living contexts with a space. */
extern _Atomic unsigned ca_context_spaces __attribute__((visibility("hidden")));
/* True if work of one space could touch another's memory. */
static inline bool
ca_context_multiple(void)
{
	return atomic_load_explicit(&ca_context_spaces, memory_order_relaxed) > 1;
}

/* Before and after an internal driver call for `context`. False: it is closed, make no call. */
bool ca_context_enter(struct ca_context *context);
void ca_context_leave(struct ca_context *context);
/* Makes `context` current (unless it is), and undoes it. 0 or the driver's code. */
CUresult ca_context_push(const struct ca_real *real, struct ca_context *context, bool *ret_pushed);
void ca_context_pop(const struct ca_real *real, bool pushed);
/* Makes a stream of the library's own, unless it is there: `marker` or `filler` of the current
 * context. Of two threads that make one, one keeps it. */
CUresult ca_context_own_stream(const struct ca_real *real, CUstream _Atomic *stream,
			       unsigned flags);

/*
 * Calls of the real driver that retain, release or reset the primary context of `device` run one at
 * a time (also natively: the driver has one count of usages): else a release could not tell whether
 * it ended the context, when another thread retained it anew meanwhile.
 */
void ca_context_primary_lock(CUdevice device);
void ca_context_primary_unlock(CUdevice device);

/*
 * ca_lookup for a hook. While a context dies, the driver may already have handed its memory out
 * anew, although our records of it are not gone yet: an answer from a closed context's records is
 * awaited until it is dead or open.
 */
int ca_context_lookup(struct ca_heap *heap, uint64_t address, struct ca_block_info *ret_info);
/* Between close and reopening or burial. */
extern _Atomic unsigned ca_context_closings __attribute__((visibility("hidden")));
/* True while any context is closed: then a hook looks an address up before it frees it. */
static inline bool
ca_context_any_closed(void)
{
	return atomic_load(&ca_context_closings) != 0;
}

/* Around the real call that may destroy it: close; then either bury (ca_context_teardown) or
 * reopen. */
void ca_context_close(struct ca_context *context);
void ca_context_open_again(struct ca_context *context);
/* The last step of a burial: the handle may mean another context from then on. */
void ca_context_unlink(struct ca_context *context);

/* In a forked child: nothing is known. True: the process, or one that it was forked from, has had a
 * context, so that the driver refuses the child every call. */
bool ca_context_after_fork_child(void);
