/* SPDX-License-Identifier: MIT */
/*
 * The calls: the smallest piece that fits, else the place at which least has to be mapped.
 *
 * A place is looked for in runs of pieces that the user may have and of gaps, at both ends of each
 * run: the low end first, the shorter run of two that need as much. On that way finished memory is
 * seen to be finished. As long as a range has one user all its free memory is that user's, so that
 * neighbours are one piece whether their work is finished or not.
 */
#include "allocator/range/range.h"

#include <errno.h>

#include "allocator/range/inside.h"
#include "allocator/util/list.h"

enum { SEVERAL = CA_RANGE_USERS + 1 };

static const uint64_t grain = 512; /* bytes: of blocks */
static const uint64_t small_max = (uint64_t)1
				  << 20; /* bytes: of requests in the area of small ones */
static const uint64_t area_distance = (uint64_t)1 << 47;

/* A place for a block. */
struct place {
	uint64_t address, missing; /* bytes to be mapped */
	uint64_t run;              /* bytes of the run that it is in */
	bool found;
};

struct ca_range *
ca_range_new(struct ca_arena *arena, const struct ca_range_config *config)
{
	struct ca_range *range = ca_arena_alloc(arena, sizeof(*range));

	if (!range)
		return NULL;
	range->config = *config;
	range->arena = arena;
	range->only_user = CA_RANGE_NOBODY;
	ca_objects_init(&range->pieces, arena, sizeof(struct ca_piece));
	ca_objects_init(&range->handles, arena, sizeof(struct ca_handle));
	for (unsigned i = 0; i < 2; i++) {
		range->area[i].range = range;
		range->area[i].base = area_distance * (i + 1);
		range->area[i].slot = i ? CA_RANGE_SLOT : 1;
		if (ca_piece_start(&range->area[i]))
			return NULL;
	}
	return range;
}

static struct ca_area *
area_of(struct ca_range *range, uint64_t address)
{
	return &range->area[address >= range->area[1].base];
}

/* ---------------------------------------------------------------- poll --- */
/* The old places whose user is done with them. */
static void
user_poll(struct ca_area *area, unsigned user)
{
	struct ca_range *range = area->range;
	const struct ca_range_config *config = &range->config;
	struct ca_tree_node *node;

	while ((node = ca_tree_first(&area->leaving[user]))) {
		struct ca_piece *piece = CA_CONTAINER_OF(node, struct ca_piece, size);
		struct ca_range_step taken = { .kind = CA_RANGE_UNMAP,
					       .from = piece->address,
					       .bytes = piece->bytes,
					       .user = user };

		if (!config->is_finished(config->arg, user, piece->stamp))
			return;
		range->n_leaving--;
		ca_piece_set(area, piece, CA_PIECE_GAP, CA_RANGE_NOBODY, 0);
		range->sums.steps[taken.kind]++;
		config->step(config->arg, &taken);
	}
}

void
ca_range_poll(struct ca_range *range)
{
	for (unsigned user = 0; user < CA_RANGE_USERS && range->n_leaving; user++)
		for (unsigned i = 0; i < 2; i++)
			user_poll(&range->area[i], user);
}

/* ---------------------------------------------------------- allocations --- */
/* The smallest free piece of its own, or of nobody. */
static struct ca_piece *
best_fit(const struct ca_area *area, uint64_t bytes, unsigned user)
{
	struct ca_tree_node *mine = ca_tree_at_least(&area->fits[user], bytes, 0),
			    *any = ca_tree_at_least(&area->fits[CA_RANGE_NOBODY], bytes, 0);

	if (!mine || (any && any->key < mine->key))
		mine = any;
	return mine ? CA_CONTAINER_OF(mine, struct ca_piece, size) : NULL;
}

static void
consider(const struct ca_area *area, const struct ca_piece *first, uint64_t run, uint64_t address,
	 uint64_t bytes, bool large, struct place *best)
{
	uint64_t missing = ca_handle_missing(area, first, address, bytes, large);

	if (best->found &&
	    (missing > best->missing || (missing == best->missing && run >= best->run)))
		return;
	*best = (struct place){ address, missing, run, true };
}

