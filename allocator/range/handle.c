/* SPDX-License-Identifier: MIT */
/*
 * Handles: those mapped so far, those that a block needs, and those that move there.
 *
 * A gap is filled in whole slots of the grid where a slot is a gap throughout, with a large handle
 * each, else page by page. If that would be more than the limit, handles with nothing live
 * in them are taken away from elsewhere, highest first, of the block's own area before the other's.
 * One that is finished serves any need: the same size moves, others go back to the driver and new
 * ones are made. One that the block's own user may still be using can only move.
 */
#include "allocator/range/inside.h"

#include <errno.h>
#include <string.h>

#include "allocator/util/list.h"

/* The needs of a block, and the handles taken away for it. */
struct need {
	unsigned user;
	uint64_t stamp;        /* of the user's work that may still use what moves */
	uint64_t large, small; /* handles to be mapped that no move serves so far */
	uint64_t mapped;       /* bytes, were it done */
	uint64_t n_taken;
	struct ca_handle *moves; /* taken away, not yet mapped again; linked by `next_move` */
};

/* ------------------------------------------------------------- the grid --- */
static uint64_t
page_of(const struct ca_area *area, uint64_t address)
{
	return (address - area->base) / CA_RANGE_PAGE;
}

/* The next piece of a gap to be mapped, from page `at` on; not beyond page `end`. */
static uint64_t
stride(const struct ca_area *area, const struct ca_piece *gap, uint64_t *at, bool large)
{
	uint64_t slot = *at / area->slot * area->slot;
	uint64_t low = page_of(area, gap->address), high = page_of(area, gap->address + gap->bytes);

	if (!large || slot < low || slot + area->slot > high)
		return 1;
	*at = slot;
	return area->slot;
}

static bool
is_slots(const struct ca_area *area, bool large)
{
	return large && area->slot > 1;
}

uint64_t
ca_handle_missing(const struct ca_area *area, const struct ca_piece *piece, uint64_t address,
		  uint64_t bytes, bool large)
{
	uint64_t first = page_of(area, address), end = page_of(area, address + bytes - 1) + 1,
		 missing = 0;

	for (; piece && piece->address < address + bytes; piece = piece->next) {
		uint64_t low = page_of(area, piece->address), high, at;

		if (piece->kind != CA_PIECE_GAP)
			continue;
		high = page_of(area, piece->address + piece->bytes);
		at = low > first ? low : first;
		for (high = high < end ? high : end; at < high;) {
			uint64_t n =
				is_slots(area, large) ? stride(area, piece, &at, true) : high - at;

			missing += n;
			at += n;
		}
	}
	return missing * CA_RANGE_PAGE;
}

/* The table reaches as far. */
static int
table_reach(struct ca_area *area, uint64_t n)
{
	uint64_t room = area->n_pages ? area->n_pages : 1024;
	struct ca_handle **wider;

	if (n <= area->n_pages)
		return 0;
	while (room < n)
		room *= 2;
	wider = ca_arena_alloc(area->range->arena, room * sizeof(struct ca_handle *));
	if (!wider)
		return -ENOMEM;
	if (area->n_pages)
		memcpy(wider, area->pages, area->n_pages * sizeof(struct ca_handle *));
	area->pages = wider;
	area->n_pages = room;
	return 0;
}

static void
table_set(struct ca_area *area, const struct ca_handle *of, struct ca_handle *handle)
{
	uint64_t first = page_of(area, of->address);

	for (uint64_t i = 0; i < of->bytes / CA_RANGE_PAGE; i++)
		area->pages[first + i] = handle;
}

void
ca_handle_lives(struct ca_area *area, const struct ca_piece *piece, bool more)
{
	uint64_t end = page_of(area, piece->address + piece->bytes - 1);

	for (uint64_t i = page_of(area, piece->address); i <= end;) {
		struct ca_handle *handle = area->pages[i];

		if (more && !handle->lives++)
			ca_tree_remove(&area->idle, &handle->idle);
		if (!more && !--handle->lives)
			ca_tree_insert(&area->idle, &handle->idle, handle->address, 0);
		i = page_of(area, handle->address + handle->bytes);
	}
}

/* ---------------------------------------------------------- taking away --- */
static void
step(struct ca_range *range, const struct ca_range_step *taken)
{
	range->sums.steps[taken->kind]++;
	range->config.step(range->config.arg, taken);
}

enum taking { NOT_NOW, FINISHED, EARLY };

