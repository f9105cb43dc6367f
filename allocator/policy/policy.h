/* SPDX-License-Identifier: MIT */
/*
 * The cache's budget (give_back:early): segments that nothing uses go back to the driver before the
 * cache outgrows what the program has needed, not only when the driver has nothing left; and while
 * the device is busy, as soon as it is found idle.
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
	uint64_t idle_at;             /* stats.alloc_calls when the device was last seen idle */
	bool keeps_up;                /* the device does with the host, when last looked at */
	bool cuts;                    /* no search counts on giving a segment back */
	unsigned in_vain;             /* moments in which the device did not become idle, lately */
	unsigned not_now;             /* growths until the next moment */
};

/* The free block that a search found for `bytes` (NULL: none), or NULL where it is better left
 * whole: the segment goes back, or the request gets memory of its own. */
struct ca_block *ca_budget_choose_locked(struct ca_space *space, struct ca_block *block,
					 uint64_t bytes);
/* True if the block may be cut for `bytes` all the same. */
bool ca_budget_allows_locked(struct ca_space *space, const struct ca_block *block, uint64_t bytes);
/*
 * Before a segment is taken for a request of `bytes`: gives unused segments back as far as the
 * cache would outgrow the budget. Only while the device has nothing to do, which is looked at for a
 * moment, never waited for; not while anything captures. False: nothing went back, so a block that
 * was left whole for that is to be cut (ca_budget_find_cut_locked).
 */
bool ca_budget_make_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes);
/* As ca_owned_find_locked, but nothing is left whole because a segment could go back. */
struct ca_block *ca_budget_find_cut_locked(struct ca_space *space, uint64_t bytes);
/* The segment to take where one of `segment_bytes` would do: while the device does not keep up, as
 * large as one that was given back and would have served. */
uint64_t ca_budget_restored(const struct ca_space *space, uint64_t segment_bytes);
/* While the device does not keep up, but is idle just now: gives back what is beyond the budget. */
void ca_budget_tidy_locked(struct ca_space *space);
/* A segment was taken. */
void ca_budget_taken_locked(struct ca_space *space, uint64_t segment_bytes);
/* The driver has no segment for `bytes`. */
void ca_budget_refused_locked(struct ca_space *space, uint64_t bytes);
/* What to ask of the driver for `bytes` when it has no more than that: whole pages, which it would
 * use in any case, unless a limit that the user set forbids them. */
uint64_t ca_budget_exact(const struct ca_space *space, uint64_t bytes);
