/* SPDX-License-Identifier: MIT */
/*
 * Where blocks lie in a growable range of addresses, and where memory is mapped in it.
 *
 * Two areas, one of small requests and one of the rest, each as long as anybody wants. Memory comes
 * in handles: of one page (2 MiB), or, in the area of the rest, of several (20 MiB) on multiples
 * of their size. A request gets the smallest free mapped piece that fits; where there is none, the
 * place at which the least memory has to be mapped. As long as no more is mapped than the peak of
 * what is live and a slack, it is new memory; beyond that handles that hold nothing live move to
 * where they are needed, the highest ones first.
 *
 * Placement alone: nothing here calls a driver, knows the time, or waits. A caller hears of each
 * step that it has to take, and tells by whom memory that is given back may still be used. Such
 * memory is for that user at once, and for others when it is finished. A handle that its only user
 * may still be using moves to that user alone: it is mapped at its new place first, and the old
 * place stays until the work is finished. Beyond the slack a user may also have memory of others,
 * behind a wait of its own for their work.
 *
 * Not thread-safe. Records come from the caller's arena; errno is kept.
 */
#pragma once

#include "allocator/util/arena.h"
#include "allocator/util/tree.h"

#define CA_RANGE_PAGE ((uint64_t)2 << 20) /* bytes */

enum {
	CA_RANGE_SLOT = 10,               /* pages of a large handle */
	CA_RANGE_USERS = 64,              /* users, 0 to 63 */
	CA_RANGE_NOBODY = CA_RANGE_USERS, /* the user of what is finished */
};

enum ca_range_step_kind {
	CA_RANGE_CREATE, /* a new handle is mapped at `to` */
	CA_RANGE_MOVE,   /* the handle mapped at `from` is mapped at `to`, too */
	CA_RANGE_UNMAP,  /* nothing is mapped at `from` any more; the handle went by a MOVE */
	CA_RANGE_RETURN, /* the same, and the handle goes back to the driver */
	CA_RANGE_GUARD,  /* before the block is used, `user` waits for `owner`'s work up to `stamp`
			  */
};

struct ca_range_step {
	enum ca_range_step_kind kind;
	uint64_t from, to; /* addresses in the range */
	uint64_t bytes;    /* of the handle */
	bool early;        /* MOVE: work of `user` may still use it at `from` */
	unsigned user;
	unsigned owner; /* GUARD */
	uint64_t stamp; /* GUARD */
};

struct ca_range_config {
	uint64_t capacity;      /* bytes that may be mapped at a time */
	uint64_t large_from;    /* bytes live: below it only handles of one page are made */
	bool guards;            /* beyond the slack others' memory is had behind a GUARD */
	unsigned slack_percent; /* of the peak of what is live */
	void *arg;
	/* Whether the user's work up to `stamp` is known to be finished. */
	bool (*is_finished)(void *arg, unsigned user, uint64_t stamp);
	void (*step)(void *arg, const struct ca_range_step *step);
};

struct ca_range_sums {
	uint64_t live_bytes, peak_live_bytes;     /* as asked for */
	uint64_t mapped_bytes, peak_mapped_bytes; /* of memory, however often it is mapped */
	uint64_t steps[CA_RANGE_GUARD + 1];       /* by enum ca_range_step_kind */
};

/* allocator/range/inside.h */
struct ca_range;

/* NULL: no memory for records. */
struct ca_range *ca_range_new(struct ca_arena *arena, const struct ca_range_config *config);
/* For that user. -ENOMEM: records; CA_RANGE_FULL: more than the capacity would have to be mapped.
 */
enum { CA_RANGE_FULL = 1 };
int ca_range_alloc(struct ca_range *range, uint64_t bytes, unsigned user, uint64_t *ret_address);
/* Work of the user up to `stamp`, no less than what was told of the user before, may still use it;
 * NOBODY: none, that of a GUARD for it included. -ENOENT: no block begins there; -ENOMEM: records,
 * and nothing was done. */
int ca_range_free(struct ca_range *range, uint64_t address, unsigned user, uint64_t stamp);
/* Takes the steps that have become possible since. */
void ca_range_poll(struct ca_range *range);
void ca_range_look(const struct ca_range *range, struct ca_range_sums *ret_sums);
/* Walks all records. NULL: they are sound; else what is not. */
const char *ca_range_check(const struct ca_range *range);
