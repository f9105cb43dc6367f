/* SPDX-License-Identifier: MIT */
/* Searches in an index that look at more than the first node of a list. */
#include "allocator/util/size_index.h"

void
ca_index_init(struct ca_index *index)
{
	unsigned word;

	for (; index->words; index->words &= index->words - 1) {
		word = (unsigned)__builtin_ctzll(index->words);
		for (; index->taken[word]; index->taken[word] &= index->taken[word] - 1)
			index->classes[(word << CA_CLASSES_LOG) +
				       (unsigned)__builtin_ctzll(index->taken[word])] = NULL;
	}
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
at_least(const struct ca_index *index, unsigned class, uint64_t key, uint64_t limit)
{
	struct ca_index_node *at = index->classes[class], *found;

	found = look(&at, key, CA_INDEX_LOOK);
	if (!found)
		found = ca_index_first_from(index, class + 1);
	return found || !at ? found : look(&at, key, limit);
}

struct ca_index_node *
ca_index_look(const struct ca_index *index, unsigned class, uint64_t key)
{
	return at_least(index, class, key, CA_INDEX_LAST);
}

struct ca_index_node *
ca_index_any_at_least(const struct ca_index *index, uint64_t key)
{
	return at_least(index, ca_index_class(key), key, UINT64_MAX);
}

struct ca_index_node *
ca_index_first(const struct ca_index *index)
{
	return ca_index_first_from(index, 0);
}

struct ca_index_node *
ca_index_next(const struct ca_index *index, const struct ca_index_node *node)
{
	return node->next ? node->next : ca_index_first_from(index, node->class + 1);
}

struct ca_index_node *
ca_index_last(const struct ca_index *index)
{
	struct ca_index_node *node, *last;
	unsigned word;

	if (ca_index_is_empty(index))
		return NULL;
	word = 63 - (unsigned)__builtin_clzll(index->words);
	last = index->classes[(word << CA_CLASSES_LOG) + 63 -
			      (unsigned)__builtin_clzll(index->taken[word])];
	for (node = last->next; node; node = node->next)
		if (last->key < node->key)
			last = node;
	return last;
}
