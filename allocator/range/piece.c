/* SPDX-License-Identifier: MIT */
/*
 * The pieces of an area, in order of address: cut, changed, and put together again. The records of
 * a cut are had before anything is changed, so that it is done as a whole or not at all.
 */
#include "allocator/range/inside.h"

#include <errno.h>

#include "allocator/util/list.h"

/* Further than any device's memory. */
static const uint64_t area_bytes = (uint64_t)1 << 46;

static void
link_after(struct ca_piece *piece, struct ca_piece *prev)
{
	piece->prev = prev;
	piece->next = prev->next;
	if (piece->next)
		piece->next->prev = piece;
	prev->next = piece;
}

/* The piece enters the tree of its kind, and leaves it. */
static void
fits_update(struct ca_area *area, struct ca_piece *piece)
{
	switch (piece->kind) {
	case CA_PIECE_FREE:
		ca_tree_insert(&area->fits[piece->user], &piece->size, piece->bytes,
			       piece->address);
		break;
	case CA_PIECE_LEAVING:
		ca_tree_insert(&area->leaving[piece->user], &piece->size, piece->stamp,
			       piece->address);
		break;
	case CA_PIECE_GAP:
		ca_tree_insert(&area->gaps, &piece->size, piece->address, 0);
		break;
	case CA_PIECE_LIVE:
		break;
	}
}

static void
fits_remove(struct ca_area *area, struct ca_piece *piece)
{
	switch (piece->kind) {
	case CA_PIECE_FREE:
		ca_tree_remove(&area->fits[piece->user], &piece->size);
		break;
	case CA_PIECE_LEAVING:
		ca_tree_remove(&area->leaving[piece->user], &piece->size);
		break;
	case CA_PIECE_GAP:
		ca_tree_remove(&area->gaps, &piece->size);
		break;
	case CA_PIECE_LIVE:
		break;
	}
}

int
ca_piece_start(struct ca_area *area)
{
	struct ca_piece *piece = ca_objects_get(&area->range->pieces);

	if (!piece)
		return -ENOMEM;
	piece->kind = CA_PIECE_GAP;
	piece->user = CA_RANGE_NOBODY;
	piece->address = area->base;
	piece->bytes = area_bytes;
	area->first = piece;
	ca_tree_insert(&area->pieces, &piece->at, piece->address, 0);
	fits_update(area, piece);
	return 0;
}

struct ca_piece *
ca_piece_find(const struct ca_area *area, uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&area->pieces, address);

	return node ? CA_CONTAINER_OF(node, struct ca_piece, at) : NULL;
}

/* `upper` becomes the part of the piece from `address` on. */
static void
split(struct ca_area *area, struct ca_piece *piece, struct ca_piece *upper, uint64_t address)
{
	*upper = *piece;
	upper->at = upper->size = (struct ca_tree_node){ 0 };
	upper->address = address;
	upper->bytes = piece->address + piece->bytes - address;
	piece->bytes = address - piece->address;
	link_after(upper, piece);
	ca_tree_insert(&area->pieces, &upper->at, upper->address, 0);
}

struct ca_piece *
ca_piece_cut(struct ca_area *area, struct ca_piece *piece, uint64_t address, uint64_t bytes)
{
	bool front = address > piece->address,
	     back = address + bytes < piece->address + piece->bytes;
	struct ca_objects *records = &area->range->pieces;
	struct ca_piece *middle = front ? ca_objects_get(records) : piece;
	struct ca_piece *rest = back && middle ? ca_objects_get(records) : NULL;

	if (!middle || (back && !rest)) {
		if (front)
			ca_objects_put(records, middle);
		return NULL;
	}
	fits_remove(area, piece);
	if (front)
		split(area, piece, middle, address);
	if (back)
		split(area, middle, rest, address + bytes);
	if (front)
		fits_update(area, piece);
	if (back)
		fits_update(area, rest);
	fits_update(area, middle);
	return middle;
}

static bool
is_same(const struct ca_piece *a, const struct ca_piece *b)
{
	return a && b && a->kind == b->kind && a->kind != CA_PIECE_LIVE &&
	       a->kind != CA_PIECE_LEAVING && a->user == b->user;
}

/* `upper` ends; neither is in area->fits. */
static void
merge(struct ca_area *area, struct ca_piece *piece, struct ca_piece *upper)
{
	piece->bytes += upper->bytes;
	if (upper->stamp > piece->stamp)
		piece->stamp = upper->stamp;
	piece->next = upper->next;
	if (piece->next)
		piece->next->prev = piece;
	ca_tree_remove(&area->pieces, &upper->at);
	ca_objects_put(&area->range->pieces, upper);
}

struct ca_piece *
ca_piece_set(struct ca_area *area, struct ca_piece *piece, enum ca_piece_kind kind, unsigned user,
	     uint64_t stamp)
{
	struct ca_piece *prev = piece->prev, *next = piece->next;

	fits_remove(area, piece);
	piece->kind = kind;
	piece->user = user;
	piece->stamp = stamp;
	if (is_same(piece, next)) {
		fits_remove(area, next);
		merge(area, piece, next);
	}
	if (is_same(prev, piece)) {
		fits_remove(area, prev);
		merge(area, prev, piece);
		piece = prev;
	}
	fits_update(area, piece);
	return piece;
}

struct ca_piece *
ca_piece_usable(struct ca_area *area, struct ca_piece *piece, unsigned user)
{
	const struct ca_range_config *config = &area->range->config;

	if (piece->kind != CA_PIECE_FREE)
		return NULL;
	if (piece->user == user || piece->user == CA_RANGE_NOBODY)
		return piece;
	if (!config->is_finished(config->arg, piece->user, piece->stamp))
		return area->range->guarded ? piece : NULL;
	return ca_piece_set(area, piece, CA_PIECE_FREE, CA_RANGE_NOBODY, 0);
}
