/* SPDX-License-Identifier: MIT */
/*
 * The class of a size is its power of two and the next six bits below: a word of `taken` for each
 * power. Sizes below 64 grains have a class for each grain, in the first word.
 */
#include "allocator/util/size_index.h"

#include <stddef.h>

enum { GRAIN_LOG = 9 };

static inline unsigned
class_of(uint64_t key)
{
	uint64_t grains = key >> GRAIN_LOG;
	unsigned shift, class;

	if (grains < 1u << CA_CLASSES_LOG)
		return (unsigned)grains;
	shift = 63 - CA_CLASSES_LOG - (unsigned)__builtin_clzll(grains);
	/* its highest bit counts as one power more */
	class = (shift << CA_CLASSES_LOG) + (unsigned)(grains >> shift);
	return class < CA_CLASSES ? class : CA_CLASSES - 1;
}

/* The first node of the classes from `class` on. */
static struct ca_index_node *
first_from(const struct ca_index *index, unsigned class)
{
	unsigned word = class >> CA_CLASSES_LOG, words;
	uint64_t bits;

	if (class >= CA_CLASSES)
		return NULL;
	bits = index->taken[word] >> class % 64;
	if (bits)
		return index->classes[class + (unsigned)__builtin_ctzll(bits)];
	words = index->words >> word >> 1;
	if (!words)
		return NULL;
	word += 1 + (unsigned)__builtin_ctz(words);
	class = (word << CA_CLASSES_LOG) + (unsigned)__builtin_ctzll(index->taken[word]);
	return index->classes[class];
}

void
ca_index_init(struct ca_index *index)
{
	unsigned word;

	for (; index->words; index->words &= index->words - 1) {
		word = (unsigned)__builtin_ctz(index->words);
		for (; index->taken[word]; index->taken[word] &= index->taken[word] - 1)
			index->classes[(word << CA_CLASSES_LOG) +
				       (unsigned)__builtin_ctzll(index->taken[word])] = NULL;
	}
}

static inline bool
is_before(const struct ca_index_node *node, const struct ca_index_node *other)
{
	return node->key < other->key || (node->key == other->key && node->subkey < other->subkey);
}

static inline void
enter(struct ca_index *index, unsigned class, struct ca_index_node *node)
{
	struct ca_index_node *next = index->classes[class], *prev = NULL;
	unsigned looked;

	if (!next) {
		index->taken[class / 64] |= (uint64_t)1 << class % 64;
		index->words |= 1u << class / 64;
	}
	for (looked = 0; next && looked < CA_INDEX_SORT && is_before(next, node); looked++) {
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
leave(struct ca_index *index, unsigned class, const struct ca_index_node *node)
{
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
		index->words &= ~(1u << class / 64);
}

void
ca_index_remove_from(struct ca_index *index, struct ca_index_node *node)
{
	leave(index, class_of(node->key), node);
	node->key = 0;
}

static inline bool
is_in_order(const struct ca_index_node *node)
{
	return !(node->prev && is_before(node, node->prev)) &&
	       !(node->next && is_before(node->next, node));
}

void
ca_index_set(struct ca_index *index, struct ca_index_node *node, uint64_t key, uint64_t subkey)
{
	unsigned class = class_of(key), was = node->key ? class_of(node->key) : CA_CLASSES;

	node->key = key;
	node->subkey = subkey;
	if (was == class && is_in_order(node))
		return;
	if (was != CA_CLASSES)
		leave(index, was, node);
	enter(index, class, node);
}

/* The first of a list's `limit` nodes from *at on that is large enough, or NULL; *at: the one
 * behind those looked at. */
static inline struct ca_index_node *
look(struct ca_index_node **at, uint64_t key, uint64_t limit)
{
	struct ca_index_node *node = *at;
	uint64_t looked;

	for (looked = 0; node && looked < limit; looked++, node = node->next)
		if (node->key >= key)
			return node;
	*at = node;
	return NULL;
}

static inline struct ca_index_node *
at_least(const struct ca_index *index, uint64_t key, uint64_t limit)
{
	unsigned class = class_of(key);
	struct ca_index_node *at = index->classes[class], *found;

	found = look(&at, key, CA_INDEX_LOOK);
	if (!found)
		found = first_from(index, class + 1);
	return found || !at ? found : look(&at, key, limit);
}

struct ca_index_node *
ca_index_at_least(const struct ca_index *index, uint64_t key)
{
	return at_least(index, key, CA_INDEX_LAST);
}

struct ca_index_node *
ca_index_any_at_least(const struct ca_index *index, uint64_t key)
{
	return at_least(index, key, UINT64_MAX);
}

bool
ca_index_has_about(const struct ca_index *index, uint64_t key)
{
	unsigned class = class_of(key);

	return index->taken[class / 64] >> class % 64 & 1;
}

struct ca_index_node *
ca_index_first(const struct ca_index *index)
{
	return first_from(index, 0);
}

struct ca_index_node *
ca_index_next(const struct ca_index *index, const struct ca_index_node *node)
{
	return node->next ? node->next : first_from(index, class_of(node->key) + 1);
}

struct ca_index_node *
ca_index_last(const struct ca_index *index)
{
	struct ca_index_node *node, *last;
	unsigned word;

	if (ca_index_is_empty(index))
		return NULL;
	word = 31 - (unsigned)__builtin_clz(index->words);
	last = index->classes[(word << CA_CLASSES_LOG) + 63 -
			      (unsigned)__builtin_clzll(index->taken[word])];
	for (node = last->next; node; node = node->next)
		if (is_before(last, node))
			last = node;
	return last;
}
