/* SPDX-License-Identifier: MIT */
/*
 * The cache's budget (give_back:early): segments that nothing uses go back to the driver before the
 * cache outgrows what the program has needed, not only when the driver has nothing left.
 *
 * Everything here wants the heap's lock; what takes a space may leave and retake it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_block;
struct ca_space;

enum { CA_GIVEN_MAX = 64 };

/* One a device. All zero: nothing has happened so far. */
struct ca_budget {
	uint64_t given[CA_GIVEN_MAX]; /* bytes of segments given back lately; 0: none */
	unsigned given_next;          /* the entry to write next */
	uint64_t regret_bytes;        /* what was given back and then asked for again */
	uint64_t refused_at;          /* stats.alloc_calls when the driver last had no more */
	bool refused;                 /* it had no more, and the program needed most of it */
	uint64_t declined;            /* allocations with a free block not cut, of what may be */
	uint64_t declined_for;        /* heap->requests at the last one */
	uint64_t declined_until;      /* stats.alloc_calls for which `declined` was last lowered */
	unsigned in_vain;             /* moments in which the device did not become idle, lately */
	unsigned not_now;             /* growths until the next moment */
};

/*
 * The free block that a search found for `bytes` (NULL: none), or another one of the same index, or
 * NULL where it is better left whole: the segment goes back, or the request gets memory of its own.
 */
struct ca_block *ca_budget_choose_locked(struct ca_space *space, struct ca_block *block,
					 uint64_t bytes);
/* True if the block may be cut for `bytes` all the same. */
bool ca_budget_allows_locked(struct ca_space *space, const struct ca_block *block, uint64_t bytes);
/*
 * Before a segment is taken for a request of `bytes`: gives unused segments back as far as the
 * cache would outgrow the budget. Only while the device has nothing to do, which is looked at for a
 * moment, never waited for; not while anything captures.
 */
void ca_budget_make_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes);
/* A segment was taken. */
void ca_budget_taken_locked(struct ca_space *space, uint64_t segment_bytes);
/* The driver has no segment for `bytes`. */
void ca_budget_refused_locked(struct ca_space *space, uint64_t bytes);
/* What to ask of the driver for `bytes` when it has no more than that: whole pages, which it would
 * use in any case, unless a limit that the user set forbids them. */
uint64_t ca_budget_exact(const struct ca_space *space, uint64_t bytes);
