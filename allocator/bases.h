/* SPDX-License-Identifier: MIT */
/*
 * LIVE blocks by the address of their first byte: a table that is changed under the heap's lock and
 * read without. Private to allocator/, included by inside.h.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "allocator/arena.h"

struct ca_block;
struct ca_bases_table;

struct ca_bases {
	struct ca_bases_table *_Atomic table; /* NULL: none yet */
	struct ca_arena *arena;
	uint64_t entered; /* blocks in the table */
};

void ca_bases_init(struct ca_bases *bases, struct ca_arena *arena);
/* A moment at which it does not matter how long that takes: makes room for what comes. */
void ca_bases_prepare_locked(struct ca_bases *bases);
/* Not every block gets a place: one that has none is found by the tree. */
void ca_bases_enter_locked(struct ca_bases *bases, struct ca_block *block);
/* Harmless if it is not there. */
void ca_bases_leave_locked(struct ca_bases *bases, const struct ca_block *block);
/* The block that begins at `address`; NULL: it has no place in the table. */
struct ca_block *ca_bases_find_locked(const struct ca_bases *bases, uint64_t address);
/* The block whose `quick` word said that it is live at `address`, and says now that it is kept. Any
 * thread may call it without a lock. NULL: there is none. */
struct ca_block *ca_bases_claim(const struct ca_bases *bases, uint64_t address);
/* Entries that are not NULL, counted anew. */
uint64_t ca_bases_count_locked(const struct ca_bases *bases);