static void
consider_run(const struct ca_area *area, const struct ca_piece *first, uint64_t end, uint64_t bytes,
	     bool large, struct place *best)
{
	uint64_t run = end - first->address;

	if (run < bytes)
		return;
	consider(area, first, run, first->address, bytes, large, best);
	if (run < area_distance / 4) /* the last one has no upper end */
		consider(area, first, run, (end - bytes) / grain * grain, bytes, large, best);
}

/* The only user's: whatever is free is one piece, and no piece fits. So a run has a gap. */
static struct place
choose_at_gaps(const struct ca_area *area, uint64_t bytes, bool large)
{
	struct place best = { 0 };
	uint64_t seen = 0; /* runs up to here */

	for (struct ca_tree_node *node = ca_tree_first(&area->gaps); node;
	     node = ca_tree_next(node)) {
		struct ca_piece *gap = CA_CONTAINER_OF(node, struct ca_piece, size), *last = gap;
		const struct ca_piece *first = gap;

		if (gap->address < seen)
			continue;
		if (first->prev && first->prev->kind == CA_PIECE_FREE)
			first = first->prev; /* a gap before that has been seen */
		while (last->next &&
		       (last->next->kind == CA_PIECE_FREE || last->next->kind == CA_PIECE_GAP))
			last = last->next;
		seen = last->address + last->bytes;
		consider_run(area, first, seen, bytes, large, &best);
	}
	return best;
}

static struct place
choose(struct ca_area *area, uint64_t bytes, unsigned user, bool large)
{
	struct place best = { 0 };
	struct ca_piece *first = NULL;

	if (area->range->only_user < CA_RANGE_USERS)
		return choose_at_gaps(area, bytes, large);
	for (struct ca_piece *piece = area->first; piece; piece = piece->next) {
		struct ca_piece *usable = ca_piece_usable(area, piece, user);

		if (usable && usable != piece) {
			/* it has become one with what was before it, or that with it */
			first = first && first->address < usable->address ? first : usable;
			piece = usable;
		}
		if (!usable && piece->kind != CA_PIECE_GAP) {
			if (first)
				consider_run(area, first, piece->address, bytes, large, &best);
			first = NULL;
		} else if (!first) {
			first = piece;
		}
		if (first && !piece->next)
			consider_run(area, first, piece->address + piece->bytes, bytes, large,
				     &best);
	}
	return best;
}

/* The user waits for whoever may still be using the piece. */
static void
guard(struct ca_range *range, const struct ca_piece *piece, unsigned user)
{
	const struct ca_range_config *config = &range->config;
	struct ca_range_step taken = {
		.kind = CA_RANGE_GUARD, .user = user, .owner = piece->user, .stamp = piece->stamp
	};

	if (piece->user == user || piece->user == CA_RANGE_NOBODY ||
	    config->is_finished(config->arg, piece->user, piece->stamp))
		return;
	range->sums.steps[taken.kind]++;
	config->step(config->arg, &taken);
}

/* All of it, mapped and usable, as one piece. NULL: no records. */
static struct ca_piece *
unite(struct ca_area *area, uint64_t address, uint64_t bytes, unsigned user)
{
	uint64_t end = address + bytes;

	for (uint64_t at = address; at < end;) {
		struct ca_piece *piece = ca_piece_find(area, at);
		uint64_t stop = piece->address + piece->bytes;

		stop = stop < end ? stop : end;
		piece = ca_piece_cut(area, piece, at, stop - at);
		if (!piece)
			return NULL;
		guard(area->range, piece, user);
		ca_piece_set(area, piece, CA_PIECE_FREE, user, 0); /* all of it will be live */
		at = stop;
	}
	return ca_piece_cut(area, ca_piece_find(area, address), address, bytes);
}

static bool
makes_large(const struct ca_area *area, uint64_t bytes)
{
	const struct ca_range *range = area->range;
	uint64_t left = range->config.capacity - range->sums.mapped_bytes;

	return area->slot > 1 && range->sums.live_bytes + bytes >= range->config.large_from &&
	       left > range->config.capacity / 5;
}

