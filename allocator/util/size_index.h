/* SPDX-License-Identifier: MIT */
/*
 * Free blocks by size: a doubly linked list for each class of sizes, and a bit for each list that
 * is not empty. Sizes of a class differ by a 64th at most, and below 32 KiB by less than a grain.
 * An insertion or a search looks at a bounded number of nodes, whatever the sizes are; so a list is
 * in the order of sizes at its beginning, and only about so behind. Of equal ones the latest comes
 * first. (In the order of addresses peaks of 41 rows, three seeds and four lags are 0.3 % larger,
 * and a call of the recorded traces takes up to 4 % more instructions.) Not thread-safe: the heap's
 * lock is held.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CA_CLASSES_LOG = 6,  /* classes for each power of two: bits of a word */
	CA_CLASS_WORDS = 32, /* the last class also has all sizes beyond 64 TiB */
	CA_CLASSES = CA_CLASS_WORDS << CA_CLASSES_LOG,
	/* Peaks of the 44 workloads, three seeds, against lists wholly in order: within 0.02 %,
	 * with 32 in both places 0.3 %. */
	CA_INDEX_SORT = 64,  /* an insertion looks at so many nodes of its list */
	CA_INDEX_LOOK = 64,  /* a search first looks at so many of the key's own class, */
	CA_INDEX_LAST = 256, /* and at so many more if no larger class has any */
};

struct ca_index_node {
	struct ca_index_node *next, *prev;
	uint64_t key;   /* bytes; 0: in no index */
	unsigned class; /* of the key, while it is in one */
};

struct ca_index {
	uint64_t words;                     /* bits: of `taken`, which are not 0 */
	uint64_t taken[CA_CLASS_WORDS + 1]; /* bits: lists that are not empty; the last one is 0 */
	struct ca_index_node *classes[CA_CLASSES];
};

/* A size's class is its power of two and the next six bits below: a word of `taken` for each power.
 * Sizes below 64 grains have a class for each grain, in the first word. */
static inline unsigned
ca_index_class(uint64_t key)
{
	enum { GRAIN_LOG = 9 };
	uint64_t grains = key >> GRAIN_LOG;
	unsigned shift, class;

	if (grains < 1u << CA_CLASSES_LOG)
		return (unsigned)grains;
	shift = 63 - CA_CLASSES_LOG - (unsigned)__builtin_clzll(grains);
	/* its highest bit counts as one power more */
	class = (shift << CA_CLASSES_LOG) + (unsigned)(grains >> shift);
	return class < CA_CLASSES ? class : CA_CLASSES - 1;
}

/* Forgets all nodes, touching no more than their classes. All zeros is an empty one. */
void ca_index_init(struct ca_index *index);
static inline bool
ca_index_is_empty(const struct ca_index *index)
{
	return !index->words;
}

/* ---- changes */

static inline bool
ca_index_is_in_order(const struct ca_index_node *node)
{
	return !(node->prev && node->key < node->prev->key) &&
	       !(node->next && node->next->key < node->key);
}

/* The node of no index enters the list of its class. */
static inline void
ca_index_enter(struct ca_index *index, struct ca_index_node *node)
{
	unsigned class = node->class, looked;
	struct ca_index_node *next = index->classes[class], *prev = NULL;

	if (!next) {
		index->taken[class / 64] |= (uint64_t)1 << class % 64;
		index->words |= (uint64_t)1 << class / 64;
	}
	for (looked = 0; next && looked < CA_INDEX_SORT && next->key < node->key; looked++) {
		prev = next;
		next = next->next;
	}
	node->prev = prev;
	node->next = next;
	if (next)
		next->prev = node;
	if (prev)
		prev->next = node;
	else
		index->classes[class] = node;
}

static inline void
ca_index_leave(struct ca_index *index, const struct ca_index_node *node)
{
	unsigned class = node->class;

	if (node->next)
		node->next->prev = node->prev;
	if (node->prev) {
		node->prev->next = node->next;
		return;
	}
	index->classes[class] = node->next;
	if (node->next)
		return;
	index->taken[class / 64] &= ~((uint64_t)1 << class % 64);
	if (!index->taken[class / 64])
		index->words &= ~((uint64_t)1 << class / 64);
}

/* Gives the node, in this index or in none, a new key; cheap if it keeps its class. Key: bytes, at
 * least 1. */
static inline void
ca_index_set(struct ca_index *index, struct ca_index_node *node, uint64_t key)
{
	unsigned class = ca_index_class(key);
	bool was = node->key != 0;

	node->key = key;
	if (was && node->class == class && ca_index_is_in_order(node))
		return;
	if (was)
		ca_index_leave(index, node);
	node->class = class;
	ca_index_enter(index, node);
}

/* Harmless on a node that is in no index. */
static inline void
ca_index_remove(struct ca_index *index, struct ca_index_node *node)
{
	if (!node->key)
		return;
	ca_index_leave(index, node);
	node->key = 0;
}

/* ---- searches */

/* The first node of the classes from `class` on, which may be one more than there are. */
static inline struct ca_index_node *
ca_index_first_from(const struct ca_index *index, unsigned class)
{
	unsigned word = class >> CA_CLASSES_LOG;
	uint64_t bits, words;

	bits = index->taken[word] >> class % 64;
	if (bits)
		return index->classes[class + (unsigned)__builtin_ctzll(bits)];
	words = index->words >> word >> 1;
	if (!words)
		return NULL;
	word += 1 + (unsigned)__builtin_ctzll(words);
	class = (word << CA_CLASSES_LOG) + (unsigned)__builtin_ctzll(index->taken[word]);
	return index->classes[class];
}

/* ca_index_at_least, where the key's class has some nodes. */
struct ca_index_node *ca_index_look(const struct ca_index *index, unsigned class, uint64_t key);
/* A node with a key >= `key`, the least or one of a class about as large. NULL: there is none, or,
 * if no class is larger than the key's own, none among the nodes looked at. */
static inline struct ca_index_node *
ca_index_at_least(const struct ca_index *index, uint64_t key)
{
	unsigned class = ca_index_class(key);

	return index->classes[class] ? ca_index_look(index, class, key)
				     : ca_index_first_from(index, class + 1);
}
/* The same; NULL: there is none. */
struct ca_index_node *ca_index_any_at_least(const struct ca_index *index, uint64_t key);
/* Every node once, class by class, smallest class first. */
struct ca_index_node *ca_index_first(const struct ca_index *index);
struct ca_index_node *ca_index_next(const struct ca_index *index, const struct ca_index_node *node);
/* The node with the largest keys; looks at all of its class. */
struct ca_index_node *ca_index_last(const struct ca_index *index);