/* How the handle could be taken away for the user. */
static enum taking
taking(struct ca_area *area, const struct ca_handle *handle, unsigned user)
{
	enum taking how = FINISHED;
	struct ca_piece *piece = ca_piece_find(area, handle->address);

	for (; piece && piece->address < handle->address + handle->bytes; piece = piece->next) {
		const struct ca_range_config *config = &area->range->config;

		if (piece->user == CA_RANGE_NOBODY ||
		    config->is_finished(config->arg, piece->user, piece->stamp))
			continue;
		if (piece->user != user)
			return NOT_NOW;
		how = EARLY;
	}
	return how;
}

/* The addresses of the handle are a gap, or will be when its user is done. Returns the stamp of the
 * last work that may still use it. Records for it are there. */
static uint64_t
addresses_leave(struct ca_area *area, const struct ca_handle *handle, enum taking how,
		unsigned user)
{
	uint64_t end = handle->address + handle->bytes, stamp = 0;
	struct ca_piece *piece;

	for (uint64_t at = handle->address; at < end;) {
		uint64_t stop;

		piece = ca_piece_find(area, at);
		stop = piece->address + piece->bytes < end ? piece->address + piece->bytes : end;
		stamp = piece->user == user && piece->stamp > stamp ? piece->stamp : stamp;
		piece = ca_piece_cut(area, piece, at, stop - at);
		ca_piece_set(area, piece, CA_PIECE_GAP, CA_RANGE_NOBODY, 0);
		at = stop;
	}
	if (how == FINISHED)
		return 0;
	piece = ca_piece_cut(area, ca_piece_find(area, handle->address), handle->address,
			     handle->bytes);
	ca_piece_set(area, piece, CA_PIECE_LEAVING, user, stamp);
	area->range->n_leaving++;
	return stamp;
}

/* Whether taking the handle away helps; if so, it is accounted for in `need`. */
static bool
would_help(const struct ca_handle *handle, enum taking how, struct need *need, bool *ret_moves)
{
	uint64_t *wanted = handle->bytes > CA_RANGE_PAGE ? &need->large : &need->small;

	*ret_moves = *wanted > 0;
	if (how == NOT_NOW || (how == EARLY && !*wanted))
		return false;
	*wanted -= *wanted > 0;
	need->mapped -= handle->bytes;
	need->n_taken++;
	return true;
}

static void
take_away(struct ca_area *area, struct ca_handle *handle, enum taking how, bool moves,
	  struct need *need)
{
	struct ca_range *range = area->range;
	uint64_t stamp = addresses_leave(area, handle, how, need->user);

	range->sums.mapped_bytes -= handle->bytes;
	table_set(area, handle, NULL);
	ca_tree_remove(&area->idle, &handle->idle);
	if (moves) {
		need->stamp = stamp > need->stamp ? stamp : need->stamp;
		handle->early = how == EARLY;
		handle->next_move = need->moves;
		need->moves = handle;
		return;
	}
	step(range, &(struct ca_range_step){ .kind = CA_RANGE_RETURN,
					     .from = handle->address,
					     .bytes = handle->bytes });
	ca_objects_put(&range->handles, handle);
}

/* From the area, but for what [low, high) is in, until no more than `goal` is mapped. Not `act`:
 * accounts for it only. */
static void
take_away_from(struct ca_area *area, uint64_t low, uint64_t high, uint64_t goal, bool act,
	       struct need *need)
{
	struct ca_tree_node *node = ca_tree_last(&area->idle);

	while (node && need->mapped > goal) {
		struct ca_handle *handle = CA_CONTAINER_OF(node, struct ca_handle, idle);
		uint64_t address = handle->address;
		bool moves;

		if (address >= high || address + handle->bytes <= low) {
			enum taking how = taking(area, handle, need->user);

			if (would_help(handle, how, need, &moves) && act)
				take_away(area, handle, how, moves, need);
		}
		node = address > area->base ? ca_tree_at_most(&area->idle, address - 1) : NULL;
	}
}

/* -------------------------------------------------------------- mapping --- */
static void
count_need(const struct ca_area *area, const struct ca_piece *piece, uint64_t address,
	   uint64_t bytes, bool large, struct need *need)
{
	uint64_t first = page_of(area, address), end = page_of(area, address + bytes - 1) + 1;

	for (; piece && piece->address < address + bytes; piece = piece->next) {
		uint64_t low = page_of(area, piece->address), high, at;

		if (piece->kind != CA_PIECE_GAP)
			continue;
		high = page_of(area, piece->address + piece->bytes);
		at = low > first ? low : first;
		for (high = high < end ? high : end; at < high;) {
			uint64_t n = stride(area, piece, &at, is_slots(area, large));

			*(n > 1 ? &need->large : &need->small) += 1;
			at += n;
		}
	}
}

