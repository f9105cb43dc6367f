/* SPDX-License-Identifier: MIT */
/* Shared by the files of the folder: pieces (piece.c), handles (handle.c), and the calls. */
#pragma once

#include "allocator/range/range.h"

enum ca_piece_kind {
	CA_PIECE_LIVE,
	CA_PIECE_FREE,    /* mapped throughout */
	CA_PIECE_GAP,     /* nothing is mapped */
	CA_PIECE_LEAVING, /* the memory has moved on; unmapped when `stamp` is finished */
};

/* Pieces tile an area. FREE neighbours of one user are one piece, and so are GAPs. */
struct ca_piece {
	struct ca_tree_node at;   /* by address, in area->pieces */
	struct ca_tree_node size; /* FREE: by (bytes, address), in area->fits[user]; LEAVING: by
				     (stamp, address), in area->leaving[user]; GAP: by address, in
				     area->gaps */
	struct ca_piece *prev, *next;
	uint64_t address, bytes;
	uint64_t requested; /* LIVE: as asked for, bytes */
	uint64_t stamp;     /* FREE, LEAVING: of the user's work that may still use it */
	unsigned user;      /* FREE, LEAVING; CA_RANGE_NOBODY: finished */
	enum ca_piece_kind kind;
};

/* Memory, where it is mapped. */
struct ca_handle {
	struct ca_tree_node idle; /* by address, in area->idle, while `lives` is 0 */
	uint64_t address, bytes;
	uint64_t lives;              /* LIVE pieces that it holds a part of */
	struct ca_handle *next_move; /* while it is mapped nowhere: in a call */
	bool early;                  /* likewise: its user may still use the old place */
};

struct ca_area {
	struct ca_range *range;
	struct ca_tree pieces;
	struct ca_tree fits[CA_RANGE_USERS + 1];
	struct ca_tree leaving[CA_RANGE_USERS];
	struct ca_tree gaps;
	struct ca_tree idle;
	struct ca_piece *first;
	struct ca_handle **pages; /* the handle mapped at each, or NULL; n_pages of them */
	uint64_t base, n_pages;
	unsigned slot; /* pages of a large handle; 1: none */
};

struct ca_range {
	struct ca_range_config config;
	struct ca_range_sums sums;
	struct ca_arena *arena;
	struct ca_objects pieces, handles;
	struct ca_area area[2]; /* small requests, the rest */
	unsigned n_leaving;
	bool guarded;       /* in a call: memory of others will do */
	unsigned only_user; /* CA_RANGE_NOBODY: none so far; more than that: several */
};

/* ----------------------------------------------------------- piece.c --- */
int ca_piece_start(struct ca_area *area);
/* [address, address + bytes) as a piece, all of which is in `piece`; NULL: no records, and nothing
 * has changed that anybody could tell. */
struct ca_piece *ca_piece_cut(struct ca_area *area, struct ca_piece *piece, uint64_t address,
			      uint64_t bytes);
/* Becomes what is said, and one with neighbours that are the same. Returns the whole. */
struct ca_piece *ca_piece_set(struct ca_area *area, struct ca_piece *piece, enum ca_piece_kind kind,
			      unsigned user, uint64_t stamp);
/* The piece that the address is in. */
struct ca_piece *ca_piece_find(const struct ca_area *area, uint64_t address);
/* FREE, and nobody but the user may still be using it; or `guarded`. Makes it NOBODY's if nobody
 * is: the piece returned is the whole then. NULL: it is not. */
struct ca_piece *ca_piece_usable(struct ca_area *area, struct ca_piece *piece, unsigned user);

/* ---------------------------------------------------------- handle.c --- */
/* Bytes to be mapped so that all of [address, address + bytes) is, all in pieces from
 * `piece` on. `large`: in whole slots where a slot is a gap. */
uint64_t ca_handle_missing(const struct ca_area *area, const struct ca_piece *piece,
			   uint64_t address, uint64_t bytes, bool large);
/* Maps it: with what can move from elsewhere once more than `limit` would be mapped.
 * CA_RANGE_FULL: more than the capacity. -ENOMEM. */
int ca_handle_map(struct ca_area *area, uint64_t address, uint64_t bytes, unsigned user, bool large,
		  uint64_t limit);
/* A LIVE piece came or went. */
void ca_handle_lives(struct ca_area *area, const struct ca_piece *piece, bool more);