/* Bytes that may be mapped before anything moves. */
static uint64_t
limit_with(const struct ca_range *range, uint64_t bytes)
{
	uint64_t peak = range->sums.live_bytes + bytes, limit;

	if (peak < range->sums.peak_live_bytes)
		peak = range->sums.peak_live_bytes;
	limit = peak + peak / 100 * range->config.slack_percent;
	return limit < range->config.capacity ? limit : range->config.capacity;
}

static bool
may_guard(const struct ca_range *range, uint64_t missing, uint64_t requested)
{
	return range->config.guards && range->only_user > CA_RANGE_USERS &&
	       range->sums.mapped_bytes + missing > limit_with(range, requested);
}

/* A place where others' memory will do, if less is missing there. */
static struct place
choose_guarded(struct ca_area *area, uint64_t bytes, unsigned user, bool large, struct place place)
{
	struct place guarded;

	area->range->guarded = true;
	guarded = choose(area, bytes, user, large);
	area->range->guarded = false;
	return guarded.found && guarded.missing < place.missing ? guarded : place;
}

/* Where no piece fits. */
static int
make_room(struct ca_area *area, uint64_t bytes, uint64_t requested, unsigned user,
	  struct ca_piece **ret_piece)
{
	bool large = makes_large(area, bytes);
	struct place place;
	int r;

	ca_range_poll(area->range);
	place = choose(area, bytes, user, large);
	if (place.missing && may_guard(area->range, place.missing, requested))
		place = choose_guarded(area, bytes, user, large, place);
	if (!place.found)
		return CA_RANGE_FULL;
	r = place.missing ? ca_handle_map(area, place.address, bytes, user, large,
					  limit_with(area->range, requested))
			  : 0;
	if (r == CA_RANGE_FULL && large) {
		place = choose(area, bytes, user, false);
		r = ca_handle_map(area, place.address, bytes, user, false,
				  limit_with(area->range, requested));
	}
	if (r)
		return r;
	*ret_piece = unite(area, place.address, bytes, user);
	return *ret_piece ? 0 : -ENOMEM;
}

int
ca_range_alloc(struct ca_range *range, uint64_t bytes, unsigned user, uint64_t *ret_address)
{
	uint64_t n = bytes ? (bytes + grain - 1) & ~(grain - 1) : grain;
	struct ca_area *area = &range->area[n > small_max];
	struct ca_piece *piece;
	int r = 0;

	if (n < bytes || n > range->config.capacity)
		return CA_RANGE_FULL;
	if (range->only_user != user)
		range->only_user = range->only_user == CA_RANGE_NOBODY ? user : SEVERAL;
	piece = best_fit(area, n, user);
	if (piece) {
		piece = ca_piece_cut(area, piece, piece->address, n);
		r = piece ? 0 : -ENOMEM;
	} else {
		r = make_room(area, n, bytes, user, &piece);
	}
	if (r)
		return r;
	piece = ca_piece_set(area, piece, CA_PIECE_LIVE, CA_RANGE_NOBODY, 0);
	piece->requested = bytes;
	ca_handle_lives(area, piece, true);
	range->sums.live_bytes += bytes;
	if (range->sums.live_bytes > range->sums.peak_live_bytes)
		range->sums.peak_live_bytes = range->sums.live_bytes;
	*ret_address = piece->address;
	return 0;
}

/* ---------------------------------------------------------------- frees --- */
int
ca_range_free(struct ca_range *range, uint64_t address, unsigned user, uint64_t stamp)
{
	const struct ca_range_config *config = &range->config;
	struct ca_area *area = area_of(range, address);
	struct ca_piece *piece = ca_piece_find(area, address);

	if (!piece || piece->address != address || piece->kind != CA_PIECE_LIVE)
		return -ENOENT;
	ca_handle_lives(area, piece, false);
	range->sums.live_bytes -= piece->requested;
	if (user == CA_RANGE_NOBODY)
		stamp = 0;
	if (range->only_user < CA_RANGE_USERS && (user == range->only_user || !stamp))
		user = range->only_user;
	else if (user != CA_RANGE_NOBODY && config->is_finished(config->arg, user, stamp))
		user = CA_RANGE_NOBODY;
	ca_piece_set(area, piece, CA_PIECE_FREE, user, stamp);
	return 0;
}

void
ca_range_look(const struct ca_range *range, struct ca_range_sums *ret_sums)
{
	*ret_sums = range->sums;
}