/* A handle that was taken away for it, or a new one, comes to be at `address`. */
static struct ca_handle *
handle_map(struct ca_range *range, uint64_t address, uint64_t bytes, struct need *need)
{
	struct ca_handle **link = &need->moves, *handle;
	struct ca_range_step taken = {
		.kind = CA_RANGE_CREATE, .to = address, .bytes = bytes, .user = need->user
	};

	while (*link && (*link)->bytes != bytes)
		link = &(*link)->next_move;
	handle = *link;
	if (handle) {
		*link = handle->next_move;
		taken.kind = CA_RANGE_MOVE;
		taken.from = handle->address;
		taken.early = handle->early;
	} else {
		handle = ca_objects_get(&range->handles);
	}
	step(range, &taken);
	if (taken.kind == CA_RANGE_MOVE && !taken.early) {
		taken.kind = CA_RANGE_UNMAP;
		step(range, &taken);
	}
	*handle = (struct ca_handle){ .address = address, .bytes = bytes };
	range->sums.mapped_bytes += bytes;
	if (range->sums.mapped_bytes > range->sums.peak_mapped_bytes)
		range->sums.peak_mapped_bytes = range->sums.mapped_bytes;
	return handle;
}

/* [at, at + n) pages of a gap. */
static void
map_one(struct ca_area *area, struct ca_piece *gap, uint64_t at, uint64_t n, struct need *need)
{
	struct ca_handle *handle =
		handle_map(area->range, area->base + at * CA_RANGE_PAGE, n * CA_RANGE_PAGE, need);
	struct ca_piece *piece = ca_piece_cut(area, gap, handle->address, handle->bytes);

	table_set(area, handle, handle);
	ca_tree_insert(&area->idle, &handle->idle, handle->address, 0);
	ca_piece_set(area, piece, CA_PIECE_FREE, need->user, need->stamp);
}

/* All gaps of the pages that hold [address, address + bytes). */
static void
map_all(struct ca_area *area, uint64_t address, uint64_t bytes, bool large, struct need *need)
{
	uint64_t at = page_of(area, address), end = page_of(area, address + bytes - 1) + 1;

	while (at < end) {
		struct ca_piece *piece = ca_piece_find(area, area->base + at * CA_RANGE_PAGE);
		uint64_t n = 1;

		if (piece->kind == CA_PIECE_GAP) {
			n = stride(area, piece, &at, is_slots(area, large));
			map_one(area, piece, at, n, need);
		}
		at += n;
	}
}

/* From now on so many can be had. */
static bool
records_reserve(struct ca_objects *objects, uint64_t n)
{
	void *first = NULL, *record = NULL;

	for (; n; n--) {
		record = ca_objects_get(objects);
		if (!record)
			break;
		memcpy(record, &first, sizeof(first));
		first = record;
	}
	while (first) {
		void *next;

		memcpy(&next, first, sizeof(next));
		ca_objects_put(objects, first);
		first = next;
	}
	return !n;
}

int
ca_handle_map(struct ca_area *area, uint64_t address, uint64_t bytes, unsigned user, bool large,
	      uint64_t limit)
{
	struct ca_range *range = area->range;
	struct ca_area *other = &range->area[area == range->area];
	struct ca_piece *piece = ca_piece_find(area, address);
	uint64_t missing = ca_handle_missing(area, piece, address, bytes, large),
		 goal = limit > missing ? limit - missing : 0, n_new;
	struct need need = { .user = user, .mapped = range->sums.mapped_bytes }, first;

	count_need(area, piece, address, bytes, large, &need);
	n_new = need.large + need.small;
	first = need;
	take_away_from(area, address, address + bytes, goal, false, &need);
	take_away_from(other, 0, 0, goal, false, &need);
	/* beyond the limit as little as possible */
	if (need.mapped + missing > (large ? limit : range->config.capacity))
		return CA_RANGE_FULL;
	if (table_reach(area, page_of(area, address + bytes - 1) + 1 + area->slot) ||
	    !records_reserve(&range->pieces, 4 * (n_new + need.n_taken) + 4) ||
	    !records_reserve(&range->handles, n_new))
		return -ENOMEM;
	take_away_from(area, address, address + bytes, goal, true, &first);
	take_away_from(other, 0, 0, goal, true, &first);
	map_all(area, address, bytes, large, &first);
	return 0;
}
