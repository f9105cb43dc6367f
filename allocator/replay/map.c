/* SPDX-License-Identifier: MIT */
#include "allocator/replay/map.h"

#include <errno.h>
#include <stdlib.h>

enum { SLOTS_MIN = 64 };

static size_t
home(const struct ca_replay_map *map, uint64_t key, uint16_t part)
{
	/* the finaliser of splitmix64 */
	uint64_t x = key + UINT64_C(0x9e3779b97f4a7c15) * (part + 1u);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (size_t)(x ^ (x >> 31)) & (map->size - 1);
}

/* The slot of the key, or the free one where it would be. Wants a table with a free slot. */
static size_t
find(const struct ca_replay_map *map, uint64_t key, uint16_t part)
{
	size_t at = home(map, key, part);

	while (map->slots[at].taken && (map->slots[at].key != key || map->slots[at].part != part))
		at = (at + 1) & (map->size - 1);
	return at;
}

static int
grow(struct ca_replay_map *map)
{
	struct ca_replay_map bigger = { .size = map->size ? 2 * map->size : SLOTS_MIN };
	size_t i;

	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (i = 0; i < map->size; i++)
		if (map->slots[i].taken)
			bigger.slots[find(&bigger, map->slots[i].key, map->slots[i].part)] =
				map->slots[i];
	bigger.count = map->count;
	free(map->slots);
	*map = bigger;
	return 0;
}

int
ca_replay_map_add(struct ca_replay_map *map, uint64_t key, uint16_t part, uint32_t value)
{
	size_t at;

	if (4 * (map->count + 1) > 3 * map->size && grow(map))
		return -ENOMEM;
	at = find(map, key, part);
	if (map->slots[at].taken)
		return -EEXIST;
	map->slots[at] = (struct ca_replay_slot){ key, value, part, true };
	map->count++;
	return 0;
}

bool
ca_replay_map_get(const struct ca_replay_map *map, uint64_t key, uint16_t part, uint32_t *ret_value)
{
	size_t at;

	if (!map->count)
		return false;
	at = find(map, key, part);
	if (!map->slots[at].taken)
		return false;
	*ret_value = map->slots[at].value;
	return true;
}

/* An entry that was put further on because the slot was taken moves up. */
static void
remove_at(struct ca_replay_map *map, size_t hole)
{
	size_t mask = map->size - 1, at = hole;

	for (;;) {
		struct ca_replay_slot *slot;

		at = (at + 1) & mask;
		slot = &map->slots[at];
		if (!slot->taken)
			break;
		/* it may move if its home is not between the hole and itself */
		if (((at - home(map, slot->key, slot->part)) & mask) < ((at - hole) & mask))
			continue;
		map->slots[hole] = *slot;
		hole = at;
	}
	map->slots[hole].taken = false;
	map->count--;
}

bool
ca_replay_map_take(struct ca_replay_map *map, uint64_t key, uint16_t part, uint32_t *ret_value)
{
	size_t at;

	if (!map->count)
		return false;
	at = find(map, key, part);
	if (!map->slots[at].taken)
		return false;
	*ret_value = map->slots[at].value;
	remove_at(map, at);
	return true;
}

void
ca_replay_map_clear(struct ca_replay_map *map)
{
	free(map->slots);
	*map = (struct ca_replay_map){ 0 };
}
