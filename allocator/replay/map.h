/* SPDX-License-Identifier: MIT */
/*
 * A hash table from (64-bit key, small number) to a 32-bit value: which block an id names. Open
 * addressing with linear probing, and removal that shifts back, so that a table under millions of
 * insertions and removals stays as small as what it holds. Uses malloc; not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ca_replay_slot {
	uint64_t key;
	uint32_t value;
	uint16_t part; /* the small number */
	bool taken;
};

struct ca_replay_map {
	struct ca_replay_slot *slots; /* NULL: empty */
	size_t size;                  /* a power of 2 */
	size_t count;
};

/* 0: it is there now; -EEXIST: it was there, nothing is changed; -ENOMEM. */
int ca_replay_map_add(struct ca_replay_map *map, uint64_t key, uint16_t part, uint32_t value);
bool ca_replay_map_get(const struct ca_replay_map *map, uint64_t key, uint16_t part,
		       uint32_t *ret_value);
/* As get, and it is no longer there. */
bool ca_replay_map_take(struct ca_replay_map *map, uint64_t key, uint16_t part,
			uint32_t *ret_value);
void ca_replay_map_clear(struct ca_replay_map *map);
